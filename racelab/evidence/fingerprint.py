"""Fingerprints: xxh3-64 of a byte range, as 16 hex digits, and those of its chunks.

xxh3 is sensitive to position within the range, so two pages with the same bytes in another
order differ. https://github.com/Cyan4973/xxHash (XXH3_64bits, seed 0).

A chunk is 4 KiB: small beside a page's layer (64 KiB), the size of a memory page, and independent of
any engine's layout, so that whoever sees bytes can take them apart. In the reference engine it is
just the keys and values of one token. docs/evidence.md says what is recorded when.
"""

from __future__ import annotations

from typing import Any

import xxhash

CHUNK_BYTES = 4096
DIGITS = 16


def fingerprint(data: Any) -> str:
    """The fingerprint of `data`, any C-contiguous buffer."""
    return xxhash.xxh3_64_hexdigest(data)


def chunk_fingerprints(data: bytes) -> str:
    """Those of its chunks from its start on, the last one perhaps shorter: 16 digits each, in one string."""
    view = memoryview(data)
    return "".join(xxhash.xxh3_64_hexdigest(view[at : at + CHUNK_BYTES]) for at in range(0, len(view), CHUNK_BYTES))


def split(chunks: str) -> list[str]:
    """The fingerprints in such a string, one a chunk."""
    return [chunks[at : at + DIGITS] for at in range(0, len(chunks), DIGITS)]


class Dissected:
    """Chunk fingerprints of what was fingerprinted as a whole, by that fingerprint; the first `most` of them.

    The bytes of a page may change while it is looked at. They are copied first, and what the copy does
    not confirm is not kept: there is no evidence then, and no wrong one.
    """

    def __init__(self, most: int = 65_536) -> None:
        self._most = most
        self._chunks: dict[str, str] = {}

    def note(self, whole: str, data: Any) -> None:
        """Take apart `data` (with `tobytes`), whose fingerprint was `whole` a moment ago, if that is news."""
        if whole in self._chunks or len(self._chunks) >= self._most:
            return
        copy = data.tobytes()
        if fingerprint(copy) == whole:
            self._chunks[whole] = chunk_fingerprints(copy)

    def of(self, whole: str) -> str | None:
        """The chunks of what had this fingerprint, if they are known."""
        return self._chunks.get(whole)

    def clear(self) -> None:
        """Forget everything."""
        self._chunks.clear()

"""Fingerprints: xxh3-64 of a byte range, as 16 hex digits.

xxh3 is sensitive to position within the range, so two pages with the same bytes in another
order differ. https://github.com/Cyan4973/xxHash (XXH3_64bits, seed 0).
"""

from __future__ import annotations

from typing import Any

import xxhash


def fingerprint(data: Any) -> str:
    """The fingerprint of `data`, any C-contiguous buffer."""
    return xxhash.xxh3_64_hexdigest(data)

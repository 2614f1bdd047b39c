"""Whose bytes are in a page: each run of chunks goes back to the write that posted such bytes.

The dictionary is everything that was ever posted, by chunk (`posted`, its `chunks`), and the epoch's
pattern (`pool`). What a wrong page held is there by its own fingerprint: somebody posted just that, or
its reader took it apart (`chunks`). No layout of an engine is known here, so the same holds for real
KV. A chunk in which two writers met has bytes of both and is nobody's: the limit of what can be told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from racelab.evidence.events import Event
from racelab.evidence.fingerprint import CHUNK_BYTES, split
from racelab.evidence.history import History
from racelab.evidence.naming import attempt_name
from racelab.evidence.writes import Write, Writes

Source = Literal["write", "pattern", "local", "unknown"]

NOBODY = "never seen"


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of bytes [start, end) of a page's layer that came from one place.

    From a `write`: whose it is, its generation, layer, rank and chunk of the prompt, and the offset of
    these bytes within it. From the epoch's `pattern`: nobody ever wrote there. `local`: the instance's own
    work left them, `write` is what that was called. `unknown`: nobody posted such bytes.
    """

    bytes: tuple[int, int]
    source: Source
    write: str | None = None
    request: str | None = None
    attempt: int | None = None
    gen: int | None = None
    layer: int | None = None
    rank: int | None = None
    stream: str | None = None
    chunk: int | None = None
    offset: int | None = None

    @property
    def writer(self) -> str | None:
        """`r1 attempt 1 gen 1`, or None if it is no write's."""
        return attempt_name(self.request, self.attempt, self.gen) if self.source == "write" else None

    def in_words(self) -> str:
        """`bytes 0-24575 are r1 attempt 1 gen 1's (layer 0, chunk 0, write w1-1)`: first and last byte."""
        start, end = self.bytes
        place = f"bytes {start}-{end - 1} are"
        if self.source == "pattern":
            return f"{place} as this run found them: nobody wrote there"
        if self.source == "local":
            whose = attempt_name(self.request, self.attempt)
            return f"{place} what this instance's own work left there ({self.write} for {whose})"
        if self.source == "unknown":
            return f"{place} {NOBODY}: nobody posted them"
        shifted = f", from its byte {self.offset} on" if self.offset != start else ""
        share = f"{self.stream}, " if self.stream is not None else ""
        share += f"rank {self.rank}, " if self.rank is not None else ""
        return f"{place} {self.writer}'s ({share}layer {self.layer}, chunk {self.chunk}, write {self.write}{shifted})"


class Place(NamedTuple):
    """Bytes [start, end) of a page's layer as somebody saw them."""

    event: Event
    page: int
    layer: int
    start: int
    end: int
    fingerprint: str


class Provenance:
    """Attributes what was seen. `history.derived(Provenance)` gives the shared one."""

    def __init__(self, history: History) -> None:
        self._before = history.causality.before
        self._posted: dict[str, list[tuple[Write, int]]] = defaultdict(list)
        self._chunks: dict[str, list[str]] = {}
        self._patterns = {
            event.instance: split(event.data["pattern"]) for event in history.by_kind["pool"] if "pattern" in event.data
        }
        self._local = {
            (event.instance, chunk): event
            for event in history.by_kind["work-done"]
            for chunk in split(event.data.get("chunks", ""))
        }
        self._made = {(event.request, event.attempt): event for event in history.by_kind["referenced"]}
        for event in history.by_kind["chunks"]:
            self._chunks[event.data["fingerprint"]] = split(event.data["chunks"])
        for write in history.derived(Writes):
            self._add(write)

    def _add(self, write: Write) -> None:
        chunks = split(write.posted.data.get("chunks", ""))
        for index, chunk in enumerate(chunks):
            self._posted[chunk].append((write, index * CHUNK_BYTES))
        if chunks:
            self._chunks[write.fingerprint] = chunks

    def chunks(self, fingerprint: str) -> list[str]:
        """Of what consisted what was posted or seen under this fingerprint; empty if nobody took it apart."""
        return self._chunks.get(fingerprint, [])

    def differing(self, place: Place, source: str) -> tuple[int, int]:
        """From the first to the last byte that is not as under the fingerprint `source`, to a chunk; the whole place
        if that cannot be told."""
        seen, right = self.chunks(place.fingerprint), self.chunks(source)
        wrong = [index for index, (a, b) in enumerate(zip(seen, right, strict=False)) if a != b]
        if not wrong or len(seen) != len(right):
            return place.start, place.end
        first, end = wrong[0], wrong[-1] + 1
        return place.start + first * CHUNK_BYTES, min(place.start + end * CHUNK_BYTES, place.end)

    def parts(self, place: Place) -> list[Part]:
        """What was seen, run by run; empty if nobody took it apart: then the evidence is missing."""
        parts: list[Part] = []
        last: tuple[Write, int] | None = None
        for index, chunk in enumerate(self.chunks(place.fingerprint)):
            start = place.start + index * CHUNK_BYTES
            last = self._origin(place, chunk, start, last)
            part = self._part(place, chunk, start, last)
            if parts and _continues(parts[-1], part):
                parts[-1] = msgspec.structs.replace(parts[-1], bytes=(parts[-1].bytes[0], part.bytes[1]))
            else:
                parts.append(part)
        return parts

    def _origin(self, place: Place, chunk: str, start: int, last: tuple[Write, int] | None) -> tuple[Write, int] | None:
        """The write and the offset in it that such bytes come from.

        Among equals (prompts that start alike, a retry), the one that goes on with what stands before,
        then one that aims at this place, then the reader's own, then the latest.
        """
        known = [found for found in self._posted.get(chunk, ()) if not self._before(place.event, self._since(found[0]))]

        def rank(found: tuple[Write, int]) -> tuple[bool, bool, bool, bool, int]:
            write, offset = found
            posted = write.posted
            return (
                last is not None and found == (last[0], last[1] + CHUNK_BYTES),
                place.start + offset == start,
                (posted.page, write.layer) == (place.page, place.layer),
                (posted.request, posted.attempt) == (place.event.request, place.event.attempt),
                posted.hlc,
            )

        return max(known, key=rank, default=None)

    def _since(self, write: Write) -> Event:
        """Since when its bytes are anywhere: those of a read were computed before."""
        posted = write.posted
        return self._made.get((posted.request, posted.attempt), posted) if write.is_read else posted

    def _part(self, place: Place, chunk: str, start: int, origin: tuple[Write, int] | None) -> Part:
        reach = (start, min(start + CHUNK_BYTES, place.end))
        if origin is not None:
            write, offset = origin
            posted = write.posted
            return Part(
                bytes=reach,
                source="write",
                write=write.id,
                request=posted.request,
                attempt=posted.attempt,
                gen=posted.gen,
                layer=posted.data["layer"],
                rank=posted.data.get("rank"),
                stream=posted.data.get("stream"),
                chunk=posted.data["chunk"],
                offset=offset,
            )
        pattern = self._patterns.get(place.event.instance, [])
        index = start // CHUNK_BYTES
        untouched = index < len(pattern) and pattern[index] == chunk
        work = self._local.get((place.event.instance, chunk))
        if work is not None and not untouched and place.page in work.data.get("pages", ()):
            return Part(
                bytes=reach, source="local", write=work.data["what"], request=work.request, attempt=work.attempt
            )
        return Part(bytes=reach, source="pattern" if untouched else "unknown")


def _continues(before: Part, part: Part) -> bool:
    """Whether two parts that stand side by side are one."""
    if (before.source, before.write) != (part.source, part.write):
        return False
    return before.offset is None or part.offset == before.offset + part.bytes[0] - before.bytes[0]


def in_words(parts: Iterable[Part]) -> str:
    """Every part, in order."""
    return "; ".join(part.in_words() for part in parts)

"""What was read of the pages, and by whom: the fingerprints that `committed` and `read` carry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from checkers.memory import Memory
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.writes import Write, Writes

CONSUMING = ("committed", "read")


class Sight(NamedTuple):
    """One consumer's sight of bytes [start, end) of a page's layer."""

    event: Event
    page: int
    gen: int
    layer: int
    start: int
    end: int
    fingerprint: str


def consumptions(history: History) -> list[Event]:
    """Every event by which KV was consumed, in order. `history.derived(consumptions)` gives the shared list."""
    return history.of(*CONSUMING)


def sights(history: History) -> Iterator[Sight]:
    """Every fingerprint that a consumer took, in order."""
    for event in history.derived(consumptions):
        for page, gen, layer, start, end, fingerprint in event.data["fingerprints"]:
            yield Sight(event, page, gen, layer, start, end, fingerprint)


class SightsByPage:
    """Sights by instance, page and layer. `history.derived(SightsByPage)` gives the shared one."""

    def __init__(self, history: History) -> None:
        self._sights: dict[tuple[str, int, int], list[Sight]] = defaultdict(list)
        for sight in sights(history):
            self._sights[sight.event.instance, sight.page, sight.layer].append(sight)

    def of(self, instance: str, layer: int, page: int) -> list[Sight]:
        """Those of one page's layer, in order."""
        return self._sights.get((instance, page, layer), [])


Key = tuple[str | None, int | None, int | None, int | None, int]


def key_of(write: Write) -> Key:
    """Whose bytes a write brings, and where they belong: request, attempt, page, generation, layer."""
    posted = write.posted
    return posted.request, posted.attempt, posted.page, posted.gen, write.layer


class Sources:
    """Writes by the content that they bring. `history.derived(Sources)` gives the shared one."""

    def __init__(self, history: History) -> None:
        self._memory = history.derived(Memory)
        self._writes: dict[Key, list[Write]] = defaultdict(list)
        for write in history.derived(Writes):
            self._writes[key_of(write)].append(write)

    def of(self, sight: Sight) -> list[Write]:
        """The rightful writes of what was seen: the reader's own, into that generation of that page."""
        event = sight.event
        return self._writes.get((event.request, event.attempt, sight.page, sight.gen, sight.layer), [])

    def exactly(self, sight: Sight) -> list[Write]:
        """Those that brought exactly the range that was seen: only their fingerprints can be compared."""
        size = sight.end - sight.start
        return [write for write in self.of(sight) if write.bytes == size and self._starts_at(write) == sight.start]

    def _starts_at(self, write: Write) -> int | None:
        spans = self._memory.spans(write)
        return spans[0].start if len(spans) == 1 else None

"""What was read of the pages, and by whom: the fingerprints that `committed` and `read` carry."""

from __future__ import annotations

from collections import defaultdict
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


class SightsByPage:
    """Sights by instance, page and layer. `history.derived(SightsByPage)` gives the shared one."""

    def __init__(self, history: History) -> None:
        self._sights: dict[tuple[str, int, int], list[Sight]] = defaultdict(list)
        for event in history.derived(consumptions):
            for row in event.data["fingerprints"]:
                sight = Sight(event, *row)
                self._sights[event.instance, sight.page, sight.layer].append(sight)

    def of(self, instance: str, layer: int, page: int) -> list[Sight]:
        """Those of one page's layer, in order."""
        return self._sights.get((instance, page, layer), [])


Owned = tuple[str | None, int | None, int | None, int | None, int]
"""Request, attempt, page, generation, layer: whose bytes belong there."""

Content = tuple[str | None, int | None, int | None, int | None, int, int, int]
"""The same with the range [start, end) within the page's layer: one content key."""


class Sources:
    """Rightful writes by the content that they bring. `history.derived(Sources)` gives the shared one."""

    def __init__(self, history: History) -> None:
        self._owned: dict[Owned, list[Write]] = defaultdict(list)
        self.exact: dict[Content, list[Write]] = {}
        memory = history.derived(Memory)
        for write in history.derived(Writes):
            posted = write.posted
            owned = (posted.request, posted.attempt, posted.page, posted.gen, write.layer)
            self._owned[owned].append(write)
            spans = memory.spans(write)
            if len(spans) == 1:
                self.exact.setdefault((*owned, spans[0].start, spans[0].end), []).append(write)

    def of(self, sight: Sight) -> list[Write]:
        """The reader's own writes into what it saw, whatever part of it they cover."""
        event = sight.event
        return self._owned.get((event.request, event.attempt, sight.page, sight.gen, sight.layer), [])

"""What was read of the pages, and by whom: the fingerprints that `committed`, `published` and `read` carry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from checkers.ledger_view import Ledger
from checkers.memory import Memory
from checkers.references import Reader
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.writes import Write, Writes

CONSUMING = ("committed", "published", "read")
ARRIVED = ("committed", "published")
"""Those that say that the bytes are all there."""


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
        self._ledger = history.derived(Ledger)
        memory = history.derived(Memory)
        for write in history.derived(Writes):
            posted = write.posted
            owned = (posted.request, posted.attempt, posted.page, posted.gen, write.layer)
            self._owned[owned].append(write)
            spans = memory.spans(write)
            if len(spans) == 1:
                self.exact.setdefault((*owned, spans[0].start, spans[0].end), []).append(write)

    def of(self, sight: Sight) -> list[Write]:
        """The rightful writes into what a reader saw, whatever part of it they cover."""
        owner = self._owner(sight.event, sight.page, sight.gen)
        return self._owned.get((*owner, sight.page, sight.gen, sight.layer), [])

    def shared(self, event: Event, row: Sequence[Any]) -> list[Write] | None:
        """The writes that brought a published page's content to a reader that has a reference to it."""
        return self.exact.get((*self._owner(event, row[0], row[1]), *row[:5]))

    def _owner(self, event: Event, page: int, gen: int) -> Reader:
        """Whose writes fill the page: the reader's own, or those of whoever published it."""
        life = self._ledger.life(event.instance, page, gen)
        if life is not None and life.shared is not None and life.shared.held_at(event):
            return life.born.request, life.born.attempt
        return event.request, event.attempt

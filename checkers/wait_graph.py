"""Who waits for what at the end of a history, in words."""

from __future__ import annotations

from checkers.granted_writes import GrantedWrites
from checkers.ledger_view import Ledger
from checkers.lives import Life
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.writes import Write

SHOWN = 4
"""Edges of a kind that are spelt out; the rest are counted."""


class WaitGraph:
    """The edges that lead away from what is stuck: request -> pages -> grants -> writes."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._ledger = history.derived(Ledger)

    def of_request(self, submitted: Event) -> str:
        """What a request that is not over waits for."""
        attempt = (submitted.request, submitted.attempt)
        mine = [life for life in self._ledger if (life.born.request, life.born.attempt) == attempt and not life.ended]
        mine = [life for life in mine if life.instance == submitted.instance]
        if not mine:
            queued = [event for event in self._history.by_kind["queued"] if (event.request, event.attempt) == attempt]
            if not queued:
                return "it was never admitted"
            holders = [life for life in self._ledger if life.instance == submitted.instance and not life.ended]
            needs, free = queued[-1].data["needs"], queued[-1].data["free"]
            return f"it waits for {needs} pages ({free} free); " + _some([self.of_page(life) for life in holders])
        waits = [self.of_page(life) for life in mine if life.grants]
        return _some(waits) if waits else "it has its pages and waits for nothing that was seen"

    def of_page(self, life: Life | None) -> str:
        """Who holds a page, and which writes its grants wait for."""
        if life is None:
            return "a page that nobody took"
        held = f"page {life.page} gen {life.gen} is {life.state} of {life.owner}"
        waiting = [grant for grant in life.grants if grant.closed is None]
        if not waiting:
            return held
        granted = self._history.derived(GrantedWrites)
        writes = [
            _write(write)
            for grant in waiting
            for write in granted.of(life, grant)
            if not (write.fate == "landed" and write.succeeded)
        ]
        return f"{held}, whose grant waits for " + (_some(writes) if writes else "evidence that nobody sends")


def _write(write: Write) -> str:
    what = f"{'read' if write.is_read else 'write'} {write.id}"
    match write.fate:
        case "held":
            return f"{what}, held at the gate"
        case "lost":
            return f"{what}, lost"
        case "landed":
            return f"{what}, landed but never completed"
        case _:
            done = write.completed.data["status"] if write.completed is not None else "no completion"
            return f"{what} ({done})"


def _some(parts: list[str]) -> str:
    more = f" and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
    return "; ".join(parts[:SHOWN]) + more

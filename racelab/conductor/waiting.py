"""How a run waits: for events, for a system at rest, for time to pass. Nothing here sleeps to make an order.

A wait ends with its event, with a guard's refusal of that event, with a system at rest in which it cannot
come any more, or, if something hangs, at a bound that says what was waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from racelab.conductor.crew import Crew
from racelab.conductor.router import Router
from racelab.conductor.witness import Witness
from racelab.errors import LabError
from racelab.evidence.events import Event

AWAIT_BOUND_S = 20.0


@dataclass
class Outcome:
    """How a step ended: `met` by an event, `refused` by one, or not at all, and `why` in words."""

    state: str
    why: str
    by: Event | None = None


class Waiting:
    """The waits of one run."""

    def __init__(
        self, crew: Crew, witness: Witness, router: Router | None, *, real_clock: bool, stops_on_violation: bool
    ) -> None:
        self._crew = crew
        self._hub = crew.hub
        self._witness = witness
        self._router = router
        self._real_clock = real_clock
        self._next_due_ms: int | None = None
        """how long until a timer falls due somewhere, as the instances said when they last were at rest"""
        self.stops_on_violation = stops_on_violation
        self.refusals_before = 0
        """how many refusals there were when the system was last made to do something"""

    def until(
        self,
        found: Callable[[], Event | None],
        what: str,
        *,
        refused: Callable[[int, bool], Event | None] = lambda since, at_rest: None,
        at_rest_ends: bool = True,
    ) -> Outcome:
        deadline = time.monotonic() + AWAIT_BOUND_S
        while True:
            self._route()
            event = found()
            if event is not None:
                return Outcome("met", in_words(event), event)
            refusal = refused(self.refusals_before, False)
            if refusal is not None:
                return Outcome("refused", str(refusal.data["why"]), refusal)
            if self.violation() is not None:
                return Outcome("failed", f"halted: before {what}")
            if time.monotonic() > deadline:
                return Outcome("failed", f"hang: waited {AWAIT_BOUND_S:.0f} s for {what}")
            if not at_rest_ends or self._witness.flight.under_way:
                self._hub.pump(1.0)
            elif self.at_rest() and found() is None:
                if self._real_clock and self._next_due_ms is not None:
                    self._hub.pump(max(self._next_due_ms, 1) / 1000)  # a timer will fire by itself
                    continue
                earlier = refused(0, True)
                if earlier is not None:
                    return Outcome("refused", str(earlier.data["why"]), earlier)
                return Outcome("failed", f"starved: the system is at rest without {what}")

    def violation(self) -> Event | None:
        """The ledger violation that ends the schedule, if it is to end there."""
        noticed = self._witness.of("ledger-violation")
        return noticed[0] if self.stops_on_violation and noticed else None

    def at_rest(self) -> bool:
        """Ask every instance; the answer counts only if nothing was seen meanwhile."""
        seen = len(self._witness.events)
        answers = self._hub.call_all(self._crew.answering, "sync")
        busy = any(answer["busy"] for answer in answers.values())
        due = [answer["next_due_ms"] for answer in answers.values() if answer["next_due_ms"] is not None]
        self._next_due_ms = min(due, default=None)
        if busy and len(self._witness.events) == seen:
            self._hub.pump(0.001)
        return not busy and len(self._witness.events) == seen and not self._witness.flight.under_way

    def settle(self) -> None:
        """Wait until the system is at rest.

        Raises:
            LabError: it does not come to rest within the bound.
        """
        deadline = time.monotonic() + AWAIT_BOUND_S
        while self._route() or self._witness.flight.under_way or not self.at_rest():
            if time.monotonic() > deadline:
                moving = ", ".join(sorted(self._witness.flight.under_way)) or "an instance with work of its own"
                raise LabError(f"the system did not come to rest in {AWAIT_BOUND_S:.0f} s: {moving}")
            if self._witness.flight.under_way:
                self._hub.pump(1.0)

    def _fire(self, ms: int) -> int:
        self._next_due_ms = None
        return self._crew.pass_time(ms)

    def pass_time(self, ms: int, *, at_rest: bool = True) -> int:
        """Let time pass from one timer to the next: what each causes comes to rest before the next is due, and
        what the last one causes too, if asked. Returns how many fired."""
        fired = 0
        while ms > 0:
            step_ms = ms if self._next_due_ms is None else min(ms, max(self._next_due_ms, 1))
            ms -= step_ms
            count = self._fire(step_ms)
            fired += count
            if ms > 0 or (count and at_rest):
                self.settle()
        return fired

    def _route(self) -> bool:
        """Take on to decode what prefill has answered."""
        return self._router is not None and self._router.forward()


def in_words(event: Event) -> str:
    """`decode reported page-free r1 page 5 gen 1`."""
    subject = f" {event.request}" if event.request else ""
    page = f" page {event.page} gen {event.gen}" if event.page is not None else ""
    return f"{event.instance} reported {event.kind}{subject}{page}"

"""The holds of a schedule: gates armed for what they match, and let go of what they hold, which is seen to arrive."""

from __future__ import annotations

from typing import Any

from racelab.abilities import gate_for
from racelab.conductor.crew import Crew
from racelab.conductor.looks import Looks
from racelab.conductor.waiting import Outcome, Waiting
from racelab.conductor.witness import Witness
from racelab.delays import draws_seed
from racelab.evidence import batches
from racelab.evidence.events import Event
from racelab.gates import Injector
from racelab.lab.lab import Lab
from racelab.scenario import Scenario
from racelab.scenario.step_problems import posters
from racelab.scenario.steps import Armed, Arming, Delay

BEFORE = "before-release"
AFTER = "after-landing"
AWAIT_IT = ": 'await: {{event: held, hold: {}}}' before this step waits for it"
ARRIVED = ("landed", "torn", "unlanded", "delivered", "dropped", "work-done")


class Holds:
    """What is armed, which of it is `open` (not let go yet), and which landings nobody has looked at."""

    def __init__(
        self, lab: Lab, scenario: Scenario, seed: int, crew: Crew, witness: Witness, looks: Looks, waiting: Waiting
    ) -> None:
        self._lab = lab
        self._scenario = scenario
        self._seed = seed
        self._crew = crew
        self._witness = witness
        self._looks = looks
        self._waiting = waiting
        self.armed: dict[str, Arming] = scenario.holds()
        self.open: list[str] = []
        self._unlooked: list[str] = []

    def arm(self, step: Armed) -> Outcome:
        """Have a gate stop, change, copy or pass what it matches from now on."""
        match = {name: value for name, value in _fields(step).items() if value is not None}
        more: dict[str, Any] = {"action": step.action} if step.action != "hold" else {}
        more |= {"payload": step.payload} if step.payload is not None else {}
        if step.work is not None:
            self._lab.hub.call(step.work.on, "arm_work", hold=step.id, match=match, count=step.count)
            self.open.append(step.id)
            return Outcome("met", "the stream is armed")
        more |= {"ms": step.ms, "seed": draws_seed(self._seed, step.id)} if isinstance(step, Delay) else {}
        self._lab.hub.call(self._gate(step).name, "arm", hold=step.id, match=match, count=step.count, **more)
        if step.write is not None or self._scenario.notifies(step):
            for poster in posters(step, self._lab.engines):
                self._lab.hub.call(poster, "arm_lane", hold=step.id, match=match, count=step.count)
        self.open.append(step.id)
        return Outcome("met", "the gate is armed")

    def _gate(self, step: Armed) -> Injector:
        return gate_for(step, list(self._lab.gates.values()), notifies=self._scenario.notifies(step))

    def let_come(self, *holds: str) -> None:
        """Before holds of whatever comes are let go, and rules that let pass: what is under way to them arrives, and
        is seen to stop or to pass."""
        waited_for = [self.armed[hold] for hold in holds if hold in self.open]
        if any(step.action == "pass" or (not step.count and not step.goes_by_itself) for step in waited_for):
            self._waiting.settle()

    def let_go(self, hold: str, how: str, **change: int | str | None) -> Outcome:
        """End a hold: what it holds is released (perhaps with a change) or dropped, and has arrived when this returns.

        Nothing more stops under it. The receiver looks at the target of each held write before and after.
        """
        if hold not in self.open:
            return Outcome("failed", f"claim: {hold} has been let go already")
        self.open.remove(hold)
        step = self.armed[hold]
        held = [] if step.goes_by_itself else self._witness.held(hold)
        if step.work is not None:
            before = self._lab.hub.call(step.work.on, "release_work", hold=hold)
            if before is not None:
                return Outcome("failed", f"claim: {hold} is queued behind {before}")
            return self._see_arrive(hold) if held else self._too_early(hold)
        if step.write is not None or self._scenario.notifies(step):
            for poster in posters(step, self._lab.engines):
                self._crew.ask(poster, "disarm_lane", hold=hold)
        if step.write is not None:
            self._looks.look(held, BEFORE)
        wanted: dict[str, Any] = {name: value for name, value in change.items() if value is not None}
        self._lab.hub.call(self._gate(step).name, how, hold=hold, **wanted)
        if step.goes_by_itself:
            return Outcome("met", "nothing more is watched for; what is under way goes on")
        if not held and not step.count:
            return Outcome("met", f"nothing came that {hold} could have stopped")
        if not held:
            return self._too_early(hold)
        standing = self._looks.receivers(held) & self._crew.stopped.keys() if step.write is not None else set()
        if standing:
            self._unlooked.append(hold)
            if not self._witness.flight.one_sided:
                return Outcome("met", f"it is in the sockets of {min(standing)}, which is stopped")
        outcome = self._see_arrive(hold)
        if step.write is not None:
            self._looks.look(held, AFTER)
        return outcome

    def _too_early(self, hold: str) -> Outcome:
        return Outcome("failed", f"claim: nothing was held under {hold} yet{AWAIT_IT.format(hold)}")

    def _see_arrive(self, hold: str) -> Outcome:
        waiting = {event.data["what"] for event in self._witness.held(hold)}
        step = self.armed[hold]
        ends = ("told",) if step.action == "lose-completion" else ARRIVED

        def arrived() -> Event | None:
            # a read is there once its reader says so: no gate can know
            if step.reads and waiting & self._witness.flight.under_way:
                return None
            return self._last(hold, ends) if waiting <= self._witness.gone(hold, ends) else None

        return self._waiting.until(
            arrived,
            f"what {hold} held to arrive",
            at_rest_ends=False,
        )

    def _last(self, hold: str, kinds: tuple[str, ...]) -> Event:
        return max(
            (event for kind in kinds for event in self._witness.of(kind) if event.data["hold"] == hold),
            key=lambda event: event.hlc,
        )

    def nth_held(self, hold: str) -> Event | None:
        """The last that a hold asked for, once it has stopped."""
        step = self.armed[hold]
        held = self._witness.held(hold)
        return batches.nth(held, step.count) if step.batches else nth(held, step.count)

    def look_before_standstill(self) -> None:
        """Decode looks at what is held for it: once it stands still it cannot."""
        for hold in self.open:
            self._looks.look([event for event in self._witness.held(hold) if event.page is not None], BEFORE)

    def look_after_standstill(self) -> None:
        """What was let go while decode stood still arrives, and is looked at."""
        unlooked, self._unlooked = self._unlooked, []
        for hold in unlooked:
            held = self._witness.held(hold)
            self._see_arrive(hold)
            self._looks.look(held, AFTER)


def _fields(step: Armed) -> dict[str, object]:
    match = step.match
    assert match is not None
    return {name: getattr(match, name) for name in match.__struct_fields__}


def nth(events: list[Event], count: int) -> Event | None:
    """The one of this number, counted from 1, if there are so many."""
    return events[count - 1] if len(events) >= count else None

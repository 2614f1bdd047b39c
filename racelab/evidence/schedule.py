"""The schedule as it was carried out: which steps were issued and done, and what stopped it."""

from __future__ import annotations

from dataclasses import dataclass

from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.scenario.steps import Drop, Release, Reset, Step


@dataclass(frozen=True)
class Issued:
    """A step, or the phase that stands for it, from its start to its end."""

    issued: Event
    done: Event | None
    step: Step | None


class Schedule:
    """`history.derived(Schedule)` gives the shared one."""

    def __init__(self, history: History) -> None:
        self.steps = self._steps(history)
        self.phases = list(history.by_kind["phase"])
        blocked = history.by_kind["blocked"]
        gave_up = history.by_kind["gave-up"]
        self.blocked = blocked[0] if blocked else None
        self.gave_up = gave_up[0] if gave_up else None
        self.halted = next(iter(history.by_kind["halted"]), None)

    @staticmethod
    def _steps(history: History) -> list[Issued]:
        """Steps are numbered from the first one issued."""
        issued = history.by_kind["step"]
        if not issued:
            return []
        done = {event.data["n"]: event for event in history.by_kind["step-done"]}
        first = min(event.data["n"] for event in issued)
        steps = history.header.scenario.steps
        return [
            Issued(event, done.get(event.data["n"]), steps[index] if index < len(steps) else None)
            for event in issued
            for index in [event.data["n"] - first]
        ]

    @property
    def stopped(self) -> Event | None:
        """What ended the schedule before its last step."""
        return self.blocked or self.gave_up or self.halted

    @property
    def complete(self) -> bool:
        """Whether every issued step is over."""
        return all(step.done is not None for step in self.steps)

    def step(self, n: int) -> Step | None:
        """The scenario's step that was issued under this number."""
        return next((step.step for step in self.steps if step.issued.data["n"] == n), None)

    def reached(self, phase: str) -> bool:
        """Whether the conductor entered a phase."""
        return any(event.data["phase"] == phase for event in self.phases)

    def let_go(self, hold: str, going: Event) -> Issued | None:
        """What made a held thing go: the latest release or drop step before it, or the release phase."""
        candidates = [
            step for step in self.steps if isinstance(step.step, Release | Drop | Reset) and step.step.hold == hold
        ]
        for index, event in enumerate(self.phases):
            if event.data["phase"] == "release":
                after = self.phases[index + 1] if index + 1 < len(self.phases) else None
                candidates.append(Issued(event, after, None))
        earlier = [candidate for candidate in candidates if candidate.issued.hlc < going.hlc]
        return earlier[-1] if earlier else None

    def resets(self, hold: str) -> bool:
        """Whether a step that resets the connections of what is held was issued."""
        return any(isinstance(step.step, Reset) and step.step.hold == hold for step in self.steps)

    def drops(self, hold: str) -> bool:
        """Whether a step that loses what is held was issued."""
        return any(isinstance(step.step, Drop) and step.step.hold == hold for step in self.steps)

"""The scenario: a schedule that a person can read aloud, the lab it needs, and what is expected of it."""

from __future__ import annotations

import itertools
from typing import Literal

import msgspec

from racelab.scenario import matches
from racelab.scenario.lab import Lab
from racelab.scenario.request import Request
from racelab.scenario.steps import Armed, Arming, ProcessStep, Release, Step, verb

SPECIFICATIONS = ("isolation", "integrity", "finality", "conservation")
Specification = Literal["isolation", "integrity", "finality", "conservation"]
VERDICTS = ("reproduced", "moved", "prevented", "not-reproduced", "diverged", "inconclusive")
Expected = Literal["reproduced", "moved", "prevented", "not-reproduced"]

PROBE = "probe"
"""The request that the conductor submits after the drain; no scenario may use the name."""


class Origin(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The counterexample that a scenario came from."""

    trace: str
    module: str
    property: str
    binding: str


class Scenario(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """One schedule with everything that a run of it needs."""

    scenario: str
    about: str
    spec: Specification | None = None
    guard: str | None = None
    race: str | None = None
    """the class of races that it is of (racelab.races)"""
    victim: str | None = None
    origin: Origin | None = None
    sources: list[str] = []
    lab: Lab = Lab()
    requests: dict[str, Request]
    steps: list[Step]
    finality_ms: int | None = None
    """within which time after the schedule everything has to be over, on the virtual clock"""
    expected: dict[str, Expected] = {}
    """by policy; `ledger less GUARD` where the removal of another guard than its own changes the verdict,
    `POLICY CONTROL` where a control is not clean (racelab.campaign.controls)"""

    def holds(self) -> dict[str, Arming]:
        """Every step that arms a gate, by its id."""
        return {step.id: step for step in self.steps if isinstance(step, Armed)}

    def notifies(self, step: Armed) -> bool:
        """Whether a step is about notifications of the transport, and not about the bus."""
        return step.message is not None and step.message.type == matches.NEWS and self.lab.news == "notify"

    def timeout_ms(self, request: str) -> int | None:
        """How long the client of a request waits, on the virtual clock; None if it does so for ever."""
        own = self.requests[request].timeout_ms if request in self.requests else None
        return self.lab.request_timeout_ms if own is None else own

    @property
    def bound_ms(self) -> int:
        """How long after the schedule everything is over: as stated, or as the timers of this lab have it."""
        if self.finality_ms is not None:
            return self.finality_ms
        waits = [self.lab.request_timeout_ms, *(self.timeout_ms(request) for request in self.requests)]
        patience_ms = max(self.lab.receive_timeout_ms if wait is None else wait for wait in waits)
        return patience_ms + self.lab.drain_timeout_ms + (self.lab.lease_ms if self.lab.transfer == "pull" else 0)

    def process_faults(self) -> dict[str, ProcessStep]:
        """Every step that acts on a process by its id: `stop-prefill`, then `stop-prefill-2`."""
        faults: dict[str, ProcessStep] = {}
        for step in self.steps:
            if isinstance(step, ProcessStep):
                name = f"{verb(step)}-{step.instance}"
                numbered = (f"{name}-{number}" for number in itertools.count(2))
                faults[next(each for each in itertools.chain([name], numbered) if each not in faults)] = step
        return faults

    def corrupted(self, hold: str) -> int | None:
        """Which byte of what is held under `hold` is changed when it is released, if one is."""
        return self._release(hold).corrupt

    def torn(self, hold: str) -> int | None:
        """After how many bytes what is held under `hold` breaks off when it is released, if it does."""
        return self._release(hold).tear

    def reversed(self, hold: str) -> bool:
        """Whether what stops last under `hold` goes first when it is released."""
        return self._release(hold).order == "reversed"

    def _release(self, hold: str) -> Release:
        steps = (step for step in self.steps if isinstance(step, Release) and step.hold == hold)
        return next(steps, Release(hold=hold))

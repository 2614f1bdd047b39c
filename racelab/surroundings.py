"""What a scenario file names and does not have itself: guards, policies, and what the gates of a cluster can do.

Checked while the file is read, so that everything that is wrong in it is one list.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from racelab import abilities
from racelab.campaign.controls import CONTROLS
from racelab.documents import Document, nearest
from racelab.gates import Injector
from racelab.lab.cluster import Cluster
from racelab.scenario import Lab, Placed, Scenario
from racelab.scenario.steps import Armed, Await, ProcessStep
from racelab.targets.target import Target

LESS = " less "
"""In a key of `expected`, between a policy and the guards that are taken away."""

KEYS = (
    "; one of your own is known where its file is given with --policy"
    f"; a key is POLICY, 'POLICY{LESS}GUARD' or 'POLICY {CONTROLS[0]}'"
)


class Here:
    """A target with its policies, a user's own among them, and the gates of a cluster if it is known by now."""

    def __init__(self, system: Target, cluster: Cluster | None = None) -> None:
        self._system = system
        self._gates = abilities.gates_of(system, cluster) if cluster is not None else None

    def check(self, document: Document, data: dict[str, Any], lab: Lab, steps: list[Placed]) -> None:
        """Note in the document what it names and is not here."""
        known = self._system.guards_known
        guard = data.get("guard")
        if known and isinstance(guard, str) and guard not in known:
            document.problem(f"no guard {guard!r}{nearest(guard, list(known))}", "guard")
        expected = data.get("expected")
        if self._system.policies and isinstance(expected, dict):
            for key in expected:
                for problem in self._unexpected(key):
                    document.problem(f"expected: {problem}", "expected", key)
        for step, place in steps:
            if isinstance(step, Await) and step.event in self._system.unreported:
                document.problem(f"target {self._system.name} does not report {step.event!r}", *place)
        if self._gates is not None:
            self._check_gates(document, lab, steps, self._gates)

    def _unexpected(self, key: str) -> Iterator[str]:
        """What is wrong with a key of `expected`: POLICY, `POLICY less GUARD, GUARD` or `POLICY CONTROL`."""
        policy, less, guards = key.partition(LESS)
        control = policy.rpartition(" ")[2]
        if not less and control in CONTROLS:
            policy = policy.removesuffix(f" {control}")
        policies = self._system.policies
        if policy not in policies:
            near = nearest(policy, list(policies))
            yield f"no policy {policy!r}{near}" if "did you mean" in near else f"no policy {policy!r}{near}{KEYS}"
            return
        for guard in guards.split(", ") if less else ():
            if guard not in policies[policy]:
                yield f"policy {policy!r} has no guard {guard!r}{nearest(guard, list(policies[policy]))}"

    def _check_gates(self, document: Document, lab: Lab, steps: list[Placed], gates: list[Injector]) -> None:
        placed = [(step, place) for step, place in steps if step is not None]
        asked = Scenario(scenario="", about="", lab=lab, requests={}, steps=[step for step, _ in placed])
        places = {step.id: place for step, place in placed if isinstance(step, Armed)}
        faults = asked.process_faults()
        places |= dict(zip(faults, (place for step, place in placed if isinstance(step, ProcessStep)), strict=True))
        for name, error in abilities.impossible(asked, gates):
            document.problem(f"{error.what}: {error.next}", *places[name])

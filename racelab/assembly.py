"""The one place that puts a run together: scenario, lab, conductor, checkers, verdict.

Workbench (a warm lab) -> play (one run) -> judged; racelab.orders keeps what that leaves
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from racelab import registry
from racelab.abilities import check_mechanisms, gates_of
from racelab.conductor.conductor import Conductor, Recording, probe_request
from racelab.errors import LabError, UsageError
from racelab.evidence.events import Event
from racelab.evidence.history import Header, History
from racelab.evidence.result import Checker
from racelab.lab.cluster import Cluster
from racelab.lab.lab import Lab
from racelab.scenario import PROBE, Request, Scenario
from racelab.scenario import Lab as Shape
from racelab.scenario.steps import Await, Step, Submit
from racelab.targets.target import Target
from racelab.transport.softhca import SIMULATED
from racelab.verdict import Verdict, judge
from racelab.vm import users

Observe = Callable[[Event], None]


@dataclass(frozen=True)
class Order:
    """What is asked of a run: a scenario under a policy, less some guards."""

    scenario: Scenario
    policy: str
    without: tuple[str, ...] = ()
    runs: int = 1
    seed: int = 0
    glue_fault: str | None = None
    """a known fault between the engine and its ledger to switch on"""
    stop_on_violation: bool = False
    """whether a schedule ends, and no further run begins, at the first violated precondition of the ledger"""
    replay: str = ""
    """the command that plays the same again"""

    @property
    def expected(self) -> str | None:
        """What the scenario says of this policy. Without the scenario's own guard it must reproduce; the
        removal of another one changes nothing, unless the scenario says so."""
        said = self.scenario.expected
        less = f"{self.policy} less {', '.join(self.without)}"
        if not self.without or less in said:
            return said.get(less if self.without else self.policy)
        return "reproduced" if self.scenario.guard in self.without else said.get(self.policy)


@dataclass
class Played:
    """One run, judged."""

    history: History
    verdict: Verdict
    failure: LabError | None
    seconds: float


class Prepared(NamedTuple):
    """Of an order: what its gates can do, its guards, and what each request answers alone."""

    mechanisms: dict[str, dict[str, Any]]
    guards: list[str]
    solo: dict[str, list[int]]


class Workbench:
    """A warm lab and what is needed to play orders on it. Use `open_workbench`."""

    def __init__(self, cluster: Cluster, target: Target, logs: Path) -> None:
        self.cluster = cluster
        self.target = target
        self.injectors = gates_of(target, cluster)
        self.checkers: Mapping[str, Checker] = registry.checkers()
        self._logs = logs
        self._lab: Lab | None = None
        self._solo: dict[tuple[Any, ...], list[int]] = {}
        self._ready: tuple[Order, Prepared] | None = None

    # -- the lab

    @property
    def lab(self) -> Lab:
        """The running lab, started when it is first needed and again after a failure."""
        if self._lab is None:
            self._lab = Lab(self.cluster, self.target, self.injectors, self._logs).__enter__()
            gc.freeze()  # what Ray and the rest have loaded stays; collections need not look at it again
        return self._lab

    def close(self) -> None:
        """End the lab."""
        if self._lab is not None:
            lab, self._lab = self._lab, None
            lab.close()

    # -- one run

    def play(self, order: Order, observe: Observe = lambda event: None, *, drain_first: bool = False) -> Played:
        """Play an order once and judge it."""
        mechanisms, guards, solo = self._prepared(order)
        started = time.monotonic()
        conductor = Conductor(
            self.lab,
            order.scenario,
            guards,
            seed=order.seed,
            drain_first=drain_first,
            glue_fault=order.glue_fault,
            stop_on_violation=order.stop_on_violation,
            solo=solo,
            observe=observe,
        )
        recording = self._conduct(conductor)
        header = Header(
            scenario=order.scenario,
            target=self.target.name,
            policy=order.policy,
            guards=guards,
            without=list(order.without),
            glue_fault=order.glue_fault,
            cluster=self.cluster.cluster,
            transport=self.cluster.transport,
            simulated=self._simulated(order.scenario),
            machine=self.cluster.machine_in_words,
            shortened=self.cluster.shortened,
            unreported=list(self.target.unreported),
            seed=order.seed,
            expected=order.expected,
            solo=stopped(order.scenario, solo),
            mechanisms=mechanisms,
        )
        history = History(header, recording.events)
        verdict = judge(history, self.checkers)
        header.certificates = [certificate.to_json() for certificate in verdict.injections]
        return Played(history, verdict, recording.failure, time.monotonic() - started)

    def _simulated(self, wanted: Scenario) -> str | None:
        """What stands in for hardware: the cluster's, and that of the streams whose work is held."""
        parts = [SIMULATED] if self.cluster.simulated else []
        if any(hold.work is not None for hold in wanted.holds().values()):
            parts += [each.simulates for each in self.injectors if each.simulates is not None]
        return "; ".join(parts) or None

    def _prepared(self, order: Order) -> Prepared:
        """What an order needs before each of its runs, worked out before the first."""
        if self._ready is None or self._ready[0] != order:
            self.cluster.check_room(order.scenario.lab.instances)
            mechanisms = check_mechanisms(order.scenario, self.injectors)
            guards = self.target.guards(order.policy, order.without)
            self._ready = order, Prepared(mechanisms, guards, self._solo_tokens(order))
        return self._ready[1]

    def _conduct(self, conductor: Conductor) -> Recording:
        """One run; a lab that failed is ended, and one that may not be clean is replaced."""
        try:
            recording = conductor.run()
        except BaseException:
            self.close()
            raise
        if recording.failure is not None:
            self.close()
        elif _leaves_doubt(recording) or self.lab.is_worn:
            self.lab.renew()
        return recording

    def _solo_tokens(self, order: Order) -> dict[str, list[int]]:
        """What each request answers alone, on this lab, with every guard, and no prefix cache, fault or stop token."""
        wanted = order.scenario
        requests = {name: msgspec.structs.replace(one, stop_at=None) for name, one in wanted.requests.items()}
        requests |= {PROBE: probe_request(wanted)}
        lab = msgspec.structs.replace(wanted.lab, prefix_cache=False, prefill_token_limit=None)
        keys = {name: (request.salt or name, request, lab, order.seed) for name, request in requests.items()}
        unknown = [name for name in requests if keys[name] not in self._solo]
        if unknown:
            alone = {name: requests[name] for name in unknown}
            answers = self._one_after_another(f"{wanted.scenario}-alone", alone, lab, order.seed)
            self._solo |= {keys[name]: answers[name] for name in unknown}
        return {name: self._solo[key] for name, key in keys.items()}

    def _one_after_another(
        self, name: str, requests: dict[str, Request], lab: Shape, seed: int
    ) -> dict[str, list[int]]:
        """What requests answer when each is served by itself; the probe follows every schedule anyway."""
        served = [request for request in requests if request != PROBE]
        steps: list[Step] = [step for request in served for step in (Submit(request=request), _finished(request))]
        alone = Scenario(scenario=name, about="No two at once, no fault.", lab=lab, requests=requests, steps=steps)
        every_guard = max(self.target.policies.values(), key=len)
        recording = self._conduct(Conductor(self.lab, alone, list(every_guard), seed=seed))
        if recording.failure is not None:
            raise recording.failure
        answers = {event.request: event.data["tokens"] for event in recording.events if event.kind == "finished"}
        silent = [request for request in requests if request not in answers]
        if silent:
            raise LabError(f"{silent[0]} alone did not answer", next="run scenarios/clean-serving.yaml")
        return {request: answers[request] for request in requests}


def stopped(wanted: Scenario, solo: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """What requests answer alone with their stop tokens.

    Raises:
        UsageError: the token that is to stop a request comes earlier in its answer, and would stop it there.
    """
    answers = dict(solo)
    for name, request in wanted.requests.items():
        if request.stop_at is None:
            continue
        first = solo[name].index(solo[name][request.stop_at])
        if first != request.stop_at:
            raise UsageError(
                f"{name}: its token {request.stop_at} comes as its token {first} already, and would stop it there",
                next="give the request another salt, or run with another seed",
            )
        answers[name] = solo[name][: first + 1]
    return answers


def _finished(request: str) -> Await:
    return Await(event="finished", request=request)


def _leaves_doubt(recording: Recording) -> bool:
    """Whether a transport error, a leftover or a foreign byte makes the instances unfit for reuse."""
    for event in recording.events:
        if event.kind == "completed" and event.data["status"] != "ok":
            return True
        if event.kind == "work-request" and event.data["status"]:
            return True  # the transport may have mended it, and remembers which rail failed
        if event.kind == "quiesced" and event.data["leftovers"].get("writes"):
            return True  # what else is left is the engine's own, and the next incarnation has another engine
        if event.kind == "scan" and event.data["foreign"]:
            return True
    return False


@contextmanager
def open_workbench(cluster: Cluster, target: Target, logs: Path) -> Iterator[Workbench]:
    """A workbench whose lab is ended at the end of the block, whatever happens in it."""
    bench = Workbench(cluster, target, logs)
    with users.using() if cluster.machine else nullcontext():
        try:
            yield bench
        finally:
            bench.close()

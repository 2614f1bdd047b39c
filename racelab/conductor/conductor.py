"""The conductor: plays a scenario's steps on a lab, lets everything finish, and keeps what was seen.

    schedule -> (blocked by a guard? the rest goes on as the aftermath) -> release what is held
    -> drain, past every time-out -> probe -> the books at rest

No step waits for time (racelab.conductor.waiting).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from racelab.conductor.crew import Crew
from racelab.conductor.holds import Holds, nth
from racelab.conductor.looks import Looks
from racelab.conductor.places import Places
from racelab.conductor.router import Router
from racelab.conductor.waiting import Outcome, Waiting
from racelab.conductor.witness import Witness
from racelab.errors import LabError, PeerDiedError
from racelab.evidence.events import Event
from racelab.instances import role_of
from racelab.lab.lab import Lab
from racelab.scenario import PROBE, Request, Scenario
from racelab.scenario.steps import (
    REST,
    Abort,
    Advance,
    Armed,
    Await,
    Continue,
    Drop,
    Expect,
    Kill,
    ProcessStep,
    Release,
    Reset,
    Restart,
    Retract,
    Retry,
    Step,
    Stop,
    Submit,
    Unmap,
    Unregister,
    read_aloud,
    verb,
)

_ACTS = (
    *(Submit, Abort, Retry, Retract, Advance, Release, Drop, Reset),
    *(Stop, Continue, Kill, Restart, Unregister, Unmap),
)
"""Steps that make the system do something: a refusal that ends an await came after the last of them,
or, if the system rests without one, at any time before."""
WAITS = "it is stopped, and takes it when it goes on"
AFTERWARDS = ""
"""The fault of a process that goes on or comes again because the schedule is over."""


@dataclass
class Recording:
    """What one run left: its events, and the lab's failure if there was one."""

    events: list[Event] = field(default_factory=list)
    failure: LabError | None = None


class Conductor:
    """One run of one scenario under one set of guards."""

    def __init__(
        self,
        lab: Lab,
        scenario: Scenario,
        guards: list[str],
        *,
        seed: int = 0,
        drain_first: bool = False,
        glue_fault: str | None = None,
        stop_on_violation: bool = False,
        solo: Mapping[str, list[int]] | None = None,
        observe: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.lab = lab
        self.hub = lab.hub
        self.scenario = scenario
        self.guards = guards
        self.seed = seed
        self.drain_first = drain_first
        self.glue_fault = glue_fault
        self.solo = solo or {}
        self.witness = Witness(observe, one_sided=lab.cluster.transport == "rdma")
        self.crew = Crew(lab, self.witness, real_clock=scenario.lab.clock == "real")
        self._faults = iter(scenario.process_faults())
        self.router = Router(self.crew, self.witness) if scenario.lab.transfer == "pull" else None
        self.places = Places(self.router)
        self.looks = Looks(self.crew, self.witness, scenario.lab)
        self.waiting = Waiting(
            self.crew,
            self.witness,
            self.router,
            real_clock=scenario.lab.clock == "real",
            stops_on_violation=stop_on_violation,
        )
        self.holds = Holds(lab, scenario, seed, self.crew, self.witness, self.looks, self.waiting)
        self._blocked = False

    def run(self) -> Recording:
        """Play everything. A lab failure ends the run early and is kept beside what was seen."""
        recording = Recording(self.witness.events)
        self.hub.on_event = self.witness.see
        self.lab.recorder.sink = self.witness.see
        try:
            self._play()
        except LabError as error:
            recording.failure = error
            peer = error.peer if isinstance(error, PeerDiedError) else "lab"
            self._record("died", peer=peer, doing=self.hub.doing)
        finally:
            self.hub.on_event = lambda event: None
            self.lab.recorder.sink = None
        return recording

    def _play(self) -> None:
        self.hub.doing = "the reset before the run"
        self.lab.reset(self.scenario.lab, self.guards, self.seed, self.glue_fault)
        self._record("run-started", run=self.lab.incarnation, seed=self.seed, guards=self.guards)
        self._phase("schedule")
        for number, step in enumerate(self.scenario.steps, 1):
            if not self._take(number, step):
                break
        self.holds.let_come(*self.holds.open)
        self._phase("release")
        for name in list(self.crew.stopped):
            self._go_on(name, AFTERWARDS)
        for hold in list(self.holds.open):
            self.holds.let_go(hold, "drop" if self.holds.armed[hold].action == "half-open" else "release")
        self._phase("drain")
        self.waiting.settle()
        self.waiting.pass_time(self.scenario.bound_ms)
        if self.witness.of("killed"):  # who has not heard of a death keeps what it has for the dead one as long as this
            self.waiting.pass_time(self.scenario.lab.source_hold_ms + self.scenario.lab.drain_timeout_ms)
        self._phase("probe")
        for name in list(self.crew.dead):
            self._restart(name, AFTERWARDS)
        self.crew.register_again()
        self._send_in(PROBE, probe_request(self.scenario))
        self.waiting.settle()
        if not self.witness.ended(PROBE):  # starved, by quarantine say: its own time-out ends it
            self.waiting.pass_time(self.scenario.lab.request_timeout_ms or self.scenario.bound_ms)
        self._phase("judge")
        for name, fingerprints in self.witness.unposted().items():
            self.hub.call(name, "dissect", fingerprints=fingerprints)
        asked = [(name, self.hub.send(name, "quiesce"), "quiesce") for name in self.lab.engines]
        asked += [(name, self.hub.send(name, "count"), "count") for name in self.lab.gates]
        for name, identity, command in asked:
            self.hub.collect(identity, name, command)

    # -- steps

    def _take(self, number: int, step: Step) -> bool:
        """Play one step; False if the schedule cannot go on."""
        text = read_aloud(step)
        self.hub.doing = f"step {number} ({text})"
        if isinstance(step, Release | Drop | Reset):
            self.holds.let_come(step.hold)
        self._record("step", n=number, verb=verb(step), text=text)
        if isinstance(step, _ACTS):
            self.waiting.refusals_before = len(self.witness.of("refused"))
        outcome = self._do(step)
        violation = self.waiting.violation()
        if violation is not None:
            self.waiting.stops_on_violation = False  # the rest of the run goes on as after every schedule
            self._record("halted", n=number, by=[violation.instance, violation.seq])
            return False
        by = [outcome.by.instance, outcome.by.seq] if outcome.by is not None else None
        if outcome.state == "refused" and not self._blocked:
            assert outcome.by is not None
            self._blocked = True
            self._record("blocked", n=number, guard=outcome.by.data["guard"], by=by)
            self._phase("aftermath")
            if self.drain_first:
                self.waiting.settle()
                self.waiting.pass_time(self.scenario.lab.drain_timeout_ms)
        elif outcome.state == "failed" and not self._blocked:
            reason, _, what = outcome.why.partition(": ")
            self._record("gave-up", n=number, why=reason, what=what)
            return False
        self._record("step-done", n=number, why=outcome.why, by=by)
        return True

    def _do(self, step: Step) -> Outcome:
        match step:
            case Submit():
                return self._submit(step)
            case Abort():
                return self._abort(step)
            case Retry():
                return self._retry(step)
            case Retract():
                return self._retract(step.request)
            case Advance():
                return self._advance(step.ms)
            case Armed():
                return self.holds.arm(step)
            case Release():
                return self.holds.let_go(step.hold, "release", corrupt=step.corrupt, tear=step.tear, order=step.order)
            case Drop():
                return self.holds.let_go(step.hold, "drop")
            case Reset():
                return self.holds.let_go(step.hold, "reset_connections")
            case Await():
                return self._await(step)
            case Expect():
                return self._claim(step)
            case Stop() | Continue() | Kill() | Restart() | Unregister() | Unmap():
                return self._act_on_process(step, next(self._faults))

    def _submit(self, step: Submit) -> Outcome:
        name, request = step.request, self.scenario.requests[step.request]
        if not self.witness.ended(name):
            return Outcome("failed", f"claim: {name} is being served already")
        return self._send_in(name, request, step)

    def _send_in(self, name: str, request: Request, step: Submit | None = None) -> Outcome:
        """A client sends a request, as the step says if there is one."""
        sizes: dict[str, Any] = {"prompt_tokens": request.prompt_tokens, "new_tokens": request.new_tokens}
        if request.prefix is not None:
            sizes |= {"prefix": request.prefix, "prefix_tokens": request.prefix_tokens}
        if request.timeout_ms is not None:
            sizes["timeout_ms"] = request.timeout_ms
        if request.stop_at is not None:
            sizes["stop_token"] = self.solo[name][request.stop_at]
        attempt = self.witness.attempts(name) + 1
        sizes["salt"] = request.salt or name
        reference_of = step.reference_of if step is not None else None
        sent = self.places.send(name, step, sizes)
        if self.router is not None and reference_of is None:
            taken = self.router.submit(name, attempt, sizes, sent)
            return Outcome("met", f"{sent.prefill} took it as attempt {attempt}" if taken else WAITS)
        if self.router is not None and reference_of is not None:
            presented = self.router.present(name, attempt, sizes, reference_of, sent)
            if presented is None:
                return Outcome("failed", f"claim: no reference was made for {reference_of}")
            return Outcome("met", f"{sent.decode} took it as attempt {attempt}" if presented else WAITS)
        if step is not None and step.transfer_id is not None:
            sizes["transfer"] = str(step.transfer_id)
        lab = self.scenario.lab
        if sent.decode in self.crew.replaced or lab.router or lab.decodes > 1:
            sizes["attempt"] = attempt
        fills = {"prefill": sent.prefill} if lab.prefills > 1 else {}
        taken = self.crew.ask(sent.decode, "submit", name=name, **fills, **sizes)
        if lab.router:
            self.crew.ask(sent.prefill, "submit", name=name, **sizes)
        return Outcome("met", f"{sent.decode} took it as attempt {attempt}" if taken else WAITS)

    def _abort(self, step: Abort) -> Outcome:
        """A client gives up: at whoever has its request, or where the step says."""
        asked = self.places.asked(step.request, step.at)
        before = len(self.witness.of("abort-ignored"))
        taken = [self.crew.ask(name, "abort", name=step.request) for name in asked]
        ignored = "".join(f"; {event.instance} ignores it" for event in self.witness.of("abort-ignored")[before:])
        return Outcome("met", f"{' and '.join(asked)} took the abort{ignored}" if all(taken) else WAITS)

    def _retry(self, step: Retry) -> Outcome:
        """A router has another prefill serve a request, and tells it of it if it does so of every request."""
        decode = self.places.of(step.request).decode
        taken = self.crew.ask(decode, "retry", name=step.request, prefill=step.prefill)
        self.places.move(step.request, step.prefill)
        if self.scenario.lab.router:
            asked = self.places.sizes[step.request] | {"attempt": self.witness.attempts(step.request)}
            self.crew.ask(step.prefill, "submit", name=step.request, **asked)
        return Outcome("met", f"{decode} took it" if taken else WAITS)

    def _retract(self, name: str) -> Outcome:
        """Decode's scheduler takes a request's pages back."""
        before, decode = self.witness.retractions(name), self.places.of(name).decode
        if not self.crew.ask(decode, "retract", name=name):
            return Outcome("met", WAITS)
        if self.witness.retractions(name) == before:
            return Outcome("failed", f"claim: {name} has no pages to give back")
        return Outcome("met", f"{decode} took the pages of {name} back")

    def _advance(self, ms: int) -> Outcome:
        self.waiting.settle()  # what is under way takes no time on this clock, and is there before a timer is due
        return Outcome("met", f"{self.waiting.pass_time(ms, at_rest=False)} timer(s) fired")

    # -- processes

    def _act_on_process(self, step: ProcessStep, fault: str) -> Outcome:
        name = step.instance
        match step:
            case Stop():
                if role_of(name) == "decode":
                    self.holds.look_before_standstill()
                return Outcome("met", f"{name} stands still", self.crew.stop(name, fault))
            case Continue():
                return self._go_on(name, fault)
            case Kill():
                by = self.crew.kill(name, fault)
                unreported = "" if by.data["idle"] else "; what it did last is not reported"
                return Outcome("met", f"{name} is dead{unreported}", by)
            case Restart():
                return self._restart(name, fault)
            case Unmap():
                by = self.crew.unmap(name, fault)
                return Outcome("met", f"nothing is mapped where the transport knows the memory of {name}", by)
            case Unregister():
                by = self.crew.unregister(name, fault)
                return Outcome("met", f"the transport knows no memory of {name} any more", by)

    def _restart(self, name: str, fault: str) -> Outcome:
        """Another process takes a dead one's place, and greets its peer: that has arrived unless a gate holds it."""
        by = self.crew.restart(name, fault)
        greetings = {event.data["id"] for event in self.witness.of("sent") if event.data["type"] == "hello"}
        self.waiting.until(
            lambda: by if not greetings & self.witness.flight.under_way else None,
            f"the greeting of {name} to arrive",
            at_rest_ends=False,
        )
        return Outcome("met", f"{name} is there again, at the same address", by)

    def _go_on(self, name: str, fault: str) -> Outcome:
        """Continue a process, and see what was let go meanwhile arrive."""
        by = self.crew.go_on(name, fault)
        if role_of(name) == "decode":
            self.holds.look_after_standstill()
        return Outcome("met", f"{name} goes on", by)

    # -- waiting

    def _await(self, step: Await) -> Outcome:
        if step.event == REST:
            self.waiting.settle()
            return Outcome("met", "all that is not held has arrived")
        if step.event == "held":
            hold = step.hold
            assert hold is not None
            count = self.holds.armed[hold].count
            return self.waiting.until(lambda: self.holds.nth_held(hold), f"{count} held by {hold}")
        count = max(step.count, len(self.witness.held(step.hold)) if step.hold else 1)
        since = len(self.witness.of(step.event)) if step.new else 0
        return self.waiting.until(
            lambda: nth(self.witness.matching(step, since), count),
            read_aloud(step).removeprefix("await "),
            refused=lambda since, at_rest: self._refusal(step.event, step.request, since, at_rest=at_rest),
        )

    def _refusal(self, event: str, request: str | None, since: int, *, at_rest: bool) -> Event | None:
        """The refusal of an awaited event. That of the scenario's own guard is final. Another guard's may be of
        one way to the event alone (a page is not free at once, it drains): it counts when the system rests."""
        own = self.witness.refusal(event, request, since, self.scenario.guard)
        if own is None and at_rest:
            return self.witness.refusal(event, request, since)
        return own

    def _claim(self, step: Expect) -> Outcome:
        if step.of is not None:
            held_by = self.witness.sources if step.claim == "reuses-source" else self.witness.pages
            before = set().union(*held_by(step.of))
            attempts = held_by(step.request)
            if attempts and attempts[-1] & before:
                shared = sorted(page for _, page in attempts[-1] & before)
                return Outcome("met", f"{step.request} has page(s) {shared} of {step.of}")
            refusal = self.witness.refusal("page-free", step.of)
            if refusal is not None:
                return Outcome("refused", f"{step.of}'s pages were kept", refusal)
            return Outcome("failed", f"claim: {step.request} holds no page that {step.of} held")
        if self.witness.ended(step.request) == (step.claim == "ended"):
            return Outcome("met", f"{step.request} is {step.claim}")
        return Outcome("failed", f"claim: {step.request} is not {step.claim}")

    # -- recording

    def _phase(self, name: str) -> None:
        self.hub.doing = f"the {name} phase"
        self._record("phase", phase=name)

    def _record(self, kind: str, **data: object) -> None:
        self.lab.recorder.record(kind, **data)  # type: ignore[arg-type]


def probe_request(scenario: Scenario) -> Request:
    """One page, one token: the smallest request that shows that serving goes on."""
    return Request(prompt_tokens=max(2, scenario.lab.page_tokens // 2 + 1), new_tokens=1, salt=PROBE)

"""A lab on paper: the conductor and both gates around `paper_engines`, playing one scenario."""

from __future__ import annotations

import heapq
from typing import Any

import msgspec
from paper_engines import Engines, tokens_of

from racelab.evidence.events import Event
from racelab.evidence.history import Header, History
from racelab.scenario import PROBE, Scenario
from racelab.scenario.steps import Abort, Advance, Await, Drop, Hold, Release, Step, Submit, read_aloud, verb

MECHANISMS = {
    "write": {"gate": "wire", "stage": "on the wire", "payload": "at-hold", "bound_ms": 924_600},
    "message": {"gate": "bus", "stage": "at the broker", "payload": "at-hold", "bound_ms": 60_000},
}


class Paper(Engines):
    """One run: build it, then ask for its `history`."""

    def __init__(self, scenario: Scenario, guards: tuple[str, ...], policy: str) -> None:
        super().__init__(scenario, guards)
        self.scenario = scenario
        self.policy = policy
        self.rules: list[list[Any]] = []
        self.blocked = False

    def history(self) -> History:
        """Play everything; the header is complete, with certificates left out."""
        self.emit("run-started", "conductor", run=1, seed=0, guards=list(self.guards))
        self.emit("phase", "conductor", phase="schedule")
        for number, step in enumerate(self.scenario.steps, 1):
            self._take(number, step)
        self.emit("phase", "conductor", phase="release")
        for hold in self.scenario.holds():
            self._let_go(hold, "release")
        self.emit("phase", "conductor", phase="drain")
        self._advance(self.lab.request_timeout_ms + self.lab.drain_timeout_ms)
        self.emit("phase", "conductor", phase="probe")
        self._submit(PROBE, 9, 1)
        self.emit("phase", "conductor", phase="judge")
        self._rest()
        header = Header(
            scenario=self.scenario,
            target="reference",
            policy=self.policy,
            guards=list(self.guards),
            solo={
                name: tokens_of(name, request.new_tokens, *self._solo(name, request.prompt_tokens))
                for name, request in self.scenario.requests.items()
            },
            mechanisms={
                hold.id: MECHANISMS["write" if hold.write else "message"]
                | {"mechanism": hold.mechanism, "means": "", "source": ""}
                for hold in self.scenario.holds().values()
            },
        )
        return History(header, self.events)

    # -- the conductor

    def _take(self, number: int, step: Step) -> None:
        self.emit("step", "conductor", n=number, verb=verb(step), text=read_aloud(step))
        match step:
            case Submit():
                request = self.scenario.requests[step.request]
                self._submit(step.request, request.prompt_tokens, request.new_tokens)
            case Abort():
                self.learn("decode", "conductor")
                self._end(self.requests[step.request], "aborted")
            case Advance():
                self._advance(step.ms)
            case Hold():
                self._arm(step)
            case Release() | Drop():
                self._let_go(step.hold, verb(step))
            case Await():
                self._await(number, step)
        self._deliver()
        self.emit("step-done", "conductor", n=number, why="met", by=None)

    def _await(self, number: int, step: Await) -> None:
        refused = self.refused
        if refused is not None and refused.data["refuses"] == step.event and not self.blocked:
            self.blocked = True
            guard, by = refused.data["guard"], [refused.instance, refused.seq]
            self.emit("blocked", "conductor", n=number, guard=guard, by=by)
            self.emit("phase", "conductor", phase="aftermath")

    def _arm(self, step: Hold) -> None:
        gate = "wire" if step.write else "bus"
        match = {key: value for key, value in msgspec.structs.asdict(step.write or step.message).items() if value}
        self.learn(gate, "conductor")
        self.rules.append([step, match, step.count])
        self.stopped[step.id] = []
        self.emit("armed", gate, hold=step.id, gate=gate, match=match, count=step.count)

    def wanted(self, subject: str, fields: dict[str, Any]) -> str | None:
        """The hold that stops this write or message."""
        for rule in self.rules:
            step, match, left = rule
            right = (step.write is not None) == (subject == "write")
            if right and left and all(fields.get(key) == value for key, value in match.items()):
                rule[2] -= 1
                return str(step.id)
        return None

    def _let_go(self, hold: str, how: str) -> None:
        stopped = self.stopped.get(hold, [])
        self.stopped[hold] = []
        writes = [(held, write) for held, write in stopped if held.instance == "wire"]
        for _, write in writes:
            self._look(write, "before-release")
        for held, thing in stopped:
            self.learn(held.instance, "conductor")
            about = (held.request, held.attempt, held.page, held.gen)
            data = {key: value for key, value in held.data.items() if key != "hold"}
            if how == "drop":
                self.emit("dropped", held.instance, about, hold=hold, **data)
                if held.instance == "wire":
                    self._complete(thing, "failed")
                continue
            self.emit("released", held.instance, about, hold=hold, **data)
            if held.instance == "wire":
                self._land(thing)
                self.emit("landed", "wire", about, hold=hold, code=0, **data)
            else:
                self.emit("delivered", "bus", about, hold=hold, **data)
                self.mail.append(thing)
        for _, write in writes:
            self._look(write, "after-landing")
            if how == "release":
                self._complete(write, "ok")
        self._deliver()

    def _look(self, posted: Event, why: str) -> None:
        self.learn("decode", "conductor")
        page, layer = posted.page or 0, posted.data["layer"]
        seen = self.memory.get((page, layer), "never")
        about = (None, None, page, self.pools["decode"].gen[page])
        size, write = posted.data["bytes"], posted.data["write"]
        self.emit("look", "decode", about, layer=layer, start=0, end=size, fingerprint=seen, why=why, write=write)
        self.learn("conductor", "decode")

    def _advance(self, ms: int) -> None:
        until = self.clock_ms + ms
        for instance in self.pools:
            self.learn(instance, "conductor")
        while self.timers and self.timers[0][0] <= until:
            self.clock_ms, _, fire = heapq.heappop(self.timers)
            fire()
            self._deliver()
        self.clock_ms = until

    def _rest(self) -> None:
        for instance, pool in self.pools.items():
            self.learn(instance, "conductor")
            self.emit("scan", instance, pages=[], foreign=[])
            if instance == "prefill":
                self.emit("sockets", instance, lanes=1, acked=self.direct_bytes, expected=self.direct_bytes)
            states = {state: pool.state.count(state) for state in dict.fromkeys(pool.state)}
            open_grants = sum(pool.state[page] != "QUARANTINED" for page, _ in pool.grants)
            left = {"requests": 0, "queued": len(self.queue), "grants": open_grants, "timers": 0}
            self.emit("quiesced", instance, pool=pool.pages, states=states, leftovers=left)
        for gate in ("wire", "bus"):
            counts = {"in": 1000, "in_kernel": 1000, "out": 1000, "out_kernel": 1000, "unannounced": 0}
            self.learn(gate, "conductor")
            self.emit("counted", gate, gate=gate, counts=counts)

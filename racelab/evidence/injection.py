"""One injection: what a hold asked for beside what its gate achieved, with proof of order.

A certificate is `confirmed` only if exactly what was asked for was stopped, all of it went on (or
was lost) when and as the schedule says, the receiver looked at its own memory before and after
each landing, the gate's byte counts equal the kernel's, and nothing bypassed the gate. What
contradicts that is a `mismatch`; what cannot be shown either way is `inconclusive`. A hold that the
schedule never came to, because it was stopped before, is `not-reached`. A hold of whatever comes (`count` 0)
is `met-nothing` if all of that is shown and nothing came: it watched, and it is no fault that landed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from racelab.evidence import absence, batches, landing_proof, transport_proof
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.labels import hold_label
from racelab.evidence.naming import number, when_ms
from racelab.evidence.schedule import Schedule
from racelab.evidence.writes import Write, Writes
from racelab.scenario.steps import Armed, Delay

Action = Literal[
    "release",
    "corrupt",
    "tear",
    "reorder",
    "drop",
    "reset",
    "pass",
    "delay",
    "duplicate",
    "lose-completion",
    "stop",
    "continue",
    "kill",
    "restart",
    "unregister",
    "unmap",
    "half-open",
]
State = Literal["confirmed", "mismatch", "inconclusive", "not-reached", "met-nothing"]

MET_NOTHING = "nothing came that it could have stopped"

_ENDS = ("landed", "torn", "delivered", "dropped", "unlanded", "work-done")
_GATES = {"write": "wire", "message": "bus", "work": "stream"}
_ARRIVALS = ("landed", "torn", "delivered", "work-done")

AT_HOLD = "at-hold"
"""The payload whose bytes are those of the post: what landed can be compared with what was posted."""


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `injections` in `run --json`; `why` is every problem in words."""

    id: str
    gate: str
    stage: str
    action: Action
    payload: str
    state: State
    requested: dict[str, Any]
    achieved: dict[str, Any]
    label: str
    why: list[str] = []

    def to_json(self) -> dict[str, Any]:
        """Plain data, as in the header of a history and in certificates.json."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


class Case:
    """One hold: its events, and what is wrong or missing. What an action asks for besides is its subclass's
    (racelab.evidence.certificates); `stops` is the kind of event that says that a thing met the gate.
    """

    stops = "held"
    goes_on = "released"

    def __init__(self, history: History, hold: Armed) -> None:
        self.history = history
        self.hold = hold
        self.schedule = history.derived(Schedule)
        self.before = history.causality.before
        self.mechanism = history.header.mechanisms.get(hold.id, {})
        self.gate = str(self.mechanism.get("gate", _GATES[hold.subject]))
        self.counted = transport_proof.counted(history, self.gate)
        self.armed = self.mine("armed")
        self.held = self.mine(self.stops)
        self.ends = {event.data["what"]: event for event in self.mine(*_ENDS)}
        self.released = {event.data["what"]: event for event in self.mine(self.goes_on)}
        self.corrupt = history.header.scenario.corrupted(hold.id)
        self.tear = history.header.scenario.torn(hold.id)
        self.reversed = history.header.scenario.reversed(hold.id)
        self.action: Action = self._action()
        self.wrong: list[str] = []
        self.missing: list[str] = []

    def _action(self) -> Action:
        """What the schedule did to what was held."""
        if self.corrupt is not None:
            return "corrupt"
        if self.tear is not None:
            return "tear"
        if self.schedule.resets(self.hold.id):
            return "reset"
        if self.schedule.drops(self.hold.id) or self.hold.action == "fail":
            return "drop"
        return "reorder" if self.reversed else "release"

    def mine(self, *kinds: str) -> list[Event]:
        """The hold's events of these kinds."""
        return [event for event in self.history.of(*kinds) if event.data["hold"] == self.hold.id]

    def certificate(self) -> Certificate:
        """Run every check and put the certificate together."""
        not_reached = not self.held and self.schedule.stopped is not None and not self._took_what_came
        if not not_reached:
            self._check_what_stopped()
            for held in self.held:
                self.check_end(held)
            self.check_whole()
            self._check_sequence()
            self.check_transport()
        bracket = [self._bracket(held) for held in self.held]
        return Certificate(
            id=self.hold.id,
            gate=self.gate,
            stage=str(self.mechanism.get("stage", "")),
            action=self.action,
            payload=str(self.mechanism.get("payload", "")),
            state="not-reached" if not_reached else self._state(),
            requested=self._requested(),
            achieved=self._achieved(bracket) | self.more(),
            label=hold_label(self.history, self.hold),
            why=self.wrong + self.missing + ([MET_NOTHING] if self._took_what_came and not self.held else []),
        )

    @property
    def _took_what_came(self) -> bool:
        """Whether it was armed for as many things as would come, none included."""
        return bool(self.armed) and not self.hold.count and not self.hold.goes_by_itself

    def _state(self) -> State:
        if self.wrong:
            return "mismatch"
        if self.missing:
            return "inconclusive"
        return "met-nothing" if self._took_what_came and not self.held else "confirmed"

    def _requested(self) -> dict[str, Any]:
        match = self.hold.match
        fields = msgspec.structs.asdict(match) if match is not None else {}
        return {
            "match": {name: value for name, value in fields.items() if value is not None},
            "count": self.hold.count,
            "mechanism": self.mechanism.get("mechanism", self.hold.mechanism),
            "bound_ms": self.mechanism.get("bound_ms"),
            **({"action": self.hold.action} if self.hold.action != "hold" else {}),
            **({"corrupt": self.corrupt} if self.corrupt is not None else {}),
            **({"tear": self.tear} if self.tear is not None else {}),
            **({"order": "reversed"} if self.reversed else {}),
            **({"ms": self.hold.ms} if isinstance(self.hold, Delay) else {}),
        }

    def more(self) -> dict[str, Any]:
        """What else was achieved, of an action's own."""
        return {}

    def _achieved(self, bracket: list[list[str]]) -> dict[str, Any]:
        moments = {
            "armed_ms": self.armed,
            "held_ms": self.held,
            "released_ms": list(self.released.values()),
            "landed_ms": [event for event in self.ends.values() if event.kind in _ARRIVALS],
            "fenced_ms": [event for event in self.ends.values() if "fenced" in event.data],
            "dropped_ms": [event for event in self.ends.values() if event.kind == "dropped"],
        }
        return {
            "held": [event.data["what"] for event in self.held],
            "bytes": sum(int(event.data.get("bytes", 0)) for event in self.held),
            **({"batches": batches.whole(self.held)} if self.hold.batches else {}),
            **{name: self._span(events) for name, events in moments.items()},
            "corrupted": self._changed("corrupt"),
            "torn": self._changed("tear"),
            "bracket": bracket,
            "counts_equal": self._counts_equal(),
            "transport_proven": self._transport_problem() is None,
        }

    def _counts_equal(self) -> bool | None:
        if self.counted is None or absence.uncounted(self.history):
            return None
        return transport_proof.counts_agree(self.counted)

    def _changed(self, how: str) -> list[str]:
        """What went on with a byte changed (`corrupt`), or in part (`tear`)."""
        return [what for what, event in self.released.items() if event.data.get(how) is not None]

    def _span(self, events: Iterable[Event]) -> list[float]:
        """The first and the last moment, in ms since the run started; empty if there was none."""
        moments = sorted(moment for event in events if (moment := when_ms(self.history, event)) is not None)
        return [moments[0], moments[-1]] if moments else []

    # -- what stopped

    def _check_what_stopped(self) -> None:
        if not self.armed:
            self.missing.append("the gate never said that it was armed")
        if self.hold.goes_by_itself and not self.hold.count and not self.held:
            self.missing.append("nothing came that it could have met")
        if self.hold.batches:
            self.wrong += batches.problems(self.held, self.history.by_kind["posted"], self.hold.count)
        elif self.hold.count and len(self.held) != self.hold.count:
            self.wrong.append(f"{len(self.held)} of {self.hold.count} asked for were held")
        identities = [event.data["what"] for event in self.held]
        if len(set(identities)) != len(identities):
            self.wrong.append("the same thing was held twice")
        for held in self.held:
            differing = self._differs(held)
            if differing:
                self.wrong.append(f"{held.data['what']} was held and does not match: {differing}")
            if self.hold.write is not None:
                self._check_identity(held)

    def check_whole(self) -> None:
        """The first of the held writes, and no other, went on with the change that was asked for."""
        for how, wanted in (("corrupt", self.corrupt), ("tear", self.tear)):
            asked = [held.data["what"] for held in self.held[:1]] if wanted is not None else []
            if self._changed(how) != asked:
                done = "torn" if how == "tear" else "changed"
                self.wrong.append(f"{done} were {self._changed(how)}, asked for was {asked}")

    def _check_sequence(self) -> None:
        """What went on with the order changed did so, each once the one before had arrived or left."""
        if not self.reversed:
            return
        went = [event.data["what"] for event in self.mine("released")]
        stopped = [event.data["what"] for event in self.held]
        if went != stopped[::-1]:
            self.wrong.append(f"{stopped} stopped, and went on as {went}")
        ends = [event.data["what"] for event in self.mine("landed", "delivered")]
        if ends != went:
            self.wrong.append(f"{went} went on, and arrived as {ends}")

    def _differs(self, held: Event) -> str | None:
        """The field in which a held thing differs from what was asked for."""
        for name, wanted in self._requested()["match"].items():
            got = getattr(held, name, None) if name in ("request", "attempt", "page") else held.data.get(name)
            if name in ("bytes", "batch"):
                continue  # a range to be touched, or a whole: the writer's own choice of its lane, by the same rule
            if got is None and name in ("layer", "chunk"):
                write = self.write(held)
                got = write.posted.data[name] if write is not None else None
            if got is not None and got != wanted:
                return f"{name} is {got}, asked for was {wanted}"
        return None

    def write(self, held: Event) -> Write | None:
        """The write that a gate's event is about."""
        return self.history.derived(Writes).by_id.get(held.data["what"])

    def _check_identity(self, held: Event) -> None:
        """The gate and the writer speak of the same write."""
        write = self.write(held)
        if write is None:
            self.missing.append(f"nobody posted write {held.data['what']}")
            return
        posted = write.posted
        same = (held.request, held.attempt, held.page, held.gen) == (
            posted.request,
            posted.attempt,
            posted.page,
            posted.gen,
        )
        if not same or (held.data["address"], held.data["bytes"]) != (write.address, write.bytes):
            self.wrong.append(f"{number(held)} and {number(posted)} differ about write {write.id}")
        if not self.before(posted, held):
            self.missing.append(f"nothing orders the post of write {write.id} before its stop")

    # -- where it went

    def check_end(self, held: Event) -> None:
        """It went on, or was lost, as the schedule says."""
        what = held.data["what"]
        end = self.ends.get(what)
        if end is None:
            self.wrong.append(f"{what} was held and neither went on nor was lost")
            return
        if absence.lost_with_its_process(self.history, end, self.write(held)):
            return
        if end.kind == "unlanded":
            self.wrong.append(f"{what} could not be delivered: {end.data['why']}")
            return
        dropped = end.kind == "dropped" and "fenced" not in end.data
        lost = self.action in ("drop", "reset")
        if (
            dropped != lost
            or (dropped and ("reset" in end.data) != (self.action == "reset"))
            or (end.kind == "torn") != self._is_torn(what)
        ):
            self.wrong.append(f"{what} was {end.kind}, and the schedule says {self.action}")
            return
        if end.kind == "landed" and end.data["code"]:
            self.wrong.append(f"the target rejected {what} with code {end.data['code']}")
        if self.hold.action == "fail":
            return  # it was over at once
        started = end if dropped else self.released.get(what)
        if started is None:
            self.missing.append(f"nothing says when {what} was let go")
            return
        self.check_order(what, held, started, end)
        write = self.write(held)
        if write is not None and write.is_read and end.kind == "delivered":
            if not (write.succeeded or self._broke_off_beside(write)):
                self.wrong.append(f"{what} was delivered, and its reader was not told that it has it")
            elif write.completed is not None:
                self._check_looks(what, held, started, write.completed)
        elif end.kind in ("landed", "torn"):
            self._check_looks(what, held, started, end)

    def _broke_off_beside(self, read: Write) -> bool:
        """Whether the reader was told of a failure because another read, of the same batch, was torn."""
        return read.completed is not None and any(map(self._is_torn, read.completed.data["writes"]))

    def _is_torn(self, what: str) -> bool:
        return what in self._changed("tear")

    def check_order(self, what: str, held: Event, started: Event, end: Event) -> None:
        """Stop, step, going, arrival and the end of the step follow each other."""
        let_go = self.schedule.let_go(self.hold.id, started)
        if let_go is None:
            self.wrong.append(f"{what} went before any step or phase let it go")
            return
        if not (self.before(held, let_go.issued) and self.before(let_go.issued, started)):
            self.missing.append(f"nothing orders the stop of {what}, its step and its going")
        done = absence.arrival_due(self.history, let_go.issued, let_go.done)
        if done is None or not self.before(end, done):
            self.missing.append(f"the schedule went on before {what} was known to be {end.kind}")

    def _check_looks(self, what: str, held: Event, released: Event, landed: Event) -> None:
        looks = self.looks(what)
        first = [look for look in looks if look.data["why"] == "before-release" and self.before(look, released)]
        then = [look for look in looks if look.data["why"] == "after-landing" and self.before(landed, look)]
        if (not first or not then) and not self._receiver_died():
            side = "before" if not first else "after"
            self.missing.append(f"the receiver did not look at its memory {side} the landing of {what}")
        write = self.write(held)
        if write is None or not then:
            return
        if first and self._is_torn(what):
            self.note(landing_proof.torn(self.history, write, first[-1], then[0]))
        elif what in self._changed("corrupt"):
            if then[0].data["fingerprint"] == write.fingerprint:
                self.wrong.append(f"{what} was to land with a byte changed, and landed as it was posted")
        elif self.mechanism.get("payload") == AT_HOLD:
            self.note(landing_proof.whole(self.history, write, then[0], held.data.get("fingerprint")))

    def looks(self, what: str) -> list[Event]:
        """When the receiver read where a write goes."""
        return [event for event in self.history.by_kind["look"] if event.data.get("write") == what]

    def note(self, problem: str | None) -> None:
        """What is not shown leaves the injection open."""
        if problem is not None:
            self.missing.append(problem)

    def _receiver_died(self) -> bool:
        looking = {event.instance for event in self.history.by_kind["region"]}
        return any(event.data["peer"] in looking for event in self.history.of("died", "killed"))

    def _bracket(self, held: Event) -> list[str]:
        """The numbers of the events around a landing, in order."""
        what = held.data["what"]
        looks = self.looks(what)
        around = [held, self.released.get(what), self.ends.get(what), *looks]
        return [f"{number(event)} {event.kind}" for event in sorted(filter(None, around), key=_merge_order)]

    # -- the transport

    def check_transport(self) -> None:
        """The gate counted what the kernel or the device did, and nothing went another way."""
        counted = self.counted
        if counted is None:
            self.missing.append(f"the {self.gate} gate gave no byte counts")
        else:
            if not any(name.endswith("_kernel") for name in counted.data["counts"]):
                self.missing.append(f"no kernel or device counts beside the {self.gate} gate")
            if not absence.uncounted(self.history):
                self.wrong += transport_proof.count_problems(self.gate, counted)
            if any(end.instance == counted.instance and end.seq > counted.seq for end in self.ends.values()):
                self.missing.append(f"the {self.gate} gate counted before everything had gone on")
        self.note(self._transport_problem())

    def _transport_problem(self) -> str | None:
        return transport_proof.transport_problem(self.history) if self.hold.write is not None else None


def _merge_order(event: Event) -> tuple[int, str, int]:
    return event.hlc, event.instance, event.seq

"""Injection certificates: what a hold asked for beside what the gate achieved, with proof of order.

A certificate is `confirmed` only if exactly what was asked for was stopped, all of it went on (or
was lost) when and as the schedule says, the receiver looked at its own memory before and after
each landing, the gate's byte counts equal the kernel's, and nothing bypassed the gate. What
contradicts that is a `mismatch`; what cannot be shown either way is `inconclusive`. A hold that the
schedule never came to, because it was stopped before, is `not-reached`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from racelab.evidence.events import Event
from racelab.evidence.fingerprint import CHUNK_BYTES
from racelab.evidence.history import History
from racelab.evidence.labels import hold_label
from racelab.evidence.naming import number, when_ms
from racelab.evidence.provenance import Provenance
from racelab.evidence.schedule import Schedule
from racelab.evidence.writes import Write, Writes
from racelab.scenario import Hold

Action = Literal["release", "corrupt", "tear", "drop"]
State = Literal["confirmed", "mismatch", "inconclusive", "not-reached"]

_ENDS = ("landed", "torn", "delivered", "dropped", "unlanded")

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


def certify(history: History) -> list[Certificate]:
    """One certificate a hold of the scenario, in the order of the scenario."""
    return [_Case(history, hold).certificate() for hold in history.header.scenario.holds().values()]


class _Case:
    """One hold: its events, and what is wrong or missing."""

    def __init__(self, history: History, hold: Hold) -> None:
        self.history = history
        self.hold = hold
        self.schedule = history.derived(Schedule)
        self.before = history.causality.before
        self.mechanism = history.header.mechanisms.get(hold.id, {})
        self.gate = str(self.mechanism.get("gate", "wire" if hold.write is not None else "bus"))
        self.armed = self._mine("armed")
        self.held = self._mine("held")
        self.ends = {event.data["what"]: event for event in self._mine(*_ENDS)}
        self.released = {event.data["what"]: event for event in self._mine("released")}
        self.corrupt = history.header.scenario.corrupted(hold.id)
        self.action: Action = "drop" if self.schedule.drops(hold.id) or hold.action == "fail" else "release"
        if self.corrupt is not None:
            self.action = "corrupt"
        self.tear = history.header.scenario.torn(hold.id)
        if self.tear is not None:
            self.action = "tear"
        self.wrong: list[str] = []
        self.missing: list[str] = []

    def _mine(self, *kinds: str) -> list[Event]:
        return [event for event in self.history.of(*kinds) if event.data["hold"] == self.hold.id]

    def certificate(self) -> Certificate:
        """Run every check and put the certificate together."""
        not_reached = not self.held and self.schedule.stopped is not None
        if not not_reached:
            self._check_what_stopped()
            for held in self.held:
                self._check_end(held)
            self._check_change()
            self._check_transport()
        bracket = [self._bracket(held) for held in self.held]
        return Certificate(
            id=self.hold.id,
            gate=self.gate,
            stage=str(self.mechanism.get("stage", "")),
            action=self.action,
            payload=str(self.mechanism.get("payload", "")),
            state="not-reached" if not_reached else self._state(),
            requested=self._requested(),
            achieved=self._achieved(bracket),
            label=hold_label(self.history, self.hold),
            why=self.wrong + self.missing,
        )

    def _state(self) -> State:
        if self.wrong:
            return "mismatch"
        return "inconclusive" if self.missing else "confirmed"

    def _requested(self) -> dict[str, Any]:
        match = self.hold.write or self.hold.message
        fields = msgspec.structs.asdict(match) if match is not None else {}
        return {
            "match": {name: value for name, value in fields.items() if value is not None},
            "count": self.hold.count,
            "mechanism": self.hold.mechanism,
            "bound_ms": self.mechanism.get("bound_ms"),
            **({"action": self.hold.action} if self.hold.action != "hold" else {}),
            **({"corrupt": self.corrupt} if self.corrupt is not None else {}),
            **({"tear": self.tear} if self.tear is not None else {}),
        }

    def _achieved(self, bracket: list[list[str]]) -> dict[str, Any]:
        moments = {
            "armed_ms": self.armed,
            "held_ms": self.held,
            "released_ms": list(self.released.values()),
            "landed_ms": [event for event in self.ends.values() if event.kind in ("landed", "torn", "delivered")],
            "fenced_ms": [event for event in self.ends.values() if "fenced" in event.data],
            "dropped_ms": [event for event in self.ends.values() if event.kind == "dropped"],
        }
        return {
            "held": [event.data["what"] for event in self.held],
            "bytes": sum(int(event.data.get("bytes", 0)) for event in self.held),
            **{name: self._span(events) for name, events in moments.items()},
            "corrupted": self._changed("corrupt"),
            "torn": self._changed("tear"),
            "bracket": bracket,
            "counts_equal": _counts_agree(self._counted()) if self._counted() is not None else None,
            "transport_proven": self._transport_problem() is None,
        }

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
        if len(self.held) != self.hold.count:
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

    def _check_change(self) -> None:
        """The first of the held writes, and no other, went on with the change that was asked for."""
        for how, wanted in (("corrupt", self.corrupt), ("tear", self.tear)):
            asked = [held.data["what"] for held in self.held[:1]] if wanted is not None else []
            if self._changed(how) != asked:
                done = "torn" if how == "tear" else "changed"
                self.wrong.append(f"{done} were {self._changed(how)}, asked for was {asked}")

    def _differs(self, held: Event) -> str | None:
        """The field in which a held thing differs from what was asked for."""
        for name, wanted in self._requested()["match"].items():
            got = getattr(held, name, None) if name in ("request", "attempt", "page") else held.data.get(name)
            if got is None and name in ("layer", "chunk"):
                write = self._write(held)
                got = write.posted.data[name] if write is not None else None
            if got is not None and got != wanted:
                return f"{name} is {got}, asked for was {wanted}"
        return None

    def _write(self, held: Event) -> Write | None:
        return self.history.derived(Writes).by_id.get(held.data["what"])

    def _check_identity(self, held: Event) -> None:
        """The gate and the writer speak of the same write."""
        write = self._write(held)
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

    def _check_end(self, held: Event) -> None:
        what = held.data["what"]
        end = self.ends.get(what)
        if end is None:
            self.wrong.append(f"{what} was held and neither went on nor was lost")
            return
        if end.kind == "unlanded":
            self.wrong.append(f"{what} could not be delivered: {end.data['why']}")
            return
        dropped = end.kind == "dropped" and "fenced" not in end.data
        if dropped != (self.action == "drop") or (end.kind == "torn") != self._is_torn(what):
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
        self._check_order(what, held, started, end)
        if end.kind in ("landed", "torn"):
            self._check_looks(what, held, started, end)

    def _is_torn(self, what: str) -> bool:
        return what in self._changed("tear")

    def _check_order(self, what: str, held: Event, started: Event, end: Event) -> None:
        let_go = self.schedule.let_go(self.hold.id, started)
        if let_go is None:
            self.wrong.append(f"{what} went before any step or phase let it go")
            return
        if not (self.before(held, let_go.issued) and self.before(let_go.issued, started)):
            self.missing.append(f"nothing orders the stop of {what}, its step and its going")
        done = let_go.done
        if done is None or not self.before(end, done):
            self.missing.append(f"the schedule went on before {what} was known to be {end.kind}")

    def _check_looks(self, what: str, held: Event, released: Event, landed: Event) -> None:
        looks = [event for event in self.history.by_kind["look"] if event.data.get("write") == what]
        first = [look for look in looks if look.data["why"] == "before-release" and self.before(look, released)]
        then = [look for look in looks if look.data["why"] == "after-landing" and self.before(landed, look)]
        if (not first or not then) and not self._receiver_died():
            side = "before" if not first else "after"
            self.missing.append(f"the receiver did not look at its memory {side} the landing of {what}")
        write = self._write(held)
        if first and then and write is not None and self._is_torn(what):
            self._check_torn(write, first[-1], then[0])
        elif then and write is not None and what in self._changed("corrupt"):
            if then[0].data["fingerprint"] == write.fingerprint:
                self.wrong.append(f"{what} was to land with a byte changed, and landed as it was posted")
        elif then and write is not None and self.mechanism.get("payload") == AT_HOLD:
            self._check_bytes(write, then[0])

    def _check_bytes(self, write: Write, look: Event) -> None:
        """What the receiver saw after the landing is what was posted, unless somebody wrote over it meanwhile."""
        if look.data["fingerprint"] == write.fingerprint or look.data["end"] - look.data["start"] != write.bytes:
            return
        if not self._overwritten(write, look) and not self._appended(look, write):
            self.missing.append(f"after the landing of {write.id} the receiver sees other bytes ({number(look)})")

    def _check_torn(self, write: Write, before: Event, after: Event) -> None:
        """The receiver saw the part that was let go, chunk by chunk, and behind it what had been there before."""
        provenance = self.history.derived(Provenance)
        posted, old, new = (
            provenance.chunks(seen)
            for seen in (write.fingerprint, before.data["fingerprint"], after.data["fingerprint"])
        )
        if not posted or not new:
            self.missing.append(f"nobody took apart what write {write.id} left ({number(after)})")
            return
        whole, rest = divmod(write.torn or 0, CHUNK_BYTES)
        kept = whole + bool(rest)
        as_torn = new[:whole] == posted[:whole] and (not old or new[kept:] == old[kept:])
        if not as_torn and not self._overwritten(write, after) and not self._appended(after, write):
            self.missing.append(f"what the receiver sees is not write {write.id} torn there ({number(after)})")

    def _overwritten(self, write: Write, look: Event) -> bool:
        """Whether another write may have landed on the same page between the landing and the look."""
        causality = self.history.causality
        others = [
            other
            for other in self.history.derived(Writes)
            if other is not write and (other.posted.page, other.layer) == (write.posted.page, write.layer)
        ]
        return any(
            not (write.landed is not None and other.landing_before(write.landed, causality))
            and not other.landing_after(look, causality)
            for other in others
        )

    def _appended(self, look: Event, write: Write) -> bool:
        """Whether the page's owner may append tokens of its own within the range."""
        if look.gen == write.posted.gen:
            return False
        sizes = [
            event.data["bytes"]
            for event in self.history.by_kind["granted"]
            if (event.instance, event.page, event.gen) == (look.instance, look.page, look.gen)
        ]
        return not sizes or sizes[-1] < write.bytes

    def _receiver_died(self) -> bool:
        looking = {event.instance for event in self.history.by_kind["region"]}
        return any(event.data["peer"] in looking for event in self.history.by_kind["died"])

    def _bracket(self, held: Event) -> list[str]:
        """The numbers of the events around a landing, in order."""
        what = held.data["what"]
        looks = [event for event in self.history.by_kind["look"] if event.data.get("write") == what]
        around = [held, self.released.get(what), self.ends.get(what), *looks]
        return [f"{number(event)} {event.kind}" for event in sorted(filter(None, around), key=_merge_order)]

    # -- the transport

    def _counted(self) -> Event | None:
        counted = [event for event in self.history.by_kind["counted"] if event.data["gate"] == self.gate]
        return counted[-1] if counted else None

    def _check_transport(self) -> None:
        counted = self._counted()
        if counted is None:
            self.missing.append(f"the {self.gate} gate gave no byte counts")
        else:
            if not any(name.endswith("_kernel") for name in counted.data["counts"]):
                self.missing.append(f"no kernel or device counts beside the {self.gate} gate")
            if not _counts_agree(counted):
                self.wrong.append(f"the {self.gate} gate's counts differ from the kernel's: {counted.data['counts']}")
            for name in ("unannounced", "ambiguous"):
                if counted.data["counts"].get(name):
                    self.wrong.append(f"{counted.data['counts'][name]} {name} write(s) passed the {self.gate} gate")
            if any(end.instance == counted.instance and end.seq > counted.seq for end in self.ends.values()):
                self.missing.append(f"the {self.gate} gate counted before everything had gone on")
        problem = self._transport_problem()
        if problem is not None:
            self.missing.append(problem)

    def _transport_problem(self) -> str | None:
        """Why it is not proven that the writes went by the transport that is claimed, and by nothing else."""
        if self.hold.write is None:
            return None
        return self._devices_problem() if self.history.header.transport == "rdma" else self._sockets_problem()

    def _devices_problem(self) -> str | None:
        """Mooncake falls back to TCP without a word: only the device's own count shows what it wrote."""
        rails = {event.instance: event for event in self.history.by_kind["rails"]}
        for writer in sorted({write.posted.instance for write in self.history.derived(Writes)}):
            if writer not in rails:
                return f"{writer} gave no count of its RDMA devices"
            landed, expected = rails[writer].data["landed"], rails[writer].data["expected"]
            if landed is None:
                return f"nothing counts what {writer}'s RDMA devices wrote for it"
            if landed != expected:
                return f"{writer}'s RDMA devices wrote {landed:,} bytes, its completed writes are {expected:,}"
        return None

    def _sockets_problem(self) -> str | None:
        writers = {
            write.posted.instance for write in self.history.derived(Writes) if write.posted.data["lane"] == "direct"
        }
        sockets = {event.instance: event for event in self.history.by_kind["sockets"]}
        for writer in sorted(writers):
            if writer not in sockets:
                return f"{writer} gave no count of its data connections"
        for event in sockets.values():
            acked, expected = event.data["acked"], event.data["expected"]
            if acked is None:
                return f"the kernel does not tell what went over {event.instance}'s data connections"
            if acked != expected:
                return f"{event.instance}'s data connections carried {acked:,} bytes, its writes are {expected:,}"
        return None


def _counts_agree(counted: Event | None) -> bool:
    """Whether each count that has a kernel's beside it equals it."""
    counts = counted.data["counts"] if counted is not None else {}
    return all(value == counts.get(f"{name}_kernel", value) for name, value in counts.items())


def _merge_order(event: Event) -> tuple[int, str, int]:
    return event.hlc, event.instance, event.seq

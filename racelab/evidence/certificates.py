"""Injection certificates: what each hold of a scenario asked for beside what its gate achieved.

A certificate is `confirmed` only if exactly what was asked for was met, all of it went on (or was
lost, delayed, repeated, or kept from its sender) when and as the schedule says, the receiver looked at its
own memory before and after each landing, the gate's byte counts equal the kernel's, and nothing bypassed
the gate. What contradicts that is a `mismatch`; what cannot be shown either way is `inconclusive`. A hold
that the schedule never came to, because it was stopped before, is `not-reached`; one of whatever comes
(`count` 0) that nothing came to is `met-nothing`.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import islice
from typing import Any

from racelab import delays
from racelab.evidence import absence, landing_proof
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.injection import Action, Case, Certificate
from racelab.evidence.naming import number
from racelab.scenario.steps import Armed, Delay


def certify(history: History) -> list[Certificate]:
    """One certificate a hold of the scenario, in the order of the scenario."""
    return [_case(history, hold).certificate() for hold in history.header.scenario.holds().values()]


def _case(history: History, hold: Armed) -> Case:
    if hold.work is not None:
        return Queued(history, hold)
    asked = history.header.scenario
    if hold.message is not None and (asked.torn(hold.id) is not None or asked.corrupted(hold.id) is not None):
        return Garbled(history, hold)
    return _CASES.get(hold.action, Case)(history, hold)


class Passing(Case):
    """A control: everything that it met went on as if nothing were armed."""

    stops = "passed"

    def _action(self) -> Action:
        return "pass"

    def check_end(self, held: Event) -> None:
        """A write landed, a message was received."""
        what = held.data["what"]
        if self.hold.write is not None:
            end = self.ends.get(what)
            if end is None or end.kind not in ("landed", "delivered"):  # a read's answer is delivered
                self.wrong.append(f"{what} passed the gate and did not land")
        elif not any(event.data["id"] == what for event in self.history.by_kind["received"]):
            self.wrong.append(f"{what} passed the gate and was not received")


class Queued(Case):
    """Local work of an instance stopped and ran late: all of it is in that instance's own record."""

    stops = "work-held"
    goes_on = "work-released"

    def check_end(self, held: Event) -> None:
        """It stopped on the instance that was asked for, and ran once it was let go."""
        assert self.hold.work is not None
        if held.instance != self.hold.work.on:
            self.wrong.append(f"{held.data['what']} stopped on {held.instance}")
        super().check_end(held)

    def check_transport(self) -> None:
        """No transport is concerned."""


class Garbled(Case):
    """The first notification broke off, or had a byte changed: lost, unless its receiver reads it all the same."""

    def check_end(self, held: Event) -> None:
        """What the gate says became of it is what its receiver saw."""
        what = held.data["what"]
        end, released = self.ends.get(what), self.released.get(what)
        if what not in self._changed("tear") + self._changed("corrupt"):
            super().check_end(held)
            return
        if end is None or released is None:
            self.wrong.append(f"{what} was changed, and neither came nor was lost")
            return
        if absence.lost_with_its_process(self.history, end, None):
            return
        known = {"tear": self.tear, "corrupt": self.corrupt}
        if end.kind == "dropped" and any(end.data.get(how) != wanted for how, wanted in known.items()):
            self.wrong.append(f"{what} was lost otherwise than by that: {end.data.get('why', end.data)}")
        if end.kind == "delivered" and self.tear is not None:
            self.wrong.append(f"{what} was torn, and was delivered")
        received = any(event.data["id"] == what for event in self.history.by_kind["received"])
        if (end.kind == "delivered") != received:
            self.wrong.append(f"{what} was {end.kind}, and {'was' if received else 'never'} received")
        if end.data.get("answered") and not self.history.by_kind["unreadable"]:
            self.missing.append(f"{what} was taken with a byte changed, and nobody found anything unreadable")
        self.check_order(what, held, released, end)

    def more(self) -> dict[str, Any]:
        """What each became that was changed."""
        ends = (end for what, end in self.ends.items() if what in self._changed("tear") + self._changed("corrupt"))
        return {"became": [f"{end.data['what']}: {_became(end)}" for end in ends]}


class HalfOpen(Case):
    """Each write's target lost its end of the connection, and its writer heard nothing before it was dropped."""

    def _action(self) -> Action:
        return "half-open"

    def check_end(self, held: Event) -> None:
        """The target's end was gone when it stopped, and the writer's was there until it was dropped."""
        what = held.data["what"]
        end, write = self.ends.get(what), self.write(held)
        if held.data.get("targets_end") != "CLOSED":
            self.wrong.append(f"the target's end of the connection of {what} was not gone")
        if end is None or end.kind != "dropped":
            self.wrong.append(f"{what} was never dropped" if end is None else f"{what} was {end.kind}")
            return
        if end.data.get("writers_end") != "ESTABLISHED":
            self.wrong.append(f"the connection of {what} had ended for its writer before it was dropped")
        if write is not None and write.completed is not None and write.completed.hlc < end.hlc:
            self.wrong.append(f"{number(write.completed)}: the writer of {what} heard of it before it was dropped")
        self.check_order(what, held, end, end)


class Early(Case):
    """Each write stopped with its writer told that it had landed, and landed later."""

    def check_end(self, held: Event) -> None:
        """The writer's API said success while the gate still had all of it."""
        super().check_end(held)
        write, released = self.write(held), self.released.get(held.data["what"])
        if write is None or released is None:
            return
        if write.completed is None or not write.succeeded or write.completed.hlc > released.hlc:
            self.wrong.append(f"the writer of {held.data['what']} had not heard of a success when it went on")


class Delayed(Case):
    """Each thing went on by itself, and no sooner than the distribution said."""

    def _action(self) -> Action:
        return "delay"

    def check_end(self, held: Event) -> None:
        """It arrived, and had waited for as long as was drawn for it."""
        what = held.data["what"]
        end, released = self.ends.get(what), self.released.get(what)
        if released is None or end is None:
            self.wrong.append(f"{what} was delayed and never went on")
            return
        if end.kind not in ("landed", "delivered") or end.data.get("code"):
            self.wrong.append(f"{what} was delayed, and then {end.kind}: {end.data.get('why', '')}")
        if self._waited_ms(held) < held.data["delay_ms"]:
            self.wrong.append(f"{what} waited {self._waited_ms(held):.3f} ms of {held.data['delay_ms']} ms")

    def _waited_ms(self, held: Event) -> float:
        """Both ends are of the gate's own clock."""
        return (self.released[held.data["what"]].mono_ns - held.mono_ns) / 1e6

    def check_whole(self) -> None:
        """The delays are those that anybody with the run's seed draws."""
        assert isinstance(self.hold, Delay)
        seed = delays.draws_seed(self.history.header.seed, self.hold.id)
        if self._drawn_ms() != list(islice(delays.draws(self.hold.ms, seed), len(self.held))):
            self.wrong.append("the delays are not those that the run's seed gives")

    def _drawn_ms(self) -> list[float]:
        return [float(held.data["delay_ms"]) for held in self.held]

    def more(self) -> dict[str, Any]:
        """The delays that were drawn and those that came of them: least, median and longest."""
        waited = [self._waited_ms(held) for held in self.held if held.data["what"] in self.released]
        return {"drawn_ms": _spread(self._drawn_ms()), "waited_ms": _spread(waited)}


class Copied(Case):
    """Each message was received, and its copy once more when it was let go."""

    def _action(self) -> Action:
        return "drop" if self.schedule.drops(self.hold.id) else "duplicate"

    def check_end(self, held: Event) -> None:
        """As of anything held; what was delivered twice was received twice."""
        super().check_end(held)
        end = self.ends.get(held.data["what"])
        original = held.data["of"]
        times = sum(event.data["id"] == original for event in self.history.by_kind["received"])
        wanted = 2 if end is not None and end.kind == "delivered" else 1
        if times < wanted:
            self.missing.append(f"{original} was received {times} time(s), and was to be received {wanted}")

    def more(self) -> dict[str, Any]:
        """At which quality of service the copies were made."""
        return {"qos": sorted({held.data["qos"] for held in self.held})}


class Withheld(Case):
    """Each write landed, and its writer heard of it only when the schedule let it."""

    stops = "withheld"

    def _action(self) -> Action:
        return "lose-completion"

    def check_end(self, held: Event) -> None:
        """It had landed, the receiver saw it there, and then its writer was told."""
        what = held.data["what"]
        told = {event.data["what"]: event for event in self.mine("told")}.get(what)
        landed = self.ends.get(what)
        if landed is None or landed.kind != "landed" or landed.hlc > held.hlc:
            self.wrong.append(f"the completion of {what} was kept back before it had landed")
        if told is None:
            self.wrong.append(f"the writer of {what} was never told")
            return
        lost = self.schedule.drops(self.hold.id) or self.schedule.resets(self.hold.id)
        if (told.data["as"] == "lost") != lost:
            self.wrong.append(f"the writer of {what} was told that it is {told.data['as']}")
        self.check_order(what, held, told, told)
        write = self.write(held)
        if write is None:
            return
        if write.completed is not None and write.succeeded and write.completed.hlc < told.hlc:
            self.wrong.append(f"{number(write.completed)}: the writer of {what} knew before it was told")
        seen = [look for look in self.looks(what) if self.before(held, look) and self.before(look, told)]
        if not seen:
            self.missing.append(f"the receiver did not look at its memory while {what} was kept from its writer")
        else:
            self.note(landing_proof.whole(self.history, write, seen[0]))

    def more(self) -> dict[str, Any]:
        """When the writers were told."""
        return {"told": [f"{event.data['what']}: {event.data['as']}" for event in self.mine("told")]}


_CASES: dict[str, type[Case]] = {
    "early-success": Early,
    "half-open": HalfOpen,
    "pass": Passing,
    "delay": Delayed,
    "duplicate": Copied,
    "lose-completion": Withheld,
}


def _became(end: Event) -> str:
    if end.kind == "delivered":
        return "received as it was sent"
    if "tear" in end.data:
        return f"lost after {end.data['tear']:,} of {end.data['bytes']:,} bytes"
    return "taken, and unreadable" if end.data.get("answered") else "refused"


def _spread(values: Sequence[float]) -> list[float]:
    if not values:
        return []
    return [round(each, 3) for each in (min(values), statistics.median(values), max(values))]


__all__ = ["Certificate", "certify"]

"""The instances of a run: which of them can answer, which stand still, which are dead.

A schedule may stop an instance, kill it, and put another in its place. Whoever waits asks only those
that can answer. What is asked of a stopped one waits in its socket, and so does the time that passes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from racelab.conductor.witness import Witness
from racelab.errors import BoundError
from racelab.evidence.events import Event
from racelab.lab.lab import Lab

END_BOUND_S = 10.0
TIMER_SLACK_S = 5.0
"""How much later than it is due a timer of a real clock may fire before the lab has failed."""
LOOKS = 3
"""How often an instance is asked whether it is idle, before it is taken to be at work."""
GENERATIONS_APART = 100
"""A replaced instance counts generations on from the next multiple, so that a person sees where they began."""


@dataclass
class Stopped:
    """What a stopped instance will find when it goes on."""

    idle: bool
    asked: list[tuple[int, str]] = field(default_factory=list)


class Crew:
    """The instances of one run."""

    def __init__(self, lab: Lab, witness: Witness, *, real_clock: bool = False) -> None:
        self._lab = lab
        self.hub = lab.hub
        self._witness = witness
        self._real_clock = real_clock
        self.stopped: dict[str, Stopped] = {}
        self.dead: dict[str, Event] = {}
        """by name, the death"""
        self.replaced: set[str] = set()
        self.unregistered: set[str] = set()

    @property
    def answering(self) -> list[str]:
        """Those that run."""
        if not self.stopped and not self.dead:
            return self._lab.engines
        return [name for name in self._lab.engines if name not in self.stopped and name not in self.dead]

    def ask(self, name: str, command: str, /, **args: Any) -> bool:
        """A command to an instance; False if it is stopped and will take it when it goes on, or is dead."""
        if name in self.dead:
            return False
        if name in self.stopped:
            self.stopped[name].asked.append((self.hub.send(name, command, **args), command))
            return False
        self.hub.call(name, command, **args)
        return True

    def pass_time(self, ms: int) -> int:
        """Virtual time passes for everybody; how many timers fired. Real time is waited for, until the timers
        have fired that are due within `ms`."""
        if self._real_clock:
            return self._wait_for_timers(ms)
        for name, stopped in self.stopped.items():
            stopped.asked.append((self.hub.send(name, "advance", ms=ms), "advance"))
        return sum(self.hub.call_all(self.answering, "advance", ms=ms).values())

    def _wait_for_timers(self, ms: int) -> int:
        asked = self.hub.call_all(self.answering, "timers", within_ms=ms)
        until = {name: max(answer["due"]) for name, answer in asked.items() if answer["due"]}
        longest_ms = max((until[name] - asked[name]["now_ms"] for name in until), default=0)
        deadline = time.monotonic() + longest_ms / 1000 + TIMER_SLACK_S
        fired = sum(answer["fired"] for answer in asked.values())
        waiting = until
        while waiting:
            if time.monotonic() > deadline:
                late = ", ".join(waiting)
                raise BoundError(f"waited {longest_ms:,} ms and {TIMER_SLACK_S:.0f} s for timers of {late} to fire")
            answers = {name: self.hub.call(name, "timers", until_ms=until[name]) for name in waiting}
            waiting = {name: until[name] for name, answer in answers.items() if answer["due"]}
            if waiting:
                soonest_ms = min(min(answers[name]["due"]) - answers[name]["now_ms"] for name in waiting)
                self.hub.pump(max(soonest_ms, 1) / 1000)
        now = self.hub.call_all(list(asked), "timers", until_ms=0)
        return int(sum(answer["fired"] for answer in now.values()) - fired)

    # -- what a schedule does to them

    def stop(self, name: str, fault: str) -> Event:
        """An instance stands still; the event that says so."""
        self.stopped[name] = Stopped(idle=self._is_idle(name))
        self._witness.flight.stop(name)
        self._lab.act_on_process("stop", name, fault=fault, pid=self.hub.peers[name].pid)
        return self._witness.of("stopped")[-1]

    def go_on(self, name: str, fault: str) -> Event:
        """It goes on, and finds what it was sent; the time that has passed is among it."""
        stopped = self.stopped.pop(name)
        self._witness.flight.go_on(name)
        self._lab.act_on_process("continue", name, fault=fault, pid=self.hub.peers[name].pid)
        for identity, command in stopped.asked:
            self.hub.collect(identity, name, command)
        return self._witness.of("continued")[-1]

    def kill(self, name: str, fault: str) -> Event:
        """An instance dies; everything that it has reported is here when this returns."""
        stopped = self.stopped.pop(name, None)
        idle = stopped.idle if stopped is not None else self._is_idle(name)
        pid = self.hub.peers[name].pid
        self._lab.lose(name)
        self._lab.act_on_process("kill", name, fault=fault, pid=pid, idle=idle)
        deadline = time.monotonic() + END_BOUND_S
        while name in self.hub.peers:
            if time.monotonic() > deadline:
                raise BoundError(f"waited {END_BOUND_S:.0f} s for the connection of {name}, which is dead, to end")
            self.hub.pump(1.0)
        self._witness.flight.end(name)
        self.dead[name] = self._witness.of("killed")[-1]
        return self.dead[name]

    def restart(self, name: str, fault: str) -> Event:
        """Another process takes a dead one's place: same address, same name on the bus, a new incarnation."""
        was = self.dead[name]
        segment = self._lab.segments[name]
        peer = self._lab.replace(name, segment)
        self._witness.flight.replace(name)
        by = self._lab.recorder.record(
            "restarted",
            fault=fault,
            peer=name,
            pid=peer.pid,
            was_pid=was.data["pid"],
            segment=peer.facts["segment"],
            was_segment=segment,
            **({"agent": peer.facts["agent"], "was_agent": was.data["agent"]} if "agent" in was.data else {}),
        )
        generations = [event.gen or 0 for event in self._witness.of("page-private") if event.instance == name]
        apart = (max(generations, default=0) // GENERATIONS_APART + 1) * GENERATIONS_APART
        self._lab.tell_of_replacement([other for other in self.answering if other != name], segment)
        self._lab.begin(name, numbers_from=self._witness.known(name), generations_from=apart)
        del self.dead[name]
        self.unregistered.discard(name)
        self.replaced.add(name)
        return by

    def unregister(self, name: str, fault: str) -> Event:
        """The transport knows an instance's memory no more; the last of the events that say so."""
        self.hub.call(name, "unregister", fault=fault)
        self.unregistered.add(name)
        return self._witness.of("unregistered")[-1]

    def unmap(self, name: str, fault: str) -> Event:
        """Nothing is mapped where the transport knows an instance's memory; the last of the events that say so."""
        self.hub.call(name, "unmap", fault=fault)
        self.unregistered.add(name)
        return self._witness.of("unmapped")[-1]

    def register_again(self) -> None:
        """What was taken back is mapped and registered anew: the schedule is over."""
        for name in self.unregistered & set(self.answering):
            self.hub.call(name, "register")

    def _is_idle(self, name: str) -> bool:
        """Whether an instance has reported all that it did, and nothing is on its way to it: nobody has work of
        its own, and no message to it and no write of its is under way."""
        for _ in range(LOOKS):
            answers = self.hub.call_all(self.answering, "sync")
            if not any(answer["busy"] for answer in answers.values()) and not self._witness.flight.about(name):
                return True
        return False

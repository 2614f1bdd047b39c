"""Proves the built parts in a fresh process, before anything rests on them.

The driver writes to itself over the software device, through the gate: one write is held and the next
one on its queue pair must wait; released, both land in order, and the gate's counts equal the device's.
"""

from __future__ import annotations

import os
import queue
import subprocess
from typing import IO

from injectors.verbs.build import Built
from injectors.verbs.layout import MOVES, Kind, Message
from injectors.verbs.processes import Process, Processes
from racelab.errors import LabError
from racelab.transport.softhca import FABRIC_VARIABLE, Fabric

BOUND_S = 10.0


class Driven:
    """The driver under the preloads, and everything that its gate reports. Close it."""

    def __init__(
        self,
        built: Built,
        *,
        rails: int = 2,
        fabric: Fabric | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.reports: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.fabric = fabric or Fabric.create()
        self._owns_fabric = fabric is None
        self.processes = Processes(lambda process, message: self.reports.put(message), lambda process: None)
        preloads = {
            "LD_PRELOAD": built.preload(simulated=True),
            "RACELAB_VERBS_GATE": self.processes.address,
            "RACELAB_INSTANCE": "driver",
            FABRIC_VARIABLE: self.fabric.path,
            "SOFTHCA_RAILS": str(rails),
        }
        self.child = subprocess.Popen(
            [str(built.driver)],
            env=os.environ | preloads | (environment or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        ready = _words(self.child.stdout).split()
        if ready[:1] != ["ready"]:
            said = self.child.stderr.read() if self.child.stderr is not None else ""
            self.close()
            raise LabError(f"the verbs gate's self-test does not start: {' '.join(ready) or said or 'no word of it'}")
        self.target = int(ready[2])

    @property
    def process(self) -> Process:
        """The gate inside the driver."""
        return self.processes.named("driver")

    def ask(self, line: str) -> str:
        """One line to the driver, and its answer."""
        assert self.child.stdin is not None
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        return _words(self.child.stdout)

    def watch(self, number: int, at: int, size: int, action: int = 0, payload: int = 0) -> None:
        """Stop what goes to these offsets of the target."""
        self.process.command(
            Kind.WATCH, watch=number, address=self.target + at, size=size, state=action, number=payload
        )

    def moves(self) -> list[tuple[str, int, int]]:
        """What became of work requests since the last call: (move, watch, status)."""
        self.process.command(Kind.COUNT)  # its answer comes after every report of before
        found = []
        while not self.reports.empty():
            message = self.reports.get()
            if message.kind == Kind.REQUEST:
                found.append((MOVES[message.state], message.watch, message.status))
        return found

    def counts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Requests and bytes that went to the device: the gate's counts, the device's."""
        answer = self.process.command(Kind.COUNT)
        ports = [port for port in self.fabric.ports() if port.pid == self.process.pid]
        device = sum(port.posted_requests for port in ports), sum(port.posted_bytes for port in ports)
        return (answer.number, answer.size), device

    def close(self) -> None:
        """End the driver, and let go of everything."""
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self.child.wait(BOUND_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        if self.child.stderr is not None:
            self.child.stderr.close()
        self.processes.close()
        if self._owns_fabric:
            self.fabric.close()


def _words(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().strip()


def self_test(built: Built) -> None:
    """Hold, stall, release and count, once.

    Raises:
        LabError: the gate or the device does not do what it says, here.
    """
    driven = Driven(built)
    try:
        driven.watch(1, 0, 64)
        steps = [
            ("a held write is taken", driven.ask("post 0 0 64 7 s"), "0"),
            ("the one behind it is taken", driven.ask("post 0 64 64 8 s"), "0"),
            ("neither has landed", driven.ask("peek 0 128"), "0"),
            ("the other queue pair goes on", driven.ask("post 1 128 64 9 s"), "0"),
            ("its write lands", driven.ask("poll 1"), "3:0"),
        ]
        driven.process.command(Kind.RELEASE, watch=1)
        steps += [
            ("both complete in order", driven.ask("poll 2"), "1:0 2:0"),
            ("both have landed", driven.ask("peek 0 192"), "7 8 9"),
        ]
        ours, device = driven.counts()
        steps.append(("the counts are equal", str(ours), str(device)))
    finally:
        driven.close()
    for what, got, expected in steps:
        if got != expected:
            raise LabError(
                f"the verbs gate's self-test failed: {what}: {got!r}, expected {expected!r}",
                next="racelab doctor; the software device needs a kernel that lets one process write another's memory",
            )

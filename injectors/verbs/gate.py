"""The verbs gate: between the conductor, the writers that announce, and the preloaded libraries."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from injectors import entry
from injectors.verbs import INJECTOR
from injectors.verbs.beyond import Beyond
from injectors.verbs.build import Built
from injectors.verbs.holds import Holds, Wanted, Watched
from injectors.verbs.layout import ACTIONS, MOVES, OPCODES, PAYLOADS, STATES, Kind, Message
from injectors.verbs.processes import Process, Processes
from racelab import delays
from racelab.errors import LabError
from racelab.transport.lanes import acknowledge, read_announcement
from racelab.transport.softhca import FABRIC_VARIABLE, Fabric


class Gate:
    """Holds are kept in `holds`; queue pairs and registrations are remembered so that each run's history has them."""

    def __init__(
        self, speaker: entry.Speaker, built: Built, host: str, rails: int | None, beyond: Beyond | None = None
    ) -> None:
        self.recorder = speaker.recorder
        self.holds = self.new_holds()
        self.processes = Processes(self._report, self._ended)
        self.fabric = Fabric.create() if rails is not None else None
        self._rails = rails or 0
        self._beyond = beyond
        self._built = built
        self._announcements = entry.listen(host)
        self._host = host
        self._lock = threading.Lock()
        self._queue_pairs: dict[tuple[str, str, int], dict[str, Any]] = {}
        self._regions: dict[tuple[str, str, int], dict[str, Any]] = {}
        self._zero: dict[str, int] = {}
        self._refused = {"requests_refused": 0, "bytes_refused": 0}
        """that ended in an error: on a wire that counts packets, any part of them has left"""

    def new_holds(self) -> Holds:
        """What this gate holds; a gate that stops writes elsewhere has others."""
        return Holds(self.recorder, self.later)

    @property
    def facts(self) -> dict[str, Any]:
        """Where writers announce, and what the instances' processes need in their environment."""
        preload = self._built.preload(simulated=self.fabric is not None)
        if self._beyond is not None:
            environment = {"LD_PRELOAD": preload}
        else:
            before = os.environ.get("LD_PRELOAD")
            environment = {
                "LD_PRELOAD": f"{preload}:{before}" if before else preload,
                "RACELAB_VERBS_GATE": self.processes.address,
            }
        if self.fabric is not None:
            devices = [f"softhca{rail}" for rail in range(self._rails)]
            self._topology = _hidden_file("topology", json.dumps({"cpu:0": [devices, []]}))
            environment |= {
                FABRIC_VARIABLE: self.fabric.path,
                "SOFTHCA_RAILS": str(self._rails),
                "MC_CUSTOM_TOPO_JSON": self._topology,
                "MC_GID_INDEX": "0",
            }
        return {
            "announce": f"{self._host}:{self._announcements.getsockname()[1]}",
            "environment": environment,
            "built": self._built.folder.name,
        }

    def start(self) -> None:
        """Take announcements."""
        threading.Thread(target=self._accept, daemon=True).start()

    # -- commands

    def handlers(self) -> dict[str, Callable[..., Any]]:
        """What the conductor may ask, see racelab.gates."""
        return {
            "arm": self.arm,
            "release": lambda hold: self._let_go(hold, "release"),
            "drop": lambda hold: self._let_go(hold, "drop"),
            "reset": self.reset,
            "count": self.count,
            "expect": self.expect,
        }

    def expect(self, name: str) -> None:
        """An instance in the machine is about to be started: hear its agent."""
        assert self._beyond is not None
        self.processes.adopt(self._beyond.leave(name))

    def arm(
        self,
        hold: str,
        match: dict[str, Any],
        count: int,
        action: str = "hold",
        payload: str = INJECTOR.payload,
        ms: delays.Distribution | None = None,
        seed: str = "",
    ) -> None:
        """Stop the next `count` writes that agree; `action` and `payload` as in `layout`."""
        if action not in ACTIONS or payload not in PAYLOADS or (action == "ghost" and payload != INJECTOR.payload):
            raise LabError(f"the verbs gate knows no {action!r} with payload {payload!r}")
        self.holds.arm(hold, match, count, action, payload, delays.draws(ms, seed) if ms is not None else None)

    def later(self, delay_ms: float, write: Watched) -> None:
        """Let a write go on once so many ms are over."""
        timer = threading.Timer(delay_ms / 1e3, self._go_on, [write])
        timer.daemon = True
        timer.start()

    def _go_on(self, write: Watched) -> None:
        if self.holds.due(write):
            with suppress(LabError):  # the process has ended, and what it held with it
                self.processes.named(write.sender).command(Kind.RELEASE, watch=write.watch)

    def _let_go(self, hold: str, how: str) -> list[str]:
        going = self.holds.let_go(hold, how)
        self.open(going)
        kind = Kind.RELEASE if how == "release" else Kind.DROP
        for write in going:  # in the order in which they were announced, which is that of their queue pairs
            with suppress(LabError):  # the process has ended, and what it held with it
                self.processes.named(write.sender).command(kind, watch=write.watch)
        return [write.identity.write for write in going if write.held]

    def open(self, going: list[Watched]) -> None:
        """These are let go; a gate that stops them elsewhere lets them pass there."""

    def reset(self, incarnation: int) -> dict[str, Any]:
        """Begin an incarnation; the queue pairs and registrations that there are begin its history."""
        answer = self.holds.reset(incarnation)
        for process in self.processes.live:
            if process.command(Kind.FORGET).number and not answer["held"]:
                answer["held"] = [f"a work request of {process.name}"]
        self._zero = self._counts()
        with self._lock:
            for data in self._queue_pairs.values():
                self.recorder.record("queue-pair", **data)
            for data in self._regions.values():
                self.recorder.record("registration", **data)
        return answer

    def count(self) -> dict[str, int]:
        """Record and return requests and bytes that went to the devices since the last reset, theirs and ours."""
        counts = {name: value - self._zero.get(name, 0) for name, value in self._counts().items()}
        self.recorder.record("counted", gate=self.holds.gate, counts=counts)
        return counts

    def _counts(self) -> dict[str, int]:
        live = self.processes.live
        answers = [process.command(Kind.COUNT) for process in live]
        counts = {
            "requests": sum(answer.number for answer in answers),
            "bytes": sum(answer.size for answer in answers),
        }
        if self.fabric is not None:
            ports = [port for port in self.fabric.ports() if port.pid in {process.pid for process in live}]
            counts["requests_kernel"] = sum(port.posted_requests for port in ports)
            counts["bytes_kernel"] = sum(port.posted_bytes for port in ports)
        elif self._beyond is not None:
            with self._lock:
                counts |= self._beyond.counts() | self._refused
        return counts

    # -- writers

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._announcements.accept()
            except OSError:
                return
            threading.Thread(target=self._hear, args=(connection,), daemon=True).start()

    def _hear(self, writer: Any) -> None:
        with writer:
            try:
                while (announcement := read_announcement(writer)) is not None:
                    self.recorder.learned(announcement.sender, announcement.seq, announcement.hlc)
                    self.watch(self.holds.announce(announcement.sender, announcement.writes))
                    acknowledge(writer, announcement)
            except (OSError, ValueError, LabError) as error:
                print(f"{self.holds.gate} gate: a writer is not heard any more: {error}", file=sys.stderr, flush=True)

    def watch(self, wanted: list[Wanted]) -> None:
        """These writes are about to be posted."""
        for write, action, payload in wanted:
            self.follow(write, ACTIONS[action], PAYLOADS[payload])

    def follow(self, write: Watched, action: int, payload: int) -> None:
        """Have the library in the writer's process do this with a write, and tell of it."""
        self.processes.named(write.sender).command(
            Kind.WATCH,
            watch=write.watch,
            address=write.identity.peer_address,
            size=write.identity.bytes,
            state=action,
            number=payload,
        )

    # -- reports

    def _report(self, process: Process, message: Message) -> None:
        if message.kind == Kind.REQUEST:
            self._request(process, message)
            self.holds.moved(message)
        elif message.kind == Kind.QUEUE_PAIR:
            data = {
                "owner": process.name,
                "device": message.text,
                "qp": message.queue_pair,
                "state": STATES.get(message.state, str(message.state)),
                "peer": message.peer,
            }
            self._remember(
                "queue-pair", self._queue_pairs, (process.name, message.text, message.queue_pair), data, data["state"]
            )
        elif message.kind == Kind.REGION:
            data = {
                "owner": process.name,
                "device": message.text,
                "key": message.key,
                "address": message.address,
                "bytes": message.size,
                "valid": bool(message.state),
            }
            self._remember(
                "registration", self._regions, (process.name, message.text, message.key), data, data["valid"]
            )

    def _remember(
        self,
        kind: str,
        table: dict[tuple[str, str, int], dict[str, Any]],
        key: tuple[str, str, int],
        data: dict[str, Any],
        live: Any,
    ) -> None:
        with self._lock:
            if live in (False, "DESTROYED"):
                table.pop(key, None)
            else:
                table[key] = data
            self.recorder.record(kind, **data)

    def _request(self, process: Process, message: Message) -> None:
        if MOVES[message.state] == "completed" and message.status:
            with self._lock:
                self._refused["requests_refused"] += 1
                self._refused["bytes_refused"] += message.size
        self.recorder.record(
            "work-request",
            owner=process.name,
            device=message.text,
            qp=message.queue_pair,
            peer=message.peer,
            n=message.number,
            move=MOVES[message.state],
            opcode=OPCODES.get(message.opcode, str(message.opcode)),
            key=message.key,
            address=message.address,
            bytes=message.size,
            status=message.status,
        )

    def _ended(self, process: Process) -> None:
        self.holds.process_ended(process.name)
        with self._lock:
            for kind, table, last in (
                ("queue-pair", self._queue_pairs, {"state": "DESTROYED"}),
                ("registration", self._regions, {"valid": False}),
            ):
                for key in [key for key in table if key[0] == process.name]:
                    self.recorder.record(kind, **(table.pop(key) | last))


def _hidden_file(name: str, text: str) -> str:
    """A file that has no place on a disk and ends with this process; other processes of the user can open it."""
    descriptor = os.memfd_create(f"racelab-{name}")
    os.write(descriptor, text.encode())
    return f"/proc/{os.getpid()}/fd/{descriptor}"

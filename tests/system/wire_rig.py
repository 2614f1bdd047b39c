"""A hub, two real Mooncake engines and the wire gate between them, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from racelab.channel.hub import Hub
from racelab.evidence.events import Event
from racelab.evidence.recorder import Recorder
from racelab.gates import TOKEN_VARIABLE

PEER = Path(__file__).with_name("mooncake_peer.py")
PAGE = 64 << 10
MEMORY = 16 << 20
LANES = 16
"""Connections that one engine opens to a peer: 16 is the most that Mooncake takes."""
START_BOUND_S = 30.0


class Rig:
    """A hub, a writer, a target, and the gate between them; ends what it started."""

    def __init__(self) -> None:
        self.hub = Hub(Recorder("conductor"))
        self.events: list[Event] = []
        self.hub.on_event = self.events.append
        self.children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *arguments: str) -> dict[str, Any]:
        environment = os.environ | {
            TOKEN_VARIABLE: self.hub.token,
            "MC_TCP_LANES_PER_PEER": str(LANES),
            "GLOG_minloglevel": "2",
        }
        self.children[name] = subprocess.Popen([sys.executable, *arguments], env=environment, stdin=subprocess.DEVNULL)
        self.hub.wait_for(name, bound_s=START_BOUND_S, alive=lambda: self.check(name))
        return self.hub.peers[name].facts

    def start_peer(self, name: str) -> dict[str, Any]:
        return self.start(name, str(PEER), self.hub.address, name, str(MEMORY))

    def start_gate(self) -> None:
        self.gate = self.start(
            "wire", "-m", "injectors.wire", "--hub", self.hub.address, "--instance", "wire", "--target", self.target
        )

    def start_all(self) -> Rig:
        facts = self.start_peer("target")
        self.target, self.base = facts["segment"], facts["base"]
        self.start_gate()
        self.start_peer("writer")
        return self

    def check(self, name: str) -> None:
        assert self.children[name].poll() is None, f"{name} ended with {self.children[name].returncode}"

    def kill(self, name: str) -> None:
        self.hub.part_with(name)
        self.children[name].send_signal(signal.SIGKILL)
        self.children.pop(name).wait(10)
        while name in self.hub.peers:
            assert self.hub.pump(10), f"waited 10 s for the end of {name}"
        self.hub.forget(name)

    def close(self) -> None:
        self.hub.part_with(*self.children)
        self.hub.close()
        for child in self.children.values():
            child.terminate()
        for child in self.children.values():
            child.wait(10)

    # -- what the tests say

    def do(self, command: str, **args: Any) -> Any:
        return self.hub.call("wire", command, **args)

    def writer(self, command: str, **args: Any) -> Any:
        return self.hub.call("writer", command, **args)

    def peek(self, page: int, pages: int = 1) -> list[int]:
        values: list[int] = self.hub.call("target", "peek", start=page * PAGE, size=pages * PAGE)
        return values

    def post(self, pages: list[int], request: str = "r1", prefix: str = "w", writer: str = "writer") -> list[int]:
        """Announce and submit writes that fill these pages of the target from the same pages here."""
        self.announce(pages, request, prefix, writer)
        places = [page * PAGE for page in pages]
        handles: list[int] = self.hub.call(
            writer,
            "submit",
            segment=self.gate["segment"],
            sources=places,
            addresses=[self.base + place for place in places],
            sizes=[PAGE] * len(pages),
        )
        assert all(handles)
        return handles

    def announce(self, pages: list[int], request: str = "r1", prefix: str = "w", writer: str = "writer") -> None:
        writes = [
            {
                "write": f"{prefix}{page}",
                "request": request,
                "attempt": 1,
                "chunk": page // 2,
                "layer": page % 2,
                "page": page,
                "gen": 3,
                "address": self.base + page * PAGE,
                "bytes": PAGE,
            }
            for page in pages
        ]
        self.hub.call(writer, "announce", address=self.gate["announce"], writes=writes)

    def read(self, page: int, **identity: Any) -> list[int]:
        """Announce and submit a read of one of the target's pages into the same page here."""
        place = page * PAGE
        base = self.hub.peers["writer"].facts["base"]
        reads = {
            "write": f"d{page}",
            "request": "r1",
            "attempt": 1,
            "chunk": 0,
            "layer": 0,
            "page": page,
            "gen": 1,
            "address": base + place,
            "bytes": PAGE,
            "op": "read",
            "source": self.base + place,
        }
        self.writer("announce", address=self.gate["announce"], writes=[reads | identity])
        handles: list[int] = self.writer(
            "submit_reads", segment=self.gate["segment"], starts=[place], addresses=[self.base + place], sizes=[PAGE]
        )
        assert all(handles)
        return handles

    def finish(self, handles: list[int], writer: str = "writer") -> set[int]:
        """The different final codes of these writes."""
        return set(self.hub.call(writer, "finish", handles=handles))

    def await_events(self, kind: str, count: int) -> list[Event]:
        """Pump until `count` events of this kind have come since the last `events.clear()`."""
        deadline = time.monotonic() + 20
        while len(found := [event for event in self.events if event.kind == kind]) < count:
            remaining = deadline - time.monotonic()
            assert remaining > 0, f"waited 20 s for {count} {kind!r}, saw {[event.kind for event in self.events]}"
            self.hub.pump(remaining)
        return found

    def whats(self, kind: str) -> list[str]:
        return [event.data["what"] for event in self.events if event.kind == kind]


def boot() -> Iterator[Rig]:
    rig = Rig()
    try:
        yield rig.start_all()
    finally:
        rig.close()


def fresh(shared: Rig) -> Rig:
    """The warm rig: nothing held, target memory zero, writer memory 0xA1."""
    answer = shared.do("reset", incarnation=1)
    assert answer["held"] == []
    shared.hub.call("target", "fill", start=0, size=MEMORY, value=0)
    shared.writer("fill", start=0, size=MEMORY, value=0xA1)
    shared.events.clear()
    return shared


def assert_counts_agree(rig: Rig) -> dict[str, int]:
    counts: dict[str, int] = rig.do("count")
    assert counts["in"] == counts["in_kernel"]
    assert counts["out"] == counts["out_kernel"]
    return counts

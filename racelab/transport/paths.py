"""The ways from a writer to its target's memory, one class a transport: lanes, and proof of what carried what.

A path gives each write that some hold wants a lane of its own, so that a hold stalls nothing else, and
records at rest what the kernel or the device counted beside what was written.

    tcp    the gate's segment is a second name for the target's memory; its connections are the lane
    rdma   each hold has an engine of its own; its queue pairs are the lane, and the gate is inside the process
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from racelab.errors import LabError
from racelab.evidence.recorder import Recorder
from racelab.transport.home import Devices
from racelab.transport.lanes import WriteIdentity
from racelab.transport.metadata import data_port
from racelab.transport.sockets import own_to
from racelab.transport.tcp_layout import HEADER

LANES_MAX = 16
"""Holds of writes at once: each is a set of connections or queue pairs of its own."""

Start = Callable[[], Any]
"""Starts one more engine like the writer's own."""


class WritePath(Protocol):
    """What the transport asks of a path."""

    gated_lane: str

    def use_gate(self, segments: Mapping[str, str]) -> None:
        """The gate's names, by the segments that they stand for, where the gate has names."""

    def forget_holds(self) -> None:
        """Lanes may be given to other holds."""

    def lane(self, hold: str, segment: str) -> tuple[Any, str]:
        """The engine that takes the writes of a hold, and the name by which it reaches the target."""

    def register(self, address: int, size: int) -> None:
        """Memory was registered with the writer's own engine."""

    def unregister(self, address: int) -> None:
        """It is not any more."""

    def peer_replaced(self, segment: str) -> None:
        """Another process is where a peer was."""

    def goes_direct(self, segment: str, writes: Sequence[WriteIdentity]) -> Any:
        """These are about to go directly; the engine that takes them."""

    def succeeded(self, writes: Sequence[WriteIdentity]) -> None:
        """The API says that these have landed."""

    def record(self) -> None:
        """Record what the kernel or the device counted."""


class TcpPath:
    """Mooncake over TCP: direct writes are counted by the kernel on their connections."""

    gated_lane = "wire"

    def __init__(self, recorder: Recorder, engine: Any, start: Start) -> None:
        self._recorder = recorder
        self._engine = engine
        self._start = start
        self._replaced: list[Any] = []
        self._regions: dict[int, int] = {}
        self._gate_segments: Mapping[str, str] = {}
        self._direct_bytes: dict[str, int] = {}
        self._data_ports: dict[str, int] = {}

    def use_gate(self, segments: Mapping[str, str]) -> None:
        self._gate_segments = segments

    def forget_holds(self) -> None:
        pass

    def lane(self, hold: str, segment: str) -> tuple[Any, str]:
        return self._engine, self._gate_segments[segment]

    def register(self, address: int, size: int) -> None:
        self._regions[address] = size
        if self._replaced:
            _register(self._engine, address, size)

    def unregister(self, address: int) -> None:
        self._regions.pop(address, None)
        if self._replaced:
            self._engine.unregister_memory(address)

    def peer_replaced(self, segment: str) -> None:
        """Writes go by a new engine from now on. What went to the dead process is counted by nobody any more."""
        self._replaced.append(self._engine)
        self._engine = self._start()
        for address, size in self._regions.items():
            _register(self._engine, address, size)
        self._direct_bytes.pop(segment, None)
        self._data_ports.pop(segment, None)

    def goes_direct(self, segment: str, writes: Sequence[WriteIdentity]) -> Any:
        size = sum(HEADER.size + (write.bytes if write.op == "write" else 0) for write in writes)
        self._direct_bytes[segment] = self._direct_bytes.get(segment, 0) + size
        return self._engine

    def succeeded(self, writes: Sequence[WriteIdentity]) -> None:
        pass

    def record(self) -> None:
        """Each connection counts from its first byte, so expected and acked are sums over the engine's life."""
        for segment, expected in self._direct_bytes.items():
            port = self._data_ports.setdefault(segment, data_port(segment))
            seen = own_to(port)
            acked = sum(one.acked for one in seen)
            self._recorder.record("sockets", lanes=len(seen), acked=acked, expected=expected)


class RdmaPath:
    """Mooncake over RDMA: the device counts what landed; a hold's writes take the queue pairs of another engine.

    Raises:
        LabError: the engine has opened no RDMA device. Mooncake falls back to TCP without a word.
    """

    gated_lane = "verbs"

    def __init__(self, recorder: Recorder, engine: Any, start: Start, devices: Devices) -> None:
        self._recorder = recorder
        self._engine = engine
        self._start = start
        self._devices = devices
        self._lanes: dict[str, Any] = {}
        self._idle: list[Any] = []
        self._engines: list[Any] = []
        self._regions: dict[int, int] = {}
        self._landed_bytes = 0
        if not devices.rails():
            raise LabError(
                "Mooncake has opened no RDMA device, and would go over TCP without a word",
                next="racelab doctor --cluster CLUSTER",
            )

    def use_gate(self, segments: Mapping[str, str]) -> None:
        pass

    def forget_holds(self) -> None:
        self._idle = list(self._engines)
        self._lanes.clear()

    def lane(self, hold: str, segment: str) -> tuple[Any, str]:
        if hold not in self._lanes:
            self._lanes[hold] = self._idle.pop() if self._idle else self._another()
        return self._lanes[hold], segment

    def _another(self) -> Any:
        if len(self._engines) == LANES_MAX:
            raise LabError(f"more than {LANES_MAX} holds of writes at once", next="hold fewer")
        engine = self._start()
        for address, size in self._regions.items():
            _register(engine, address, size)
        self._engines.append(engine)
        return engine

    def register(self, address: int, size: int) -> None:
        self._regions[address] = size
        for engine in self._engines:
            _register(engine, address, size)

    def unregister(self, address: int) -> None:
        self._regions.pop(address, None)
        for engine in self._engines:
            engine.unregister_memory(address)

    def peer_replaced(self, segment: str) -> None:
        pass  # the engine asks for keys at each write, and makes its queue pairs anew once one has failed

    def goes_direct(self, segment: str, writes: Sequence[WriteIdentity]) -> Any:
        return self._engine

    def succeeded(self, writes: Sequence[WriteIdentity]) -> None:
        self._landed_bytes += sum(write.bytes for write in writes)

    def record(self) -> None:
        """Sums over the life of the process. A NIC has no counts of one process: `landed` is then unknown. What has
        landed of accesses that failed (the run's history tells of them) is expected from then on."""
        landed, expected = self._devices.landed(), self._landed_bytes
        self._recorder.record("rails", rails=self._devices.rails(), landed=landed, expected=expected)
        self._landed_bytes = max(expected, landed or 0)


def _register(engine: Any, address: int, size: int) -> None:
    if engine.register_memory(address, size) != 0:
        raise LabError(f"Mooncake refuses to register {size} bytes at {address:#x}")

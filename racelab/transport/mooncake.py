"""Mooncake's TransferEngine as the engines use it: registered regions, posted writes, completions.

Every write publishes its identity (a `posted` event) before it is submitted, and takes one of two
lanes: `direct`, or that of the hold that wants it (racelab.transport.paths), chosen beforehand so
that a write that nobody wants to hold never waits for one. https://github.com/kvcache-ai/Mooncake
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from racelab.errors import LabError, MissingPartError
from racelab.evidence.recorder import Recorder
from racelab.transport.home import Devices, Home, KernelDevices, SoftwareDevices
from racelab.transport.lanes import Announcer, Lanes, WriteIdentity
from racelab.transport.messages import Message
from racelab.transport.notices import Notices, received
from racelab.transport.paths import LANES_MAX, RdmaPath, TcpPath, WritePath
from racelab.transport.ports import pinned, window_of_environment
from racelab.transport.softhca import Fabric

METADATA = "P2PHANDSHAKE"
_VARIABLES = {"MC_TCP_LANES_PER_PEER": str(LANES_MAX), "GLOG_minloglevel": "2"}
_RDMA_VARIABLES = {"MC_DISABLE_METACACHE": "1"}
"""Memory is registered anew for each run; a writer that kept the old keys would write with them first, and
over RDMA lose its connection by that."""


def variables(protocol: str) -> dict[str, str]:
    """What a process needs in its environment before it imports the engine. Time-outs stay at their defaults."""
    return _VARIABLES | (_RDMA_VARIABLES if protocol == "rdma" else {})


SYSTEM_LIBRARIES = {"libibverbs.so.1": "libibverbs1", "libnuma.so.1": "libnuma1", "libcurl.so.4": "libcurl4"}


@dataclass(frozen=True)
class Write:
    """One one-sided access: where its bytes go (`identity`), and which bytes they are.

    A write takes local bytes, from `source_address` on. A read takes those of a peer: `reads_from` is its name,
    `source_gen` the generation of its page, and `fingerprint` what its reference says that they are.
    """

    identity: WriteIdentity
    source_address: int
    source_page: int | None
    fingerprint: str
    chunks: str | None = None
    """the fingerprints of its chunks (racelab.evidence.fingerprint)"""
    source_gen: int | None = None
    reads_from: str | None = None
    to: str | None = None
    """of a write: whose memory it goes to, where several instances have such"""


@dataclass(frozen=True)
class Completion:
    """What the API said of a batch: `ok`, `failed` or `timeout`, with its code."""

    batch: str
    writes: tuple[Write, ...]
    status: str
    code: int


@dataclass
class _Batch:
    """Writes posted together, each under a handle of its own.

    Mooncake's own batch handle will not do: `transfer_check_status` answers for its first write alone
    (0.3.13; tests/system/test_wire_gate.py shows it), so a batch would be complete before it has landed.
    """

    name: str
    writes: tuple[Write, ...]
    engine: Any
    pending: list[int]
    direct: bool
    code: int = 1


_STATUS = {1: "ok", -1: "failed", -2: "timeout"}


class Transport:
    """One TransferEngine. Not thread-safe: the instance's event loop owns it."""

    def __init__(
        self, host: str, recorder: Recorder, *, protocol: str = "tcp", device: str = "", home: Home | None = None
    ) -> None:
        self._recorder = recorder
        home = home or OwnProcess(host, protocol, device)
        self._engine = home.engine()
        self.segment = f"{host}:{self._engine.get_rpc_port()}"
        self.lanes = Lanes()
        self._path: WritePath
        if protocol == "rdma":
            self._path = RdmaPath(recorder, self._engine, home.engine, home.devices())
        else:
            self._path = TcpPath(recorder, self._engine, home.engine)
        self.notices = Notices(home.engine)
        self._announcer: Announcer | None = None
        self._regions: list[int] = []
        self._batches: list[_Batch] = []
        self._count = 0

    def register(self, regions: Iterable[tuple[int, int]]) -> None:
        """Register [(address, bytes)] anew, in place of what was registered before."""
        self.unregister()
        for address, size_bytes in regions:
            if self._engine.register_memory(address, size_bytes) != 0:
                raise LabError(f"Mooncake refuses to register {size_bytes} bytes at {address:#x}")
            self._path.register(address, size_bytes)
            self._regions.append(address)

    def unregister(self) -> None:
        """Take back every registration."""
        for address in self._regions:
            self._engine.unregister_memory(address)
            self._path.unregister(address)
        self._regions.clear()

    def use_gate(self, segments: dict[str, str], announce: str) -> None:
        """Where accesses that a hold wants go, by the segment that they aim at, if the gate has names of its own
        for them, and where they are announced first."""
        self._path.use_gate(segments)
        self.notices.use_gate(segments)
        if self._announcer is not None:
            self._announcer.close()
        self._announcer = Announcer(announce)

    def arm_lane(self, hold: str, match: dict[str, Any], count: int) -> None:
        """Have what a hold wants go by its gate: accesses that agree, or notifications, which have a type."""
        if "type" in match:
            self.notices.arm(hold)
        else:
            self.lanes.arm(hold, match, count)

    def disarm_lane(self, hold: str) -> None:
        """A hold wants nothing more."""
        self.notices.disarm(hold)
        self.lanes.disarm(hold)

    def peer_replaced(self, segment: str) -> None:
        """Another process is at a peer's address. It is reached by a path of its own: an engine remembers what
        the dead one said of itself, its data port among it, and never asks again (Mooncake 0.3.13 over TCP)."""
        self._path.peer_replaced(segment)
        self.notices.forget_peers()

    def post(self, segment: str, writes: list[Write]) -> None:
        """Submit writes to, or reads from, a peer's segment, of one attempt and each on its lane; completions
        come from `poll`."""
        direct: list[Write] = []
        by_hold: dict[str, list[Write]] = {}
        if self.lanes.takes_batches():
            writes = self._as_batch(writes)
        for write in writes:
            hold = self.lanes.choose(write.identity)
            (direct if hold is None else by_hold.setdefault(hold, [])).append(write)
        if direct:
            engine = self._path.goes_direct(segment, [write.identity for write in direct])
            self._submit(engine, segment, "direct", direct)
        for hold, gated in by_hold.items():
            engine, name = self._path.lane(hold, segment)
            self._submit(engine, name, self._path.gated_lane, gated)

    def _as_batch(self, writes: list[Write]) -> list[Write]:
        """The same, each with the name of what is submitted together: the first that is submitted of it has that."""
        about = {"batch": f"b{self._count + 1}", "batch_writes": len(writes)}
        return [replace(write, identity=msgspec.structs.replace(write.identity, **about)) for write in writes]

    def forget_lanes(self) -> None:
        """A new incarnation: no hold wants anything."""
        self.lanes.forget()
        self.notices.forget_holds()
        received(self._engine)  # of the last incarnation
        self._path.forget_holds()

    def poll(self) -> list[Completion]:
        """Batches that the API has finished since the last call."""
        done = [batch for batch in self._batches if self._finished(batch)]
        for batch in done:
            self._batches.remove(batch)
        return [self._complete(batch) for batch in done]

    def _finished(self, batch: _Batch) -> bool:
        """Ask for every write that is not terminal yet: a terminal answer frees its handle."""
        for handle in list(batch.pending):
            code = batch.engine.transfer_check_status(handle) if handle else -1
            if code != 0:
                batch.pending.remove(handle)
                batch.code = min(batch.code, code)
        return not batch.pending

    def _complete(self, batch: _Batch) -> Completion:
        completion = Completion(batch.name, batch.writes, _STATUS.get(batch.code, "failed"), batch.code)
        if completion.status == "ok":
            self._path.succeeded([write.identity for write in batch.writes])
        about = batch.writes[0].identity
        self._recorder.record(
            "completed",
            about.request,
            about.attempt,
            batch=batch.name,
            writes=[write.identity.write for write in batch.writes],
            status=completion.status,
            code=completion.code,
        )
        return completion

    def told(self) -> list[Message]:
        """The notifications that have come since the last call; of one that is no message that is recorded."""
        messages: list[Message] = []
        for each in received(self._engine):
            if isinstance(each, Message):
                messages.append(each)
            else:
                self._recorder.record("unreadable", why=each)
        return messages

    @property
    def outstanding(self) -> int:
        """Writes whose batch the API has not finished."""
        return sum(len(batch.writes) for batch in self._batches)

    @property
    def direct_outstanding(self) -> int:
        """Those of them that no hold wanted: nothing but the transport keeps them."""
        return sum(len(batch.writes) for batch in self._batches if batch.direct)

    def record_sockets(self) -> None:
        """Record what the kernel or the RDMA device counted for this process, beside what was written."""
        self._path.record()

    def close(self) -> None:
        """Take back registrations and hang up on the gate."""
        self.unregister()
        if self._announcer is not None:
            self._announcer.close()

    def _submit(self, engine: Any, segment: str, lane: str, writes: list[Write]) -> None:
        self._count += 1
        batch = f"b{self._count}"
        for write in writes:
            self._record_post(write, batch, lane)
        if lane != "direct":
            assert self._announcer is not None, "a lane was armed before the gate was known"
            self._announcer.announce(
                [write.identity for write in writes],
                seq=self._recorder.seq,
                hlc=self._recorder.clock.tick(),
                sender=self._recorder.instance,
            )
        handles = [_started_transfer(engine, segment, write) for write in writes]
        self._batches.append(_Batch(batch, tuple(writes), engine, handles, lane == "direct"))

    def _record_post(self, write: Write, batch: str, lane: str) -> None:
        identity = write.identity
        self._recorder.record(
            "posted",
            identity.request,
            identity.attempt,
            identity.page,
            identity.gen,
            write=identity.write,
            batch=batch,
            lane=lane,
            layer=identity.layer,
            chunk=identity.chunk,
            address=identity.address,
            bytes=identity.bytes,
            source_page=write.source_page,
            fingerprint=write.fingerprint,
            **identity.of,
            **({"chunks": write.chunks} if write.chunks is not None else {}),
            **({"to": write.to} if write.to is not None else {}),
            **(of_a_read(write) if identity.op == "read" else {}),
        )


def _started_transfer(engine: Any, segment: str, write: Write) -> int:
    """A handle of its own for each access; 0 if the engine does not take it.

    There is no call that submits one read: a batch of one has the same handle (tests/system/test_reads.py).
    """
    identity = write.identity
    if identity.op == "read":
        handle = engine.batch_transfer_async_read(segment, [identity.address], [identity.source], [identity.bytes])
    else:
        handle = engine.transfer_submit_write(segment, write.source_address, identity.address, identity.bytes)
    return int(handle)


def of_a_read(write: Write) -> dict[str, Any]:
    """What `posted` says of a read beside what it says of a write."""
    return {
        "op": "read",
        "source_instance": write.reads_from,
        "source_gen": write.source_gen,
        "source_address": write.identity.source,
    }


class OwnProcess:
    """The home of an instance whose engines and pages are in its own process."""

    def __init__(self, host: str, protocol: str, device: str, port: int | None = None) -> None:
        self._host = host
        self._protocol = protocol
        self._device = device
        self._port = port

    @property
    def facts(self) -> dict[str, int]:
        """The engines are here."""
        return {}

    def engine(self) -> Any:
        """One more TransferEngine, running; the first one at a port of one's choice, if one was given."""
        port, self._port = self._port, None
        return pinned(self._started, port, window_of_environment())

    def _started(self) -> Any:
        engine = _engine(self._protocol)
        code = engine.initialize(self._host, METADATA, self._protocol, self._device)
        if code != 0:
            raise LabError(
                f"Mooncake does not start on {self._host} over {self._protocol}: code {code}", next="racelab doctor"
            )
        return engine

    def devices(self) -> Devices:
        """The software device's if this process is on one."""
        fabric = Fabric.of_environment()
        return SoftwareDevices(fabric) if fabric is not None else KernelDevices()

    def memory(self, size: int) -> None:
        """Any memory will do."""

    def close(self) -> None:
        """It ends with the process."""


def _engine(protocol: str) -> Any:
    os.environ.update({key: value for key, value in variables(protocol).items() if key not in os.environ})
    try:
        from mooncake.engine import TransferEngine
    except ImportError as error:
        raise MissingPartError(f"Mooncake cannot be loaded: {error}", next=advice(str(error))) from None
    return TransferEngine()


def advice(message: str) -> str:
    """What to install when the import of Mooncake fails with `message`."""
    for library, package in SYSTEM_LIBRARIES.items():
        if library in message:
            return f"install {library}: on Debian and Ubuntu, `apt-get install {package}`"
    if "cuda" in message:
        return "this machine has no CUDA: install the extra `cpu` in place of `cuda12` or `cuda13`"
    return "install one of the extras: pip install 'racelab-pd[cpu]' (or cuda12, cuda13)"

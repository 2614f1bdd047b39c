"""An instance's agent in the machine, as the instance sees it: page memory to share, engines to post with.

The memory is the machine's own. Its RAM is a file on the host, and an agent says where in it its pages
lie, so the engine here reads and writes the very bytes that the kernel's verbs put there: there is no copy
that could differ. What has to happen in the machine (Mooncake, registrations) goes by messages; a write is
submitted without waiting, and its end is told.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from racelab.errors import BoundError, LabError, PeerDiedError
from racelab.vm.client import Supervisor, machine
from racelab.vm.machine import NAME, Machine

ANSWER_BOUND_S = 60.0
HUGE_BYTES = 2 << 20
_CODE = Path(__file__).with_name("guest") / "agent.py"
_MAP_FIXED = 0x10


class Agent:
    """One process in the machine. Not thread-safe: the instance's event loop owns it.

    `environment` goes into the process; with `kept` it gets the connection that the gate left with the
    supervisor under that name, in place of each of `kept_variables`.
    """

    def __init__(self, role: str, environment: Mapping[str, str], kept: str = "", kept_variable: str = "") -> None:
        self._machine = machine()
        self.role = role
        self._requests = 0
        self._accesses = 0
        self._buffered = b""
        self._ended: dict[int, int] = {}
        supervisor = Supervisor(self._machine)
        self._socket = supervisor.socket
        self._socket.settimeout(ANSWER_BOUND_S)
        supervisor.send(
            "agent",
            argv=[sys.executable, "-u"],
            code=_CODE.read_text(),
            environment=dict(environment),
            kept=kept,
            kept_variables=[kept_variable] if kept_variable else [],
        )
        self.pid = int(self._answer(None, "start"))

    def ask(self, do: str, **arguments: Any) -> Any:
        """Ask, and wait for the answer; what is told meanwhile is kept.

        Raises:
            LabError: the agent refuses.
            BoundError: it does not answer.
            PeerDiedError: it has ended.
        """
        self._requests += 1
        self._send({"id": self._requests, "do": do} | arguments)
        return self._answer(self._requests, do)

    def submit(self, engine: int, segment: str, op: str, local: int, remote: int, size: int) -> int:
        """Post one access (`op` is write or read) without waiting; `ended` tells what became of it."""
        self._accesses += 1
        accesses = [[self._accesses, local, remote, size]]
        self._send({"do": "submit", "engine": engine, "segment": segment, "op": op, "accesses": accesses})
        return self._accesses

    def ended(self, access: int) -> int:
        """What the engine said of an access, as `transfer_check_status`: 0 is not yet; any other is given once."""
        if access not in self._ended:
            self._drain()
        return self._ended.pop(access, 0)

    def close(self) -> None:
        """Hang up; the agent ends."""
        self._socket.close()

    def _send(self, request: dict[str, Any]) -> None:
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError:
            raise PeerDiedError(f"{self.role}'s agent in {NAME}", str(request["do"])) from None

    def _answer(self, number: int | None, do: str) -> Any:
        while True:
            for message in self._receive(do):
                if message.get("id", number) != number:
                    continue
                if "error" in message:
                    raise LabError(f"{self.role}'s agent in {NAME} refuses {do!r}: {message['error']}")
                return message["ok"]

    def _drain(self) -> None:
        self._socket.setblocking(False)
        try:
            self._receive("an access")
        except BlockingIOError:
            pass
        finally:
            self._socket.settimeout(ANSWER_BOUND_S)

    def _receive(self, do: str) -> list[dict[str, Any]]:
        """The messages of one read, less those that tell of accesses."""
        try:
            data = self._socket.recv(1 << 16)
        except TimeoutError:
            raise BoundError(f"{self.role}'s agent did not answer {do!r} in {ANSWER_BOUND_S:.0f} s") from None
        except BlockingIOError:
            raise
        except OSError:
            data = b""
        if not data:
            raise PeerDiedError(f"{self.role}'s agent in {NAME}", do)
        *lines, self._buffered = (self._buffered + data).split(b"\n")
        answers = []
        for line in lines:
            message = json.loads(line)
            for access, code in message.get("done", ()):
                self._ended[access] = code
            if "done" not in message:
                answers.append(message)
        return answers

    # -- memory

    def memory(self, size: int) -> AgentMemory:
        """`size` bytes of this agent's memory, mapped here too."""
        found = self.ask("memory", bytes=size)
        return AgentMemory(self, found["address"], size, _mapped(self._machine, found["frames"]), found["frames"])


class AgentMemory:
    """Memory of the machine: `bytes` here is what lies at `address` there."""

    def __init__(self, agent: Agent, address: int, size: int, mapped: NDArray[numpy.uint8], frames: list[int]) -> None:
        self.address = address
        self.bytes = mapped[:size]
        self._agent = agent
        self._frames = frames

    def check(self) -> None:
        """The machine has not moved it.

        Raises:
            LabError: it has; what is seen here is then something else.
        """
        size = len(self._frames) * HUGE_BYTES
        if self._agent.ask("frames", address=self.address, bytes=size) != self._frames:
            raise LabError(f"{NAME} has moved the page memory of {self._agent.role}", next="run again")


class AgentEngine:
    """A TransferEngine in the machine, with as much of Mooncake's interface as the transport uses."""

    def __init__(self, agent: Agent, host: str, device: str, port: int | None = None) -> None:
        self._agent = agent
        started = agent.ask("engine", host=host, device=device, port=port)
        self._engine = int(started["engine"])
        self._port = int(started["port"])

    # the names are Mooncake's

    def get_rpc_port(self) -> int:
        return self._port

    def register_memory(self, address: int, size: int) -> int:
        return int(self._agent.ask("register", engine=self._engine, address=address, bytes=size))

    def unregister_memory(self, address: int) -> int:
        return int(self._agent.ask("unregister", engine=self._engine, address=address))

    def transfer_submit_write(self, segment: str, source: int, target: int, size: int) -> int:
        return self._agent.submit(self._engine, segment, "write", source, target, size)

    def batch_transfer_async_read(self, segment: str, targets: list[int], sources: list[int], sizes: list[int]) -> int:
        (target,), (source,), (size,) = targets, sources, sizes
        return self._agent.submit(self._engine, segment, "read", target, source, size)

    def transfer_check_status(self, handle: int) -> int:
        return self._agent.ended(handle)

    def get_notifies(self) -> list[Any]:
        return []  # nothing is sent any: a lab whose news are notifications is refused over RDMA


def _mapped(of: Machine, frames: list[int]) -> NDArray[numpy.uint8]:
    """The machine's memory at these physical addresses (huge pages), in one piece here."""
    size = len(frames) * HUGE_BYTES
    anchor = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(anchor))
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    descriptor = os.open(of.memory(), os.O_RDWR | os.O_CLOEXEC)
    try:
        for number, frame in enumerate(frames):
            there = address + number * HUGE_BYTES
            flags = mmap.MAP_SHARED | _MAP_FIXED
            if library.mmap(there, HUGE_BYTES, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, frame) != there:
                raise LabError(f"cannot map the memory of {NAME}: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(descriptor)
    return numpy.frombuffer(anchor, dtype=numpy.uint8)

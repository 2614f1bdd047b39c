"""An instance's agent in the machine: page memory and Mooncake's engines, on behalf of the instance on the host.

It is sent along with the request that starts it (racelab/vm/agent.py), so it is of the same version as its
other end. One line of JSON a request, answered by {"id", "ok"} or {"id", "error"}; `submit` is not answered,
but the end of each access is told: {"done": [[number, code], ...]}. It ends when its instance hangs up.

    memory(bytes)                       -> {"address", "frames"}: huge pages, and where they lie in the machine
    engine(host, device[, port])        -> {"engine", "port"}: at a port that a dead agent's engine had
    register / unregister(engine, address[, bytes])
    submit(engine, segment, op, accesses: [[number, local, remote, bytes], ...])       op: write or read
    rails()                             -> how many RDMA devices this process has open
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import select
import socket
import struct
import sys
from typing import IO, Any

HUGE_BYTES = 2 << 20
MAP_HUGETLB = 0x40000
FRAME = (1 << 55) - 1
POLL_S = 2e-3


class Agent:
    """Single-threaded; what Mooncake starts in its own threads is its own business."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.engines: list[Any] = []
        self.memory_kept: list[mmap.mmap] = []
        self.flying: dict[int, tuple[Any, int]] = {}
        self.buffered = b""

    def serve(self) -> None:
        """Requests and the ends of writes, until the instance hangs up."""
        while True:
            timeout = POLL_S if self.flying else None
            readable, _, _ = select.select([self.connection], [], [], timeout)
            if readable:
                data = self.connection.recv(1 << 16)
                if not data:
                    return
                *lines, self.buffered = (self.buffered + data).split(b"\n")
                for line in lines:
                    self.take(json.loads(line))
            self.tell_ended()

    def take(self, request: dict[str, Any]) -> None:
        """One request."""
        do = getattr(self, "do_" + request.pop("do"))
        number = request.pop("id", None)
        try:
            answer = {"id": number, "ok": do(**request)}
        except Exception as error:
            answer = {"id": number, "error": f"{type(error).__name__}: {error}"}
        if number is not None or "error" in answer:
            self.say(answer)

    def say(self, answer: dict[str, Any]) -> None:
        """One line back."""
        self.connection.sendall(json.dumps(answer).encode() + b"\n")

    def tell_ended(self) -> None:
        """Ask for every write that is not terminal yet: a terminal answer frees its handle."""
        done: list[list[int]] = []
        for write, (engine, handle) in list(self.flying.items()):
            code = engine.transfer_check_status(handle) if handle else -1
            if code:
                del self.flying[write]
                done.append([write, code])
        if done:
            self.say({"done": done})

    def do_memory(self, bytes: int) -> dict[str, Any]:
        size = -(-bytes // HUGE_BYTES) * HUGE_BYTES
        block = mmap.mmap(-1, size, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | MAP_HUGETLB)
        for at in range(0, size, HUGE_BYTES):
            block[at] = 0
        self.memory_kept.append(block)
        address = ctypes.addressof(ctypes.c_char.from_buffer(block))
        return {"address": address, "frames": self.do_frames(address, size)}

    def do_frames(self, address: int, bytes: int) -> list[int]:
        with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
            return [self.frame(pagemap, at) for at in range(address, address + bytes, HUGE_BYTES)]

    def frame(self, pagemap: IO[bytes], address: int) -> int:
        pagemap.seek(address // mmap.PAGESIZE * 8)
        return (int(struct.unpack("<Q", pagemap.read(8))[0]) & FRAME) * mmap.PAGESIZE

    def do_engine(self, host: str, device: str, port: int | None = None) -> dict[str, int]:
        if port is None:
            engine = self.started(host, device)
        else:
            from racelab.transport import ports

            ports.free_again(host, port)
            engine = ports.pinned(lambda: self.started(host, device), port, ports.window_of_environment())
        self.engines.append(engine)
        return {"engine": len(self.engines) - 1, "port": engine.get_rpc_port()}

    def started(self, host: str, device: str) -> Any:
        from mooncake.engine import TransferEngine

        engine = TransferEngine()
        code = engine.initialize(host, "P2PHANDSHAKE", "rdma", device)
        if code:
            raise OSError(f"Mooncake does not start on {host}, {device}: code {code}")
        return engine

    def do_register(self, engine: int, address: int, bytes: int) -> int:
        return int(self.engines[engine].register_memory(address, bytes))

    def do_unregister(self, engine: int, address: int) -> int:
        return int(self.engines[engine].unregister_memory(address))

    def do_submit(self, engine: int, segment: str, op: str, accesses: list[list[int]]) -> None:
        through = self.engines[engine]
        for number, local, remote, size in accesses:
            if op == "read":
                handle = through.batch_transfer_async_read(segment, [local], [remote], [size])
            else:
                handle = through.transfer_submit_write(segment, local, remote, size)
            self.flying[number] = (through, handle)

    def do_rails(self) -> int:
        opened = (os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
        return sum(name.startswith("/dev/infiniband/uverbs") for name in opened)


def main() -> None:
    """Be the agent of the instance at the other end of the inherited connection."""
    with socket.socket(fileno=int(sys.argv[-1])) as connection:
        agent = Agent(connection)
        agent.say({"ok": os.getpid()})
        agent.serve()
    os._exit(0)  # an engine with a request outstanding takes long to end, and nothing of it is needed


if __name__ == "__main__":
    main()

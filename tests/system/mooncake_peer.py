"""A Mooncake engine in a process of its own, driven over the step channel: a writer or a target.

python mooncake_peer.py HUB NAME MEMORY_BYTES
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
import time
from typing import Any

import numpy as np
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode

from racelab.channel.link import Link
from racelab.evidence.recorder import Recorder
from racelab.gates import TOKEN_VARIABLE
from racelab.transport.lanes import Announcer, WriteIdentity
from racelab.transport.ports import pinned, window_of_environment
from racelab.transport.sockets import connections, listening_ports


def _started() -> TransferEngine:
    engine = TransferEngine()
    protocol = os.environ.get("MOONCAKE_PEER_PROTOCOL", "tcp")
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", protocol, "") == 0
    return engine


class Peer:
    """Memory registered with one engine; offsets are into that memory."""

    def __init__(self, hub: str, name: str, size: int) -> None:
        self.recorder = Recorder(name)
        port = os.environ.get("MOONCAKE_PEER_PORT")
        self.engine = pinned(_started, int(port) if port else None, window_of_environment())
        self.memory = np.zeros(size, dtype=np.uint8)
        self.base = self.memory.ctypes.data
        self.codes: list[int] = []
        self.idle: list[TransferEngine] = []
        assert self.engine.register_memory(self.base, size) == 0
        self.link = Link(
            hub,
            os.environ[TOKEN_VARIABLE],
            self.recorder,
            segment=f"127.0.0.1:{self.engine.get_rpc_port()}",
            base=self.base,
            listening=listening_ports(),
        )

    def fill(self, start: int, size: int, value: int) -> None:
        self.memory[start : start + size] = value

    def peek(self, start: int, size: int) -> list[int]:
        return [int(value) for value in np.unique(self.memory[start : start + size])]

    def announce(self, address: str, writes: list[dict[str, Any]]) -> None:
        event = self.recorder.record("posted", writes=len(writes))
        announcer = Announcer(address)
        announcer.announce(
            [WriteIdentity(**write) for write in writes], event.seq, self.recorder.clock.tick(), self.recorder.instance
        )
        announcer.close()

    def submit(self, segment: str, sources: list[int], addresses: list[int], sizes: list[int]) -> list[int]:
        """Submit each write on a handle of its own."""
        writes = zip(sources, addresses, sizes, strict=True)
        return [self.engine.transfer_submit_write(segment, self.base + source, *rest) for source, *rest in writes]

    def submit_batch(self, segment: str, sources: list[int], addresses: list[int], sizes: list[int]) -> int:
        """Submit all on one handle."""
        starts = [self.base + source for source in sources]
        handle: int = self.engine.batch_transfer_async_write(segment, starts, addresses, sizes)
        return handle

    def scatter(self, segment: str, source: int, address: int, size: int) -> None:
        """A write that is followed by a ticket (Mooncake 0.3.14)."""
        memory = [self.base], [self.memory.nbytes], [address], [size]
        self.ticket = self.engine.submit_scatter_write(segment, *memory, [[source]], [[0]], [[size]])

    def drain(self, timeout_ms: int) -> str:
        """What the ticket says once nothing of it is under way at the sender, or the time is over."""
        return str(self.ticket.drain(timeout_ms).name)

    def submit_reads(self, segment: str, starts: list[int], addresses: list[int], sizes: list[int]) -> list[int]:
        """Submit each read on a handle of its own."""
        reads = zip(starts, addresses, sizes, strict=True)
        return [
            self.engine.batch_transfer_async_read(segment, [self.base + start], [address], [size])
            for start, address, size in reads
        ]

    def status(self, handle: int) -> int:
        code: int = self.engine.transfer_check_status(handle)
        return code

    def finish(self, handles: list[int], bound_s: float = 20.0) -> list[int]:
        """The final code of each, or 0 where it is still pending at the bound."""
        deadline = time.monotonic() + bound_s
        codes = [0] * len(handles)
        while 0 in codes and time.monotonic() < deadline:
            codes = [code or self.status(handle) for code, handle in zip(codes, handles, strict=True)]
            time.sleep(1e-4)
        return codes

    def write(self, segment: str, source: int, address: int, size: int) -> int:
        code: int = self.engine.transfer_sync_write(segment, self.base + source, address, size)
        return code

    def read(self, segment: str, start: int, address: int, size: int) -> int:
        code: int = self.engine.transfer_sync_read(segment, self.base + start, address, size)
        return code

    def map(self, size: int) -> int:
        """Map and register `size` bytes beside the memory that is there already; their address."""
        self.mapped = mmap.mmap(-1, size)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.mapped))
        assert self.engine.register_memory(address, size) == 0
        return address

    def unregister(self, address: int) -> int:
        code: int = self.engine.unregister_memory(address)
        return code

    def unmap(self, address: int, size: int) -> int:
        """Take the pages away below the registration."""
        return ctypes.CDLL(None, use_errno=True).munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))

    def map_at(self, address: int, size: int) -> None:
        """Map memory of another use where there was some."""
        private, fixed, anonymous, read_and_write = 0x02, 0x10, 0x20, 3
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        how = private | fixed | anonymous
        where = ctypes.c_void_p(address), ctypes.c_size_t(size)
        assert libc.mmap(*where, read_and_write, how, -1, ctypes.c_long(0)) == address

    def peek_at(self, address: int, size: int) -> list[int]:
        return sorted(set(ctypes.string_at(address, size)))

    def write_and_notify(self, segment: str, source: int, address: int, size: int) -> int:
        """A write whose success is told to the target by a notification."""
        told = TransferNotify("chunk", "0")
        code: int = self.engine.transfer_sync(segment, self.base + source, address, size, TransferOpcode.Write, told)
        return code

    def notify(self, segment: str, texts: list[str], own: bool = False) -> None:
        """Send notifications, each by a thread and, unless by its `own`, an engine more; `told` has what came of it."""
        for text in texts:
            engine = self.engine if own else self.idle.pop() if self.idle else _started()
            threading.Thread(target=self._notify, args=(engine, segment, text), daemon=True).start()

    def _notify(self, engine: TransferEngine, segment: str, text: str) -> None:
        news = TransferNotify("written", text)
        code = engine.batch_transfer_sync(segment, [self.base], [0], [0], TransferOpcode.Write, news)
        self.idle.append(engine)
        self.codes.append(code)

    def told(self, count: int, within_s: float = 20.0) -> list[int]:
        """What the API said of the notifications since the last call, once it has of so many."""
        deadline = time.monotonic() + within_s
        while len(self.codes) < count and time.monotonic() < deadline:
            time.sleep(1e-3)
        codes, self.codes = self.codes, []
        return codes

    def heard(self, count: int, within_s: float = 20.0) -> list[str]:
        """The next so many notifications, in the order in which they came."""
        heard: list[str] = []
        deadline = time.monotonic() + within_s
        while len(heard) < count and time.monotonic() < deadline:
            heard += [notify.msg for notify in self.engine.get_notifies()]
        return heard

    def notified(self) -> int:
        return len(self.engine.get_notifies())

    def acked(self, port: int) -> int:
        return sum(connection.info.acked for connection in connections(port) or [])

    def serve(self) -> None:
        commands = "fill peek announce submit submit_batch submit_reads status finish write read acked"
        commands += " map map_at unregister unmap peek_at write_and_notify notified notify told heard scatter drain"
        self.link.serve({name: getattr(self, name) for name in commands.split()})


if __name__ == "__main__":
    hub_address, instance, memory_bytes = sys.argv[1:]
    Peer(hub_address, instance, int(memory_bytes)).serve()
    os._exit(0)

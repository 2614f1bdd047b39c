"""A socket's bytes, counted as they pass, beside what the kernel counted."""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
import time
from contextlib import suppress

from racelab.transport import sockets

Counts = tuple[int, int, int, int]
NAMES = ("in", "in_kernel", "out", "out_kernel")
NOTHING: Counts = (0, 0, 0, 0)
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER, so that closing sends an RST."""
COUNTING_BOUND_S = 0.5
_POLL_S = 0.001


class Tally:
    """Counts of one socket, from the last `zero` on, readable after its end.

    With `acked` (a socket that connected, whose peer answers everything) the kernel's count of
    what went out is what the peer's kernel acknowledged. Else it is what was put on the wire: an
    acknowledgement that rides on nothing comes up to 40 ms late.
    """

    def __init__(self, connection: socket.socket, *, acked: bool = False) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = 0
        self.sent = 0
        self._socket = connection
        self._acked = acked
        self._zero = (0, 0)
        self._final: sockets.TcpInfo | None = None
        self.both_ended = False
        """whether both sides have ended their streams in order: the kernel counts either end as a byte"""

    def zero(self) -> None:
        """Count from here. One zero for both counts: a difference of before still shows."""
        self._zero = (self.received, self.sent)

    def finish(self) -> None:
        """Keep the kernel's numbers: the socket is about to be closed."""
        if self._final is None:
            with suppress(OSError):
                self._final = sockets.info(self._socket)

    def counts(self) -> Counts:
        """Bytes in and out, each as ours and then the kernel's."""
        waiting = 0 if self._final else self._waiting()  # asked for first: what comes after that is not among it
        kernel = self._final or sockets.info(self._socket)
        received, sent = self._zero
        out = kernel.acked - self.both_ended if self._acked else kernel.sent
        came = kernel.bytes_received - 1 if self.both_ended else kernel.received
        return self.received - received, came - waiting - received, self.sent - sent, out - sent

    def _waiting(self) -> int:
        """Bytes that have come and were not read yet: a keep-alive's, say, while the gate counts."""
        return int(struct.unpack("i", fcntl.ioctl(self._socket.fileno(), termios.FIONREAD, bytes(4)))[0])


class End(Tally):
    """One socket of a relayed connection, blocking."""

    def __init__(self, connection: socket.socket, *, acked: bool = False) -> None:
        super().__init__(connection, acked=acked)
        self.socket = connection

    def counts(self) -> Counts:
        """The same. A thread counts what it has moved right after that: where the two differ it is given time for it.

        A loop's own sockets need none, and would be held up: it counts nothing while it waits.
        """
        deadline = time.monotonic() + COUNTING_BOUND_S
        while (now := super().counts())[::2] != now[1::2] and self._final is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return now

    def read(self, view: memoryview) -> int:
        """Fill `view`; fewer bytes only where the stream ends, in order or by a reset."""
        try:
            count = self.socket.recv_into(view, len(view), socket.MSG_WAITALL)
        except OSError:
            return 0
        self.received += count
        return count

    def send(self, data: memoryview | bytes, flags: int = 0) -> None:
        """Send all of it."""
        self.socket.sendall(data, flags)
        self.sent += len(data)

    def send_at_once(self, data: memoryview) -> int:
        """Send what the socket takes without waiting; how much. What stops it shows at the next `send`."""
        try:
            count = self.socket.send(data, socket.MSG_DONTWAIT)
        except OSError:
            return 0
        self.sent += count
        return count

    def end(self) -> None:
        """End the stream, and wait until the peer has read all of it and ended its own."""
        self.socket.shutdown(socket.SHUT_WR)
        rest = memoryview(bytearray(16))
        while (count := self.socket.recv_into(rest)) > 0:
            self.received += count
        self.both_ended = True

    def close(self, *, reset: bool = False) -> None:
        """Keep the kernel's numbers and close; with `reset` the peer gets an RST."""
        self.finish()
        if reset:
            with suppress(OSError):
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.socket.close()


def add(*counts: Counts) -> Counts:
    """The sums."""
    a, b, c, d = (sum(column) for column in zip(NOTHING, *counts, strict=True))
    return a, b, c, d

"""Reading a fixed number of bytes from a socket, with or without a timeout."""

from __future__ import annotations

import socket


def read_exactly(connection: socket.socket, count: int) -> bytes:
    """`count` bytes, fewer only if the peer hung up first.

    Not MSG_WAITALL: a socket with a timeout is non-blocking underneath, and there the flag means
    nothing.
    """
    data = connection.recv(count)
    if len(data) in (0, count):
        return data
    parts = bytearray(data)
    while len(parts) < count:
        more = connection.recv(count - len(parts))
        if not more:
            break
        parts += more
    return bytes(parts)

"""Rows about the target's memory: unregistered, unmapped, never registered."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fault_rig import HALF, two
from wire_rig import MEMORY, PAGE, Rig

from racelab.transport.metadata import data_port
from racelab.transport.streams import read_exactly
from racelab.transport.tcp_layout import (
    ACKNOWLEDGED_WRITE,
    HEADER,
    STATUS,
)


@contextmanager
def half_a_write(own: Rig, address: int) -> Iterator[socket.socket]:
    """A connection on which the header and the first half of a write have been taken by the target."""
    host, _, _ = own.target.rpartition(":")
    with socket.create_connection((host, data_port(own.target)), timeout=10) as connection:
        connection.sendall(HEADER.pack(PAGE, address, ACKNOWLEDGED_WRITE) + b"\xa1" * HALF)
        while own.hub.call("target", "peek_at", address=address + HALF - 1, size=1) != [0xA1]:
            pass
        yield connection


def _rest(connection: socket.socket) -> int | None:
    """Send the other half; the status that comes back, if one does."""
    try:
        connection.sendall(b"\xa1" * HALF)
        answer = read_exactly(connection, STATUS.size)
    except ConnectionError:
        return None
    return int(STATUS.unpack(answer)[0]) if len(answer) == STATUS.size else None


def unregistered_in_mid_write() -> dict[str, Any]:
    with two() as own:
        address = own.hub.call("target", "map", size=PAGE)
        with half_a_write(own, address) as connection:
            assert own.hub.call("target", "unregister", address=address) == 0
            status = _rest(connection)
        seen = own.hub.call("target", "peek_at", address=address, size=PAGE)
        return {"status": status, "bytes-landed": PAGE if seen == [0xA1] else 0}


def unmapped_in_mid_write() -> dict[str, Any]:
    with two() as own:
        address = own.hub.call("target", "map", size=PAGE)
        with half_a_write(own, address) as connection:
            assert own.hub.call("target", "unmap", address=address, size=PAGE) == 0
            status = _rest(connection)
        alive = own.writer("write", segment=own.target, source=0, address=own.base, size=PAGE) == 0
        return {"status": status, "target-alive": alive and own.peek(0) == [0xA1]}


def unmapped_and_mapped_again() -> dict[str, Any]:
    with two() as own:
        address = own.hub.call("target", "map", size=PAGE)
        with half_a_write(own, address) as connection:
            assert own.hub.call("target", "unmap", address=address, size=PAGE) == 0
            own.hub.call("target", "map_at", address=address, size=PAGE)
            status = _rest(connection)
        seen = [own.hub.call("target", "peek_at", address=address + at, size=HALF) for at in (0, HALF)]
        return {"status": status, "first-half": seen[0] == [0xA1], "second-half": seen[1] == [0xA1]}


def unregistered_address() -> dict[str, Any]:
    with two() as own:
        assert own.hub.call("target", "unregister", address=own.base) == 0
        code = own.writer("write", segment=own.target, source=0, address=own.base, size=PAGE)
        return {"code": code, "landed": own.peek(0) == [0xA1]}


def bad_address() -> dict[str, Any]:
    with two() as own:
        code = own.writer("write", segment=own.target, source=0, address=own.base + 2 * MEMORY, size=PAGE)
        return {"code": code, "landed": 0xA1 in own.peek(0, MEMORY // PAGE)}

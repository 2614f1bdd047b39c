"""What Mooncake's TCP transport puts on the wire, as far as a gate needs it.

Handshake port: `u64le length (type included) | u8 type | JSON`, one question and one answer a
connection. The answer to METADATA names the port on which the engine takes data. A NOTIFY has `name` and
`notify_msg`; it is sent once a transfer has completed, on a connection of its own, and what is answered to it is not
told to its sender.

Data port: `u64le size | u64le address | u8 opcode | 7 pad`, then for a write `size` bytes.
Protocol 2 answers a write once it is applied, and precedes what a read gives, with
`u32le code | "VTCM"`; code 0 is success, 1 a rejected address.

Source: mooncake-transfer-engine 0.3.13, mooncake-transfer-engine/src/transport/tcp_transport and
transfer_metadata_plugin.cpp; tests/system/test_wire_gate.py shows that it still holds.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

import msgspec

from racelab.transport.streams import read_exactly

METADATA = 1
NOTIFY = 2
HANDSHAKE_BYTES_MAX = 64 << 20

HEADER = struct.Struct("<QQB7x")
STATUS = struct.Struct("<I4s")
STATUS_MAGIC = b"VTCM"
WRITE = 0x01
PROTOCOL_2 = 0x80
ACKNOWLEDGED_WRITE = PROTOCOL_2 | WRITE
ACKNOWLEDGED_READ = PROTOCOL_2

_LENGTH = struct.Struct("<Q")


def pack_handshake(kind: int, body: bytes) -> bytes:
    """The bytes of one handshake frame."""
    return _LENGTH.pack(len(body) + 1) + bytes([kind]) + body


def read_handshake(connection: socket.socket) -> tuple[int, bytes] | None:
    """The next handshake frame as (type, JSON); None when the peer hung up before its end.

    Raises:
        ValueError: the length is absurd, so this is something else than a handshake.
    """
    head = read_exactly(connection, _LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    if not 1 <= length <= HANDSHAKE_BYTES_MAX:
        raise ValueError(f"a handshake of {length} bytes")
    body = read_exactly(connection, length)
    return (body[0], body[1:]) if len(body) == length else None


class Segment(msgspec.Struct, frozen=True):
    """Where an engine takes data, and in which protocol."""

    data_port: int
    protocol: int


def redirect(metadata: bytes, name: str, host: str, data_port: int) -> tuple[bytes, Segment]:
    """The answer to METADATA with the gate in the engine's place, and what stood there.

    `name` is replaced too: without it notifications go round the gate.

    Raises:
        ValueError: this is no segment of a TCP engine.
    """
    try:
        segment: dict[str, Any] = msgspec.json.decode(metadata, type=dict[str, Any])
        was = Segment(int(segment["tcp_data_port"]), int(segment.get("tcp_proto_version", 1)))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not the metadata of a Mooncake TCP segment: {error!r}") from None
    segment |= {"name": name, "tcp_data_host": host, "tcp_data_port": data_port}
    return msgspec.json.encode(segment), was


def notification(body: bytes) -> str:
    """The text of a NOTIFY.

    Raises:
        ValueError: this is none.
    """
    try:  # as lenient as Mooncake's own reader, which minds no byte that is no UTF-8
        return str(json.loads(body.decode(errors="surrogateescape"))["notify_msg"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"not a notification of Mooncake: {error!r}") from None

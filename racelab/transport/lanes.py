"""Which lane a one-sided write takes, and how a gate learns whose write it is.

A lane is a way to the receiver's memory (racelab.transport.paths). `direct` is the shortest; a write
that some hold wants is announced to the gate and then takes the hold's lane; every other write goes
direct, so that it costs what it would cost with no gate at all.

Both ends count writes against the same rules with the same code, `Lanes.choose`: the writer in
the order in which it posts, the gate in the order in which it hears of them, which is the same.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from racelab.errors import BoundError, PeerDiedError
from racelab.scenario.steps import WriteMatch
from racelab.transport.rules import Rules
from racelab.transport.streams import read_exactly

ANNOUNCE_BOUND_S = 5.0
ANNOUNCEMENT_BYTES_MAX = 16 << 20


class WriteIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Whose access it is and where its bytes go: `bytes` from `address` on, in the memory that they change.

    `write` is unique in a run; `page` and `gen` are the ticket that it fills, from byte `start` of the page's layer
    on; `rank` is that of the receiver and `stream` says of what it is a part, where there are several, and `block` is
    then the number of the memory block. Of a read (`op`) the ticket is one of whoever posts
    it, and `source` is where its bytes are in the peer's memory.
    """

    write: str
    request: str
    attempt: int
    chunk: int
    layer: int | None
    page: int | None
    gen: int | None
    address: int
    bytes: int
    start: int = 0
    rank: int | None = None
    op: str = "write"
    source: int = 0
    block: int | None = None
    stream: str | None = None
    slot: int | None = None
    """of metadata, which goes to a slot of the receiver's and to no page: `layer`, `page` and `gen` are null"""
    batch: str | None = None
    batch_writes: int = 0
    """what was submitted with it, and how many those are; known only while a hold may want whole batches"""
    writer: str | None = None
    """who posts it, where several instances could"""

    @property
    def together(self) -> dict[str, Any]:
        """What it was submitted with, for events of a gate that holds whole batches."""
        return {"batch": self.batch, "batch_writes": self.batch_writes}

    @property
    def peer_address(self) -> int:
        """Where it reaches the peer's memory: what its header on the wire says."""
        return self.source if self.op == "read" else self.address

    @property
    def of(self) -> dict[str, int | str]:
        """Whose share of a layer it is, or which slot, for events; empty where a layer has one share."""
        return self.names if self.block is None else {**self.names, "block": self.block}

    @property
    def names(self) -> dict[str, int | str]:
        """The same without the number of the block, as gates and people say it."""
        if self.slot is not None:
            return {"slot": self.slot}
        named = {"rank": self.rank, "stream": self.stream}
        return {key: value for key, value in named.items() if value is not None}


class Lanes(Rules[WriteIdentity]):
    """The rules that are armed for writes: `choose` gives the hold that wants a write, None for `direct`."""

    def __init__(self) -> None:
        super().__init__(WriteMatch)

    def arm(self, hold: str, match: msgspec.Struct | Mapping[str, Any], count: int) -> None:
        """As any rule; one that does not say so wants no reads."""
        wanted = msgspec.convert(match, WriteMatch, from_attributes=True)
        super().arm(hold, msgspec.structs.replace(wanted, op=wanted.op or "write"), count)


class Announcement(msgspec.Struct, frozen=True):
    """What the writer sends before it submits: `u32le length | msgpack(Announcement)`.

    `seq` and `hlc` are the sender's last event and clock, which makes it a causal edge. The gate
    answers `u32le count` once the writes are registered.
    """

    sender: str
    seq: int
    hlc: int
    writes: list[WriteIdentity]


_LENGTH = struct.Struct("<I")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Announcement)


class Announcer:
    """The writer's connection to the announce socket at `address` ("host:port"); blocking."""

    def __init__(self, address: str, *, bound_s: float = ANNOUNCE_BOUND_S) -> None:
        host, _, port = address.rpartition(":")
        self.bound_s = bound_s
        self._socket = socket.create_connection((host, int(port)), timeout=bound_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def announce(self, writes: Sequence[WriteIdentity], seq: int, hlc: int, sender: str) -> None:
        """Tell the gate of writes that are about to be submitted; returns once it has them.

        Raises:
            PeerDiedError: the gate is gone.
            BoundError: it did not acknowledge in time.
        """
        body = _encoder.encode(Announcement(sender, seq, hlc, list(writes)))
        try:
            self._socket.sendall(_LENGTH.pack(len(body)) + body)
            answer = read_exactly(self._socket, _LENGTH.size)
        except TimeoutError:
            raise BoundError(f"the gate did not acknowledge {len(writes)} writes in {self.bound_s:.0f} s") from None
        except OSError:
            answer = b""
        if len(answer) < _LENGTH.size:
            raise PeerDiedError("the gate", "an announcement")
        assert _LENGTH.unpack(answer) == (len(writes),)

    def close(self) -> None:
        """Hang up; what was announced stays announced."""
        self._socket.close()


def read_announcement(connection: socket.socket) -> Announcement | None:
    """The gate's end: the next announcement, None when the writer has hung up.

    Raises:
        ValueError: what came is no announcement.
    """
    head = read_exactly(connection, _LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > ANNOUNCEMENT_BYTES_MAX:
        raise ValueError(f"an announcement of {length} bytes")
    body = read_exactly(connection, length)
    if len(body) < length:
        return None
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ValueError(f"not an announcement: {error}") from None


def acknowledge(connection: socket.socket, announcement: Announcement) -> None:
    """The gate's end: these writes are registered, submit them."""
    connection.sendall(_LENGTH.pack(len(announcement.writes)))

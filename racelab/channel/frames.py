"""What travels on the step channel: length-prefixed msgpack frames over one TCP connection a process.

    u32le length | msgpack(Frame)

The process connects to the conductor and says Hello; the conductor sends Command, the process
answers Reply and sends Events as they happen. Every frame carries its sender's last event number
and hybrid clock reading, which makes it a causal edge. A command also passes on how far the
conductor has heard of everybody else: what was seen before a command happened before its effects.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from racelab.evidence.events import Event

FRAME_BYTES_MAX = 64 << 20
_LENGTH = struct.Struct("<I")


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """The first frame: who speaks, proven by the lab's token; `facts` are addresses and versions."""

    instance: str
    pid: int
    token: str
    facts: dict[str, Any] = {}


class Command(msgspec.Struct, tag="command", frozen=True):
    """An order from the conductor. `heard` is the last event seen of others, as far as that is news."""

    id: int
    name: str
    args: dict[str, Any]
    seq: int
    hlc: int
    heard: dict[str, int] = {}


class Reply(msgspec.Struct, tag="reply", frozen=True):
    """The answer to a command; `error` is one line for people."""

    id: int
    value: Any = None
    error: str | None = None


class Events(msgspec.Struct, tag="events", frozen=True):
    """Events in the order in which the process recorded them."""

    events: list[Event]


Frame = Hello | Command | Reply | Events

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    """The bytes of one frame."""
    body = _encoder.encode(frame)
    return _LENGTH.pack(len(body)) + body


class Splitter:
    """Cuts a byte stream into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Frames completed by `data`.

        Raises:
            ValueError: the length is absurd or the body is no frame.
        """
        self._buffer += data
        while len(self._buffer) >= 4:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > FRAME_BYTES_MAX:
                raise ValueError(f"a frame of {length} bytes")
            if len(self._buffer) < 4 + length:
                return
            body = bytes(self._buffer[4 : 4 + length])
            del self._buffer[: 4 + length]
            try:
                yield _decoder.decode(body)
            except msgspec.DecodeError as error:
                raise ValueError(f"not a frame: {error}") from None

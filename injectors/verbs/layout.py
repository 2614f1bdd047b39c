"""The messages between gate.c and this process: `struct message` of link.h, 128 bytes, in both directions."""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from enum import IntEnum

_STRUCT = struct.Struct("=IIQQQQIIIIII64s")
BYTES = _STRUCT.size


class Kind(IntEnum):
    """What a message is: a report of a process, a command to it, or an answer."""

    HELLO = 1
    QUEUE_PAIR = 2
    REGION = 3
    REQUEST = 4
    ANSWER = 5
    WATCH = 6
    FORGET = 7
    RELEASE = 8
    DROP = 9
    COUNT = 10
    HEARD = 11


MOVES = {1: "queued", 2: "doorbell", 3: "completed", 4: "flushed", 5: "lost", 6: "withheld", 7: "told", 8: "late"}
"""What becomes of a work request, as link.h numbers it."""

ACTIONS = {"hold": 0, "ghost": 1, "lose-completion": 2, "fail": 3, "follow": 4, "pass": 4, "delay": 0}
"""What the gate in a process is told: what passes is followed, and a delay is a hold that this side ends."""
PAYLOADS = {"at-hold": 0, "at-release": 1, "reread": 2}

STATES = {0: "RESET", 1: "INIT", 2: "RTR", 3: "RTS", 4: "SQD", 5: "SQE", 6: "ERR", 100: "DESTROYED"}
"""Of a queue pair: enum ibv_qp_state, and its end."""

OPCODES = {0: "write", 1: "write-with-imm", 2: "send", 3: "send-with-imm", 4: "read"}

STATUSES = {
    0: "success",
    4: "local protection error",
    5: "flushed",
    10: "remote access error",
    11: "remote operation error",
    12: "transport retry counter exceeded",
}
"""enum ibv_wc_status, as far as it is met here."""


@dataclass(frozen=True)
class Message:
    """One message; every field has the meaning that link.h gives it for its kind (`size` is its `bytes`)."""

    kind: int
    ticket: int = 0
    watch: int = 0
    number: int = 0
    address: int = 0
    size: int = 0
    queue_pair: int = 0
    peer: int = 0
    key: int = 0
    state: int = 0
    opcode: int = 0
    status: int = 0
    name: bytes = b""

    def pack(self) -> bytes:
        """The bytes of this message."""
        return _STRUCT.pack(*astuple(self))

    @property
    def text(self) -> str:
        """The name, as text."""
        return self.name.split(b"\0", 1)[0].decode(errors="replace")


def unpack(data: bytes) -> Message:
    """A message from its bytes.

    Raises:
        struct.error: there are not as many as a message has.
    """
    return Message(*_STRUCT.unpack(data))

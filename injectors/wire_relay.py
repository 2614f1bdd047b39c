"""One connection through the wire gate: a blocking thread between a writer and its target.

Mooncake's protocol 2 is half-duplex (one operation at a time on a connection, then its status),
so one thread a connection is enough, and was measured faster than any event loop.
"""

from __future__ import annotations

import fcntl
import os
import socket
from typing import Any

from injectors import entry
from injectors.tally import Counts, End, add
from injectors.wire_book import Book
from injectors.wire_held import Announced, Held
from racelab.evidence.fingerprint import fingerprint
from racelab.evidence.recorder import Recorder
from racelab.transport import sockets
from racelab.transport.tcp_layout import (
    ACKNOWLEDGED_READ,
    ACKNOWLEDGED_WRITE,
    HEADER,
    PROTOCOL_2,
    STATUS,
    STATUS_MAGIC,
    WRITE,
)

ONE_CALL_BYTES_MAX = 256 << 10
"""Up to here header and payload are copied and sent in one call; above they are spliced."""

_PIPE_BYTES = 1 << 20
_SPLICE_MOVE, _SPLICE_MORE = 1, 4


class Outcome:
    """What the target said of a write: its status code, and why the write did not land, if it did not."""

    def __init__(self, why: str | None, code: int | None = None) -> None:
        self.code = code
        self.kind = "landed" if why is None else "unlanded"
        self.data: dict[str, Any] = {} if code is None else {"code": code}
        if why is not None:
            self.data["why"] = why


class Relay:
    """Operations of one writer's connection, in order."""

    def __init__(self, book: Book, recorder: Recorder, writer: socket.socket, target: socket.socket) -> None:
        self.book = book
        self.recorder = recorder
        self.writer = End(writer)
        self.target = End(target, acked=True)
        self._buffer = memoryview(bytearray(HEADER.size + ONE_CALL_BYTES_MAX))
        self._status = memoryview(bytearray(STATUS.size))
        self._pipe: tuple[int, int] | None = None

    def run(self) -> None:
        """Serve until either side is gone; what is still held is kept until its word comes."""
        try:
            while self._operation():
                pass
        except OSError:
            pass  # one side was reset: closing tells the other, as TCP would
        finally:
            self.close()

    def close(self) -> None:
        """End both connections; their counts stay."""
        self.writer.close()
        self.target.close()
        if self._pipe is not None:
            for descriptor in self._pipe:
                os.close(descriptor)
            self._pipe = None

    def zero(self) -> None:
        """Count from here."""
        self.writer.zero()
        self.target.zero()

    def counts(self) -> Counts:
        """Both sockets' bytes together."""
        return add(self.writer.counts(), self.target.counts())

    def _operation(self) -> bool:
        if self.writer.read(self._buffer[: HEADER.size]) < HEADER.size:
            return False
        size, address, opcode = HEADER.unpack_from(self._buffer)
        announced = self.book.arrive(address, size, "write" if opcode & WRITE else "read")
        if not opcode & WRITE:
            return self._operation_read(announced, size, opcode)
        wanted = announced is not None and announced.hold is not None and opcode == ACKNOWLEDGED_WRITE
        if wanted and announced is not None and self.book.stops(announced):
            return self._wanted_write(announced, size)
        try:
            passed = self._forward_payload(size)
        except OSError as error:
            return self._finish(announced, None, opcode, f"the target is gone: {entry.reason(error)}")
        if passed == size:
            return self._finish(announced, None, opcode)
        if announced is not None:
            why = f"the writer broke off after {passed:,} of {size:,} bytes, which the target got"
            announced.record(self.recorder, "unlanded", None, why=why)
        return False

    # -- writes

    def _wanted_write(self, announced: Announced, size: int) -> bool:
        whole = memoryview(bytearray(HEADER.size + size))
        whole[: HEADER.size] = self._buffer[: HEADER.size]
        came = self.writer.read(whole[HEADER.size :])
        if came < size:
            why = f"the writer broke off after {came:,} of {size:,} bytes, of which the target got none"
            announced.record(self.recorder, "unlanded", None, why=why)
            return False
        sent = self.place(whole)

        def go() -> None:
            nonlocal sent
            sent += self.target.send_at_once(whole[sent:])

        if self.book.cuts(announced):
            return self._half_open(announced)
        held = self.book.stop(announced, go, self._lose, whole[HEADER.size :], tell=self._tell_success)
        if held is not None and not self.book.wait(held):
            return False
        if held is not None and held.torn is not None:
            return self._tear(held, whole[: HEADER.size + held.torn], self.target, self.writer)
        broken = None
        try:
            self.target.send(whole[sent:])
        except OSError as error:
            broken = f"the target is gone: {entry.reason(error)}"
        return self._finish(announced, held, ACKNOWLEDGED_WRITE, broken)

    def _half_open(self, announced: Announced) -> bool:
        """End the target's end of the connection, and leave the writer's as it is until the write is dropped."""
        self.target.close()
        held = self.book.stop(announced, lambda: None, self._lose, writers_end=self._writers_end, targets_end="CLOSED")
        if held is not None:
            self.book.wait(held)
        return False

    def _writers_end(self) -> str:
        return "ESTABLISHED" if sockets.info(self.writer.socket).established else "ended"

    def place(self, whole: memoryview) -> int:
        """Send what goes on at once of a write that is to stop, header included; how much. Here nothing does."""
        return 0

    def _tell_success(self) -> None:
        """Answer in the target's place, which has not got a byte yet."""
        self.writer.send(STATUS.pack(0, STATUS_MAGIC))

    def _lose(self, both_ends: bool) -> None:
        self.writer.close(reset=True)
        if both_ends:
            self.target.close(reset=True)

    def _tear(self, held: Held, part: memoryview, receiver: End, sender: End) -> bool:
        """Let the first part of what was held go and end its stream there; whoever sent it gets a reset.

        The receiver hangs up once it has read to the end, so the part is in its memory when that is
        recorded. A reset towards it would throw away what it has not read, and nobody could tell how much.
        """
        kind: str
        data: dict[str, Any]
        kind, data = "torn", dict(held.changed)
        try:
            receiver.send(part)
            receiver.end()
        except OSError as error:
            kind, data = "unlanded", {"why": f"the receiver is gone: {entry.reason(error)}"}
        sender.close(reset=True)
        self.book.settle(held, kind, data)
        return False

    def _finish(self, announced: Announced | None, held: Held | None, opcode: int, broken: str | None = None) -> bool:
        """Take the target's status, record it, and only then pass it on.

        A target that refuses hangs up before it has read everything: sending is `broken`, and the
        status is there all the same.
        """
        if not opcode & PROTOCOL_2:
            return broken is None
        code = self._take_status()
        if code is None:
            outcome = Outcome(broken or "the target hung up without a status")
        else:
            outcome = Outcome(f"the target refused it with code {code}" if code else None, code)
        if held is not None:
            self.book.settle(held, outcome.kind, outcome.data)
            if held.answered:
                return outcome.code is not None
            if held.orphan or sockets.info(self.writer.socket).peer_finished:
                return False  # its writer has gone meanwhile
        elif announced is not None:
            withheld = self.book.land(announced, outcome.kind, outcome.data, self._lose)
            if withheld is not None and not withheld.goes_on():
                return False
        return self._answer(outcome)

    def _answer(self, outcome: Outcome) -> bool:
        """Pass the target's status on; False if there was none, and the connection is over."""
        if outcome.code is None:
            return False
        self.writer.send(self._status)
        return True

    def _take_status(self) -> int | None:
        if self.target.read(self._status) < STATUS.size:
            return None
        code, magic = STATUS.unpack(self._status)
        return int(code) if magic == STATUS_MAGIC else None

    # -- bytes

    def _forward_payload(self, size: int) -> int:
        """Header and payload to the target as they come; how much of the payload came."""
        if size <= ONE_CALL_BYTES_MAX:
            came = self.writer.read(self._buffer[HEADER.size : HEADER.size + size])
            self.target.send(self._buffer[: HEADER.size + came])
            return came
        self.target.send(self._buffer[: HEADER.size], socket.MSG_MORE)
        return self._splice(self.writer, self.target, size)

    # -- reads

    def _operation_read(self, announced: Announced | None, size: int, opcode: int) -> bool:
        wanted = announced is not None and announced.hold is not None and opcode == ACKNOWLEDGED_READ
        if wanted and announced is not None and self.book.stops(announced):
            return self._wanted_read(announced, size)
        passed = self._read(size, opcode)
        if announced is not None and passed:
            announced.record(self.recorder, "delivered", announced.hold)
        return passed

    def _wanted_read(self, announced: Announced, size: int) -> bool:
        """Stop a read: what the target answered, or the question before the target has it."""
        if self.book.keeps_question(announced):
            held = self.book.stop(announced, lambda: None, self._lose)
            if held is not None and not self.book.wait(held):
                return False
            answer = self._ask(announced, held, size)
            if answer is not None and held is not None:
                held.change(answer[STATUS.size :])
        else:
            answer, held = self._ask(announced, None, size), None
            if answer is not None:
                payload = answer[STATUS.size :]
                held = self.book.stop(announced, lambda: None, self._lose, payload, fingerprint=fingerprint(payload))
                if held is not None and not self.book.wait(held):
                    return False
        if answer is None:
            return False
        if held is not None and held.torn is not None:
            return self._tear(held, answer[: STATUS.size + held.torn], self.writer, self.target)
        why = None
        try:
            self.writer.send(answer)
        except OSError as error:
            why = f"the reader is gone: {entry.reason(error)}"
        if held is not None:
            self.book.settle(held, "delivered" if why is None else "unlanded", {"why": why} if why is not None else {})
        elif why is None:
            announced.record(self.recorder, "delivered", None)
        return why is None

    def _ask(self, announced: Announced, held: Held | None, size: int) -> memoryview | None:
        """What the target answers to a read, status and bytes; None, and said so, if it does not give them."""
        answer = memoryview(bytearray(STATUS.size + size))
        why = None
        try:
            self.target.send(self._buffer[: HEADER.size])
            code = self._take_status()
            if code is None or code:
                why = (
                    "the target hung up without a status" if code is None else f"the target refused it with code {code}"
                )
                if code:
                    self.writer.send(self._status)
            elif self.target.read(answer[STATUS.size :]) < size:
                why = "the target hung up before it had given all of it"
        except OSError as error:
            why = f"the target is gone: {entry.reason(error)}"
        if why is None:
            answer[: STATUS.size] = self._status
            return answer
        if held is not None:
            self.book.settle(held, "unlanded", {"why": why})
        else:
            announced.record(self.recorder, "unlanded", None, why=why)
        return None

    def _read(self, size: int, opcode: int) -> bool:
        """A read passes: header to the target, status and data back."""
        self.target.send(self._buffer[: HEADER.size])
        if opcode & PROTOCOL_2:
            code = self._take_status()
            if code is None:
                return False
            self.writer.send(self._status, 0 if code else socket.MSG_MORE)
            if code:
                return True
        if size > ONE_CALL_BYTES_MAX:
            return self._splice(self.target, self.writer, size) == size
        came = self.target.read(self._buffer[:size])
        self.writer.send(self._buffer[:came])
        return came == size

    def _splice(self, source: End, sink: End, size: int) -> int:
        """Move bytes within the kernel; how many came before the source's end."""
        if self._pipe is None:
            self._pipe = os.pipe()
            fcntl.fcntl(self._pipe[1], fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        out, into = self._pipe
        left = size
        while left:
            try:
                came = os.splice(source.socket.fileno(), into, min(left, _PIPE_BYTES), flags=_SPLICE_MOVE)
            except OSError:
                break  # reset
            if not came:
                break
            source.received += came
            left -= came
            while came:
                went = os.splice(out, sink.socket.fileno(), came, flags=_SPLICE_MOVE | (_SPLICE_MORE if left else 0))
                sink.sent += went
                came -= went
        return size - left

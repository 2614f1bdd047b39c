"""Notifications at the wire gate: Mooncake's news of a transfer, held on its way to the target's handshake port.

A notification is a connection of its own: the sender connects, says it, and waits for the answer of the target's
handshake thread. While one is held its sender waits, as it would for lost segments; its API says success all the
same, as that is of the transfer. One that is dropped ends by a reset of the sender's connection, and the API says
success then too; so it does of one that is torn, whose target gets the first bytes of its JSON and then the end of
the stream. What becomes of one with a byte changed depends on the byte: the target hangs up on some, takes some that
are no message any more, and takes some as any other. No Mooncake sends one twice to one address, so that is not
offered. Two notifications are two connections, and may go in any order.
"""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import msgspec

from injectors import entry, tally
from injectors.tally import End
from injectors.wire_held import EVERY_BIT
from racelab import delays
from racelab.errors import LabError
from racelab.evidence.recorder import Recorder
from racelab.scenario.steps import MessageMatch
from racelab.transport.messages import Message, decode
from racelab.transport.rules import Rules
from racelab.transport.tcp_layout import NOTIFY, notification, pack_handshake, read_handshake

ACTIONS = ("hold", "pass", "delay")
ENDS = ("release", "drop", "corrupt", "tear", "order")
CONNECT_BOUND_S = 10.0


class Notice:
    """One notification on its way: the sender's connection, and the target's once there is one."""

    def __init__(self, sender: socket.socket, body: bytes) -> None:
        self.body = body
        self.message = _message(body)
        self.hold = ""
        self.changed: dict[str, int] = {}
        self.delay_ms: float | None = None
        self.since_ns = 0
        self.lost = False
        self.told = threading.Event()
        self._sender = End(sender)
        self._sender.received += len(pack_handshake(NOTIFY, body))
        self._ends = [self._sender]

    def corrupt(self, offset: int) -> None:
        """Let it go on with another byte at `offset` of its JSON.

        Raises:
            LabError: it has no such byte.
        """
        if offset >= len(self.body):
            raise LabError(f"notification {self.id} has {len(self.body):,} bytes: none at offset {offset:,}")
        self.body = self.body[:offset] + bytes([self.body[offset] ^ EVERY_BIT]) + self.body[offset + 1 :]
        self.changed = {"corrupt": offset}

    def tear(self, size: int) -> None:
        """Let it break off after `size` bytes of its JSON.

        Raises:
            LabError: nothing would be lost of it.
        """
        if size >= len(self.body):
            raise LabError(f"notification {self.id} has {len(self.body):,} bytes: it cannot be torn after {size:,}")
        self.changed = {"tear": size}

    @property
    def id(self) -> str:
        """Its name in the history."""
        assert self.message is not None
        return self.message.id

    @property
    def garbled(self) -> bool:
        """Whether what its text says is not that message any more."""
        return _message(self.body) != self.message

    def deliver(self, address: entry.Address) -> End:
        """Say it to the target, as far as it is to come; the connection on which that will answer."""
        target = End(socket.create_connection(address, timeout=CONNECT_BOUND_S), acked=True)
        self._ends.append(target)
        whole = pack_handshake(NOTIFY, self.body)
        target.send(whole[: len(whole) - len(self.body) + self.changed.get("tear", len(self.body))])
        target.socket.settimeout(None)
        return target

    def take_answer(self, target: End) -> bytes | None:
        """What the target answers, if it does."""
        with suppress(OSError):  # it has gone meanwhile
            answer = read_handshake(target.socket)
            if answer is not None:
                whole = pack_handshake(*answer)
                target.received += len(whole)
                return whole
        return None

    def pass_on(self, answer: bytes) -> None:
        """Tell the sender what the target answered."""
        with suppress(OSError):  # it has gone meanwhile
            self._sender.send(answer)

    def finish(self) -> None:
        """Keep the kernel's numbers: the connections are about to be closed."""
        for end in self._ends:
            end.finish()

    def reset(self) -> None:
        """End the sender's connection."""
        self.finish()
        with suppress(OSError):
            self._sender.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, tally.RESET_ON_CLOSE)

    def zero(self) -> None:
        """Count from here."""
        for end in self._ends:
            end.zero()

    def counts(self) -> tally.Counts:
        """Both connections' bytes together."""
        return tally.add(*(end.counts() for end in self._ends))

    def record(self, recorder: Recorder, kind: str, **data: Any) -> int:
        """Record what happened to it; when, on the monotonic clock."""
        message = self.message
        assert message is not None
        data |= {"chunk": message.chunk} if message.chunk is not None else {}
        data |= {"rank": message.rank} if message.rank is not None else {}
        data |= {"stream": message.stream} if message.stream is not None else {}
        data |= {"hold": self.hold, "what": message.id, "type": message.type, "bytes": len(self.body)}
        return recorder.record(kind, message.request, message.attempt, **data).mono_ns


def _message(body: bytes) -> Message | None:
    try:
        return decode(notification(body).encode())
    except (ValueError, msgspec.DecodeError):
        return None  # somebody else's: it passes


class _Hold:
    """What stopped under one rule, in order; `going` once it was released."""

    def __init__(self, action: str, waits: Iterator[float] | None) -> None:
        self.action = action
        self.delays = waits
        self.open = True
        self.going = False
        self.queue: deque[Notice] = deque()


class Notices:
    """Shared by the threads of all handshake connections, under one lock."""

    def __init__(
        self,
        recorder: Recorder,
        urgently: Callable[[], AbstractContextManager[None]] = nullcontext,
        gate: str = "wire",
    ) -> None:
        self._gate = gate
        self._recorder = recorder
        self._urgently = urgently
        self._lock = threading.Lock()
        self._rules: Rules[Message] = Rules(MessageMatch)
        self._holds: dict[str, _Hold] = {}
        self._live: set[Notice] = set()
        self._gone = tally.NOTHING

    # -- the conductor's commands

    def arm(
        self,
        hold: str,
        match: Mapping[str, Any],
        count: int,
        action: str = "hold",
        ms: delays.Distribution | None = None,
        seed: str = "",
    ) -> None:
        """Do `action` to the next `count` notifications that agree with `match`."""
        if action not in ACTIONS:
            raise LabError(f"the {self._gate} gate knows no {action!r} for a notification")
        with self._lock:
            if hold in self._holds and self._holds[hold].queue:
                raise LabError(f"hold {hold!r} still holds notifications of before")
            self._rules.disarm(hold)
            self._rules.arm(hold, match, count)
            self._holds[hold] = _Hold(action, delays.draws(ms, seed) if ms is not None else None)
            self._recorder.record("armed", hold=hold, gate=self._gate, match=dict(match), count=count)

    def knows(self, hold: str) -> bool:
        """Whether a hold is one of notifications."""
        return hold in self._holds

    def release(
        self, hold: str, corrupt: int | None = None, tear: int | None = None, order: str | None = None
    ) -> list[str]:
        """Let go what is held, each once the one before is with the target. The rule ends.

        With `corrupt` the first goes with the byte at that offset of its JSON changed, with `tear` it breaks off after
        so many bytes of that. With `order` "reversed" what stopped last goes first. What is delayed goes by itself, and
        is not hurried.
        """
        with self._urgently(), self._lock:
            found = self._close(hold)
            if found.going or found.delays is not None or not found.queue:
                return []
            if corrupt is not None:
                found.queue[0].corrupt(corrupt)
            if tear is not None:
                found.queue[0].tear(tear)
            if order == "reversed":
                found.queue.reverse()
            found.going = True
            self._let_go(found.queue[0])
            return [notice.id for notice in found.queue]

    def drop(self, hold: str) -> list[str]:
        """Lose what is held, by a reset of its sender's connection. The rule ends."""
        with self._lock:
            found = self._close(hold)
            if found.going or found.delays is not None:
                return []
            lost = list(found.queue)
            found.queue.clear()
            for notice in lost:
                notice.record(self._recorder, "dropped")
                notice.lost = True
                notice.told.set()
            return [notice.id for notice in lost]

    def _let_go(self, notice: Notice) -> None:
        notice.record(self._recorder, "released", **notice.changed)
        notice.told.set()

    def _close(self, hold: str) -> _Hold:
        self._rules.disarm(hold)
        self._holds[hold].open = False
        return self._holds[hold]

    def reset(self) -> tuple[list[str], int]:
        """Forget rules that did not fire; what is still held, and how many such rules there were."""
        with self._lock:
            self._gone = tally.NOTHING
            for notice in self._live:
                notice.zero()
            self._holds = {name: hold for name, hold in self._holds.items() if hold.queue}
            held = [notice.id for hold in self._holds.values() for notice in hold.queue]
            return held, self._rules.forget()

    def counts(self) -> dict[str, int]:
        """Bytes in and out of all their connections since the last reset, beside the kernel's."""
        with self._lock:
            total = tally.add(self._gone, *(notice.counts() for notice in self._live))
        return {f"notified_{name}": count for name, count in zip(tally.NAMES, total, strict=True)}

    # -- what the connections see

    def carry(self, sender: socket.socket, body: bytes, target: entry.Address) -> None:
        """One notification, from its sender to the target, or to its loss."""
        notice = Notice(sender, body)
        with self._lock:
            self._live.add(notice)
        try:
            if self._stops(notice) and not self._goes_on(notice):
                notice.reset()
                return
            self._deliver(notice, target)
        finally:
            notice.finish()
            with self._lock:
                self._live.discard(notice)
                self._gone = tally.add(self._gone, notice.counts())

    def _stops(self, notice: Notice) -> bool:
        """Whether it is to wait; what only passes under a rule is recorded as such."""
        message = notice.message
        if message is None:
            return False
        with self._lock:
            notice.hold = self._rules.choose(message) or ""
            hold = self._holds.get(notice.hold)
            if hold is None or not hold.open:
                return False
            self._recorder.learned(message.sender, message.seq, message.hlc)
            if hold.action == "pass":
                notice.record(self._recorder, "passed")
                return False
            about: dict[str, Any] = {}
            if hold.delays is not None:
                notice.delay_ms = next(hold.delays)
                about = {"action": "delay", "delay_ms": notice.delay_ms}
            hold.queue.append(notice)
            notice.since_ns = notice.record(self._recorder, "held", **about)
            return True

    def _goes_on(self, notice: Notice) -> bool:
        """Wait until it is let go, or its delay is over; False if it was lost."""
        if notice.delay_ms is None:
            notice.told.wait()
            return not notice.lost
        delays.wait(notice.since_ns, notice.delay_ms)
        with self._lock:
            self._let_go(notice)
        return True

    def _deliver(self, notice: Notice, address: entry.Address) -> None:
        """Give it to the target's socket, and its sender the answer."""
        stopped = notice.told.is_set()
        try:
            target = notice.deliver(address)
        except OSError as error:
            if stopped:
                self._settle(notice, "dropped", why=f"the target is gone: {entry.reason(error)}")
            notice.reset()
            return
        with target.socket:
            if "tear" in notice.changed:
                self._break_off(notice, target)
                return
            if stopped and not notice.changed:
                self._settle(notice, "delivered")
            answer = notice.take_answer(target)
            if notice.changed:
                self._settle_changed(notice, answered=answer is not None)
            if answer is not None:
                notice.pass_on(answer)
            notice.finish()

    def _break_off(self, notice: Notice, target: End) -> None:
        """End the stream of one that is torn: the target hangs up once it has read so far, and its sender is reset."""
        try:
            target.end()
        except OSError as error:
            self._settle(notice, "dropped", why=f"the target is gone: {entry.reason(error)}")
        else:
            self._settle(notice, "dropped", **notice.changed)
        notice.reset()

    def _settle_changed(self, notice: Notice, *, answered: bool) -> None:
        """What became of one with a byte changed is known once the target has answered it, or has hung up: what it
        took and is no message any more is lost too."""
        if answered and not notice.garbled:
            self._settle(notice, "delivered")
        else:
            self._settle(notice, "dropped", answered=answered, **notice.changed)

    def _settle(self, notice: Notice, kind: str, **data: Any) -> None:
        """One that was held is with the target, or lost: let the next one of its hold go."""
        with self._urgently(), self._lock:
            hold = self._holds[notice.hold]
            hold.queue.remove(notice)
            notice.record(self._recorder, kind, **data)
            if hold.queue and hold.going:
                self._let_go(hold.queue[0])

"""Mooncake's notifications: news of a transfer from engine to engine, beside the control bus.

Mooncake sends a notification once a transfer has completed, and its API says success whatever becomes of that.
While it waits for the peer's answer it keeps a lock of its engine that every other completion needs (0.3.13.post1;
tests/system/test_what_each_fault_does.py shows it). So each notification under way has an engine of its own here:
one that the network holds up keeps nothing else from its sender. It rides on an empty transfer, which Mooncake
takes as completed at once and puts nothing of on the wire.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

import msgspec

from racelab.errors import LabError
from racelab.transport.messages import Message, decode, encode

SETTLE_BOUND_S = 10.0
ENGINES_MAX = 16
"""Notifications under way at once: an engine takes two ports of the process's window (racelab.transport.ports)."""

Start = Callable[[], Any]


class Outcome(NamedTuple):
    """What the API said of the transfer that a notification follows: 0 is success, and that it was sent."""

    message: Message
    code: int


class Notices:
    """Those that one instance sends. `engine` is what starts one more engine."""

    def __init__(self, engine: Start) -> None:
        self._start = engine
        self._idle: list[Any] = []
        self._engines = 0
        self._outcomes: SimpleQueue[tuple[int, Any, Outcome]] = SimpleQueue()
        self._peers = 0
        self._stale: list[Any] = []
        """engines that know a dead peer: kept, as the end of one blocks its process for a second"""
        self._gate_segments: Mapping[str, str] = {}
        self._holds: set[str] = set()
        self.under_way = 0
        self._senders: list[Thread] = []

    def use_gate(self, segments: Mapping[str, str]) -> None:
        """The gate's names, by the segments that they stand for."""
        self._gate_segments = segments

    def arm(self, hold: str) -> None:
        """From now on every notification goes by the gate, which sees for itself which ones it wants."""
        self._holds.add(hold)

    def disarm(self, hold: str) -> None:
        """This hold wants nothing more."""
        self._holds.discard(hold)

    def forget_holds(self) -> None:
        """A new incarnation: no hold wants anything."""
        self._holds.clear()

    def forget_peers(self) -> None:
        """Another process is at a peer's address, and an engine that knew the dead one would go on asking for that."""
        self._peers += 1
        self._engines -= len(self._idle)
        self._stale += self._idle
        self._idle.clear()

    def tell(self, segment: str, address: int, message: Message) -> None:
        """Send one to the engine of a segment, in which `address` is registered; does not wait.

        Raises:
            LabError: too many are under way.
        """
        if not self._idle and self._engines == ENGINES_MAX:
            raise LabError(f"more than {ENGINES_MAX} notifications under way at once", next="hold fewer")
        engine = self._idle.pop() if self._idle else self._another()
        name = self._gate_segments.get(segment, segment) if self._holds else segment
        self.under_way += 1
        sender = Thread(target=self._send, args=(self._peers, engine, name, address, message), daemon=True)
        self._senders.append(sender)
        sender.start()

    def _another(self) -> Any:
        self._engines += 1
        return self._start()

    def _send(self, peers: int, engine: Any, segment: str, address: int, message: Message) -> None:
        from mooncake.engine import TransferNotify, TransferOpcode

        news = TransferNotify(message.type, encode(message).decode())
        code = engine.batch_transfer_sync(segment, [address], [address], [0], TransferOpcode.Write, news)
        self._outcomes.put((peers, engine, Outcome(message, code)))

    def settle(self) -> None:
        """Wait, within a bound, for those that nothing holds any more: one that was lost is over only once its sender
        has seen that its connection is."""
        deadline = time.monotonic() + SETTLE_BOUND_S
        for sender in self._senders:
            sender.join(max(deadline - time.monotonic(), 0))
        self._senders = [sender for sender in self._senders if sender.is_alive()]

    def outcomes(self) -> list[Outcome]:
        """Those that are over, since the last call."""
        found = []
        while not self._outcomes.empty():
            peers, engine, outcome = self._outcomes.get()
            self.under_way -= 1
            if peers == self._peers:
                self._idle.append(engine)
            else:
                self._engines -= 1
                self._stale.append(engine)
            found.append(outcome)
        return found


def received(engine: Any) -> list[Message | str]:
    """The notifications that an engine has been sent since the last call; of one that is no message, why not."""
    return [_read(notify) for notify in engine.get_notifies()]


def _read(notify: Any) -> Message | str:
    """Mooncake takes any bytes as a text, and Python has them only if they are UTF-8."""
    try:
        return decode(notify.msg.encode())
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        return str(error)

"""A message at the bus gate: what has stopped on its way to one subscriber, or the copy of one that passed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from injectors.bus_session import Session
from racelab.evidence.recorder import Recorder
from racelab.transport import mqtt
from racelab.transport.messages import Message


class Held:
    """A message that stopped on its way to one subscriber, and how many of its topic overtook it.

    A `copy` is of a message that passed. At QoS 1 the first acknowledgement of the two is kept from the
    broker (`acked` once it has come): for the broker the message is not delivered before the copy is.
    """

    def __init__(
        self, session: Session, packet: bytes, publish: mqtt.Publish, message: Message, *, copy: bool = False
    ) -> None:
        self.session = session
        self.packet = mqtt.as_duplicate(packet) if copy and publish.qos else packet
        self.publish = publish
        self.message = message
        self.copy = copy
        self.acked = False
        self.overtaken = 0

    @property
    def place(self) -> tuple[Session, bytes]:
        """Where MQTT keeps an order: one topic of one subscriber."""
        return self.session, self.publish.topic

    @property
    def what(self) -> str:
        """Its name in the history."""
        return f"{self.message.id} (copy)" if self.copy else self.message.id

    def record(self, recorder: Recorder, kind: str, hold: str, **data: Any) -> int:
        """Record what happened to this message; when, on the monotonic clock."""
        message = self.message
        if self.copy:
            data["of"] = message.id
        return recorder.record(
            kind,
            message.request,
            message.attempt,
            hold=hold,
            what=self.what,
            type=message.type,
            chunk=message.chunk,
            **data,
        ).mono_ns


class Hold:
    """What stopped under one rule, in order. `delays` are the waits of a hold that delays."""

    def __init__(self, action: str, delays: Iterator[float] | None) -> None:
        self.action = action
        self.delays = delays
        self.queue: deque[Held] = deque()


def in_reverse(queue: deque[Held]) -> deque[Held]:
    """What stopped last first, with how many of its topic each is now overtaken by."""
    going: deque[Held] = deque()
    for held in reversed(queue):
        held.overtaken += sum(earlier.place == held.place for earlier in going)
        going.append(held)
    return going

"""The bus gate: holds, releases and loses control messages on their way to a subscriber.

    python -m injectors.bus --hub HOST:PORT --instance bus --broker HOST:PORT [--host H] [--port N]

Clients connect to the gate in place of the broker (any MQTT 3.1.1 broker). Every packet passes byte
for byte, except a PUBLISH to a subscriber that a rule wants. A held message holds up nothing behind
it, and counts what overtook it: on one topic, at one QoS and from one publisher MQTT keeps the order
(3.1.1, 4.6), so an `overtaken` above 0 is only possible where those differ.

A drop is what the application sees: the loss of a notification. At QoS 0 the packet is gone. At
QoS 1 the broker would send it again, so the gate forges the subscriber's PUBACK. At QoS 2 a message
can be held and not dropped. A rule counts deliveries: a message with two subscribers is two.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import msgspec

from injectors import entry, tally
from injectors.bus_session import Session, Side
from racelab.channel.link import Handler
from racelab.errors import BusError, LabError
from racelab.evidence.recorder import Recorder
from racelab.gates import Injector, Mechanism
from racelab.scenario import MessageMatch
from racelab.transport import mqtt
from racelab.transport.messages import Message, decode
from racelab.transport.rules import Rules

GATE = "bus"
BROKER_BOUND_S = 5.0
PROBE_CLIENT = "racelab-bus-gate"

INJECTOR = Injector(
    name="bus",
    subject="message",
    module="injectors.bus",
    means="an MQTT relay that clients reach in place of the broker; single messages stop in it",
    stage="queued at the broker",
    payload="at-hold",
    mechanisms={
        "broker-backlog": Mechanism(
            means=(
                "the broker has the message and is behind in sending it. The bound is that of a subscriber that hears "
                "nothing: it must send a PINGREQ within its keep-alive (60 s), and gives up when no answer comes"
            ),
            bound_ms=90_000,
            source="MQTT 3.1.1, 3.1.2.10 (keep alive: disconnected after 1.5 times) and 4.6 (message ordering)",
        ),
        "slow-consumer": Mechanism(
            means=(
                "the subscriber does not read its socket, and the broker's send waits. The broker hangs up on a client "
                "from which nothing came for 1.5 times its keep-alive (60 s)"
            ),
            bound_ms=90_000,
            source="MQTT 3.1.1, 3.1.2.10 (keep alive); RFC 9293, 3.8.6 (flow control)",
        ),
    },
)


class Held:
    """A message that stopped on its way to one subscriber, and how many of its topic overtook it."""

    def __init__(self, session: Session, packet: bytes, publish: mqtt.Publish, message: Message) -> None:
        self.session = session
        self.packet = packet
        self.publish = publish
        self.message = message
        self.overtaken = 0

    def record(self, recorder: Recorder, kind: str, hold: str, **data: Any) -> None:
        """Record what happened to this message."""
        message = self.message
        recorder.record(
            kind,
            message.request,
            message.attempt,
            hold=hold,
            what=message.id,
            type=message.type,
            chunk=message.chunk,
            **data,
        )


class Gate:
    """The sessions, and what is held of them. Everything happens on one event loop."""

    def __init__(self, recorder: Recorder, broker: entry.Address) -> None:
        self.recorder = recorder
        self.broker = broker
        self._rules: Rules[Message] = Rules(MessageMatch)
        self._holds: dict[str, list[Held]] = {}
        self._sessions: set[Session] = set()
        self._gone = tally.NOTHING
        self._forged = 0

    # -- connections

    def accept(self) -> Side:
        """A client connects: its side of a new session."""
        session = Session(self.broker, self._stops, self._ended)
        self._sessions.add(session)
        return session.client

    def close(self) -> None:
        """End every session."""
        for session in list(self._sessions):
            session.close()

    def _ended(self, session: Session) -> None:
        self._sessions.discard(session)
        self._gone = tally.add(self._gone, session.counts())

    def _stops(self, session: Session, packet: bytes) -> bool:
        """Whether this packet to a client is held, and does not pass."""
        held_here = [held for queue in self._holds.values() for held in queue if held.session is session]
        if not (self._rules or held_here):
            return False
        publish = mqtt.parse_publish(packet)
        if publish is None:
            return False
        if publish.duplicate and any(held.publish.packet_id == publish.packet_id for held in held_here):
            return True  # sent again because it was not acknowledged: the copy that is held stands for it
        try:
            message = decode(publish.payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        hold = self._rules.choose(message)
        if hold is None:
            for held in held_here:
                held.overtaken += held.publish.topic == publish.topic
            return False
        self.recorder.learned(message.sender, message.seq, message.hlc)
        held = Held(session, packet, publish, message)
        self._holds[hold].append(held)
        held.record(self.recorder, "held", hold)
        return True

    # -- commands

    def handlers(self) -> dict[str, Handler]:
        """What the conductor may ask, see racelab.gates."""
        return {
            "arm": self.arm,
            "release": self.release,
            "drop": self.drop,
            "reset": self.reset,
            "count": self.count,
        }

    def arm(self, hold: str, match: Mapping[str, Any], count: int) -> None:
        """Hold the next `count` messages that agree with `match`."""
        if self._holds.get(hold):
            raise LabError(f"hold {hold!r} still holds messages of before")
        self._rules.disarm(hold)
        self._rules.arm(hold, match, count)
        self._holds[hold] = []
        self.recorder.record("armed", hold=hold, gate=GATE, match=dict(match), count=count)

    def release(self, hold: str) -> list[str]:
        """Deliver what is held, in the order in which it stopped. The rule ends."""
        released = self._close(hold)
        for held in released:
            held.record(self.recorder, "released", hold)
            if held.session.client.alive:
                held.session.client.write(held.packet)
                held.record(self.recorder, "delivered", hold, overtaken=held.overtaken)
            else:
                held.record(self.recorder, "dropped", hold, why="the subscriber has hung up")
        return [held.message.id for held in released]

    def drop(self, hold: str) -> list[str]:
        """Lose what is held. The rule ends."""
        if any(held.publish.qos > 1 for held in self._holds.get(hold, ())):
            raise LabError(f"hold {hold!r} has a QoS 2 message, whose loss would need a forged handshake")
        dropped = self._close(hold)
        for held in dropped:
            if held.publish.packet_id is not None and held.session.broker.alive:
                held.session.broker.write(mqtt.puback(held.publish.packet_id))
                self._forged += 1
            held.record(self.recorder, "dropped", hold)
        return [held.message.id for held in dropped]

    def _close(self, hold: str) -> list[Held]:
        if hold not in self._holds:
            raise LabError(f"no hold {hold!r} at the bus gate; armed here: {', '.join(self._holds) or 'none'}")
        self._rules.disarm(hold)
        queue, self._holds[hold] = self._holds[hold], []
        return queue

    def reset(self, incarnation: int) -> dict[str, Any]:
        """Begin an incarnation: no rules, counts from zero. What is held stays held, and is named."""
        self.recorder.incarnation = incarnation
        self._gone, self._forged = tally.NOTHING, 0
        for session in self._sessions:
            session.zero()
        self._holds = {hold: queue for hold, queue in self._holds.items() if queue}
        held = [held.message.id for queue in self._holds.values() for held in queue]
        return {"held": held, "armed": self._rules.forget()}

    def count(self) -> dict[str, int]:
        """Record and return bytes in and out of all connections since the last reset, live or gone."""
        total = tally.add(self._gone, *(session.counts() for session in self._sessions))
        counts = dict(zip(tally.NAMES, total, strict=True))
        counts |= {"forged": self._forged, "sessions": len(self._sessions)}
        self.recorder.record("counted", gate=GATE, counts=counts)
        return counts


async def probe(broker: entry.Address) -> None:
    """See that an MQTT 3.1.1 broker answers where one should be.

    Raises:
        BusError: nobody listens there, or something else does.
    """
    host, port = broker
    next = "start it, or leave the broker out to get the embedded one"
    try:
        async with asyncio.timeout(BROKER_BOUND_S):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(mqtt.connect(PROBE_CLIENT))
            answer = await reader.read(mqtt.CONNACK_BYTES)
            writer.write(mqtt.DISCONNECT)
            writer.close()
    except TimeoutError:
        raise BusError(f"the broker at {host}:{port} did not answer in {BROKER_BOUND_S:.0f} s", next=next) from None
    except OSError as error:
        raise BusError(f"no MQTT broker at {host}:{port}: {entry.reason(error)}", next=next) from None
    if not mqtt.is_connack(answer):
        raise BusError(f"what listens at {host}:{port} is no MQTT 3.1.1 broker", next=next)


async def serve(listener: socket.socket, broker: entry.Address, hub: str, speaker: entry.Speaker) -> None:
    """Relay until the conductor is gone."""
    await probe(broker)
    loop = asyncio.get_running_loop()
    gate = Gate(speaker.recorder, broker)
    server = await loop.create_server(gate.accept, sock=listener)
    host, port = listener.getsockname()[:2]
    link = speaker.connect(hub, {"mqtt": f"{host}:{port}"})
    handlers = gate.handlers()
    gone = loop.create_future()

    def answer() -> None:
        commands = link.ready()
        for command in commands or ():
            link.answer(command, handlers)
        if commands is None and not gone.done():
            gone.set_result(None)

    loop.add_reader(link.fileno(), answer)
    await gone
    loop.remove_reader(link.fileno())
    server.close()
    gate.close()


def main() -> None:
    """Parse the arguments, connect, and serve until the conductor is gone."""
    arguments = entry.parser("injectors.bus", INJECTOR.means)
    arguments.add_argument(
        "--broker", type=entry.address, required=True, metavar="HOST:PORT", help="the MQTT 3.1.1 broker"
    )
    options = arguments.parse_args()
    listener = entry.listen(options.host, options.port)
    asyncio.run(serve(listener, options.broker, options.hub, entry.Speaker(options.instance)))


if __name__ == "__main__":
    entry.run(main)

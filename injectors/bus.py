"""The bus gate: holds, releases and loses control messages on their way to a subscriber.

    python -m injectors.bus --hub HOST:PORT --instance bus --broker HOST:PORT [--host H] [--port N]

Clients connect to the gate in place of the broker (any MQTT 3.1.1 broker). Every packet passes byte
for byte, except a PUBLISH to a subscriber that a rule wants. A held message holds up nothing behind
it, and counts what overtook it: on one topic, at one QoS and from one publisher MQTT keeps the order
(3.1.1, 4.6), so an `overtaken` above 0 is only possible where those differ.

A drop is what the application sees: the loss of a notification. At QoS 0 the packet is gone. At
QoS 1 the broker would send it again, so the gate forges the subscriber's PUBACK. At QoS 2 a message
can be held and not dropped. A rule counts deliveries: a message with two subscribers is two.

A duplicate is the message, and later its copy; a message that a hold armed before has stopped is doubled when
it goes on. At QoS 1 it is what a lost PUBACK leads to: the gate keeps
the subscriber's first PUBACK from the broker and sends the packet again with its DUP flag set. At QoS 0
nothing in MQTT does that, and the run is labelled synthetic; at QoS 2 no copy is made.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

import msgspec
import uvloop

from injectors import entry, tally
from injectors.bus_held import Held, Hold, in_reverse
from injectors.bus_session import Session, Side
from racelab import delays
from racelab.channel.link import Handler
from racelab.errors import BusError, LabError
from racelab.evidence.recorder import Recorder
from racelab.gates import Injector, Mechanism
from racelab.scenario.steps import MessageMatch
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
    actions=("hold", "pass", "delay", "duplicate"),
    ends=("release", "drop", "order"),
    mechanisms={
        "congestion": Mechanism(
            means=(
                "segments of the broker's connection to the subscriber are lost and sent again. The bound is that of a "
                "subscriber that hears nothing, as below: the kernels would go on for longer"
            ),
            bound_ms=90_000,
            source="MQTT 3.1.1, 3.1.2.10 (keep alive); Linux ip-sysctl.rst, tcp_retries2",
        ),
        "lost-acknowledgement": Mechanism(
            means=(
                "a connection ends before the acknowledgement of a QoS 1 message has come through: its sender sends "
                "it again once connected anew, and the application hears it twice. The bound is that of noticing"
            ),
            bound_ms=90_000,
            source="MQTT 3.1.1, 4.3.2 (at least once), 4.4 (redelivery) and 3.1.2.10 (keep alive)",
        ),
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


class Gate:
    """The sessions, and what is held of them. Everything happens on one event loop."""

    def __init__(self, recorder: Recorder, broker: entry.Address) -> None:
        self.recorder = recorder
        self.broker = broker
        self._rules: Rules[Message] = Rules(MessageMatch)
        self._holds: dict[str, Hold] = {}
        self._unacknowledged: dict[tuple[Session, int], Held] = {}
        """copies whose first acknowledgement is kept from the broker"""
        self._delayed: defaultdict[tuple[Session, bytes], deque[tuple[int, str, Held]]] = defaultdict(deque)
        """by topic when each delayed message is due: no later one of a topic goes before an earlier"""
        self._sessions: set[Session] = set()
        self._gone = tally.NOTHING
        self._forged = 0

    # -- connections

    def accept(self) -> Side:
        """A client connects: its side of a new session."""
        session = Session(self.broker, self._stops, self._keeps, self._ended)
        self._sessions.add(session)
        return session.client

    def close(self) -> None:
        """End every session."""
        for session in list(self._sessions):
            session.close()

    def _ended(self, session: Session) -> None:
        self._sessions.discard(session)
        self._gone = tally.add(self._gone, session.counts())
        self._unacknowledged = {place: held for place, held in self._unacknowledged.items() if place[0] is not session}

    def _stops(self, session: Session, packet: bytes) -> bool:
        """Whether this packet to a client is held, and does not pass."""
        held_here = [held for hold in self._holds.values() for held in hold.queue if held.session is session]
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
        name = self._rules.choose(message)
        if name is None:
            for held in held_here:
                in_order = held.publish.topic == publish.topic and held.message.sender == message.sender
                held.overtaken += in_order and not held.copy
            return False
        self.recorder.learned(message.sender, message.seq, message.hlc)
        return self._wanted(name, Held(session, packet, publish, message))

    def _wanted(self, name: str, held: Held) -> bool:
        """Do to a message what its hold says; whether it stops."""
        hold = self._holds[name]
        match hold.action:
            case "pass":
                held.record(self.recorder, "passed", name)
                return False
            case "duplicate":
                if held.publish.qos < 2:  # beyond, its receiver throws a second one away
                    self._copy(name, held)
                return False
            case "delay":
                self._delay(name, held)
            case _:
                hold.queue.append(held)
                held.record(self.recorder, "held", name)
        return True

    def _copy(self, name: str, held: Held) -> None:
        copy = Held(held.session, held.packet, held.publish, held.message, copy=True)
        if copy.publish.packet_id is not None:
            self._unacknowledged[copy.session, copy.publish.packet_id] = copy
        self._holds[name].queue.append(copy)
        copy.record(self.recorder, "held", name, action="duplicate", qos=copy.publish.qos)

    def _keeps(self, session: Session, packet: bytes) -> bool:
        """Whether this packet from a client does not go on to the broker: the first acknowledgement of two."""
        if not self._unacknowledged:
            return False
        held = self._unacknowledged.pop((session, mqtt.parse_puback(packet) or 0), None)
        if held is None:
            return False
        held.acked = True
        return True

    def _delay(self, name: str, held: Held) -> None:
        """It goes on when its time has come, and not before an earlier one of its topic."""
        hold = self._holds[name]
        assert hold.delays is not None
        delay_ms = next(hold.delays)
        hold.queue.append(held)
        held_ns = held.record(self.recorder, "held", name, action="delay", delay_ms=delay_ms)
        line = self._delayed[held.place]
        line.append((held_ns + round(delay_ms * 1e6), name, held))
        if len(line) == 1:
            self._deliver_due(held.place)

    def _deliver_due(self, place: tuple[Session, bytes]) -> None:
        """Deliver what is due of a topic, and come again for the next: the loop's timers may ring too early."""
        line = self._delayed[place]
        while line and (left_ns := line[0][0] - time.monotonic_ns()) <= 0:
            _, name, held = line.popleft()
            self._holds[name].queue.remove(held)
            self._deliver(name, held)
        if line:
            asyncio.get_running_loop().call_later(left_ns / 1e9, self._deliver_due, place)
        else:
            del self._delayed[place]

    # -- commands

    def handlers(self) -> dict[str, Handler]:
        """What the conductor may ask, see racelab.gates."""
        return {
            "arm": self.arm,
            "release": self.release,
            "drop": self.drop,
            "reset_connections": self.reset_connections,
            "reset": self.reset,
            "count": self.count,
        }

    def arm(
        self,
        hold: str,
        match: Mapping[str, Any],
        count: int,
        action: str = "hold",
        ms: delays.Distribution | None = None,
        seed: str = "",
    ) -> None:
        """Do `action` to the next `count` messages that agree with `match`."""
        if action not in INJECTOR.actions:
            raise LabError(f"the bus gate knows no {action!r}")
        if hold in self._holds and self._holds[hold].queue:
            raise LabError(f"hold {hold!r} still holds messages of before")
        self._rules.disarm(hold)
        self._rules.arm(hold, match, count)
        self._holds[hold] = Hold(action, delays.draws(ms, seed) if ms is not None else None)
        self.recorder.record("armed", hold=hold, gate=GATE, match=dict(match), count=count)

    def release(self, hold: str, order: str | None = None) -> list[str]:
        """Deliver what is held, in the order in which it stopped, or "reversed". The rule ends.

        What is delayed goes by itself, and is not hurried.
        """
        going = self._close(hold)
        if order == "reversed":
            going = in_reverse(going)
        for held in going:
            self._deliver(hold, held)
        return [held.what for held in going]

    def _deliver(self, hold: str, held: Held) -> None:
        held.record(self.recorder, "released", hold)
        if held.session.client.alive:
            held.session.client.write(held.packet)
            held.record(self.recorder, "delivered", hold, overtaken=held.overtaken)
            self._copy_if_wanted(held)
        else:
            held.record(self.recorder, "dropped", hold, why="the subscriber has hung up")

    def _copy_if_wanted(self, held: Held) -> None:
        """What was held comes twice if another hold wants that of it."""
        if held.copy or held.publish.qos > 1:
            return
        name = self._rules.choose(
            held.message, {name for name, hold in self._holds.items() if hold.action == "duplicate"}
        )
        if name is not None:
            self._copy(name, held)

    def drop(self, hold: str) -> list[str]:
        """Lose what is held. The rule ends."""
        queue = self._holds[hold].queue if hold in self._holds else ()
        if any(held.publish.qos > 1 for held in queue):
            raise LabError(f"hold {hold!r} has a QoS 2 message, whose loss would need a forged handshake")
        dropped = self._close(hold)
        for held in dropped:
            self._acknowledge(held)
            held.record(self.recorder, "dropped", hold)
        return [held.what for held in dropped]

    def _acknowledge(self, held: Held) -> None:
        """The broker is to hear that this was delivered: by what was kept of the subscriber's, or a forged packet."""
        packet_id = held.publish.packet_id
        if packet_id is None or not held.session.broker.alive:
            return
        if held.copy and not held.acked:
            self._unacknowledged.pop((held.session, packet_id), None)  # its subscriber's own is to come, and passes
            return
        held.session.broker.write(mqtt.puback(packet_id))
        self._forged += not held.copy

    def reset_connections(self, hold: str) -> list[str]:
        """Reset the connections on which something is held, at both ends; what is held is lost with them.

        What was sent at QoS 1 and not acknowledged a broker sends again to a subscriber whose session outlives
        its connection. The rule ends.
        """
        lost = self._close(hold)
        for held in lost:
            held.record(self.recorder, "dropped", hold, reset=True)
        for session in {held.session for held in lost}:
            session.reset()
        return [held.what for held in lost]

    def _close(self, hold: str) -> deque[Held]:
        if hold not in self._holds:
            raise LabError(f"no hold {hold!r} at the bus gate; armed here: {', '.join(self._holds) or 'none'}")
        self._rules.disarm(hold)
        found = self._holds[hold]
        if found.delays is not None:
            return deque()
        queue, found.queue = found.queue, deque()
        return queue

    def reset(self, incarnation: int) -> dict[str, Any]:
        """Begin an incarnation: no rules, counts from zero. What is held stays held, and is named."""
        self.recorder.incarnation = incarnation
        self._gone, self._forged = tally.NOTHING, 0
        for session in self._sessions:
            session.zero()
        self._holds = {name: hold for name, hold in self._holds.items() if hold.queue}
        held = [held.what for hold in self._holds.values() for held in hold.queue]
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
    uvloop.run(serve(listener, options.broker, options.hub, entry.Speaker(options.instance)))


if __name__ == "__main__":
    entry.run(main)

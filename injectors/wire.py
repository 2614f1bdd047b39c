"""The wire gate: holds, releases and loses one-sided writes of Mooncake's TCP transport.

    python -m injectors.wire --hub HOST:PORT --instance wire --target HOST:PORT [--host H] [--port N]

It stands in the path by name. A writer opens the gate's segment instead of the target's; the gate
asks the target for its metadata and answers with its own data port in it, and relays each data
connection. A held write has left its writer whole and not reached its target: it lands when it is
released, whether or not its writer still lives, and over whatever its page then holds.

On TCP a write is lost by a reset of its connection, so `drop` resets the writer's connection and
gives the target nothing; `reset` does so at both ends. A write that is torn breaks off: the target gets its
first bytes and then the end of the stream, as when the writer's process is killed in the middle of it. The
writer of a `ghost` is reset and its bytes land later; of a `lose-completion` they land and the target's status
is kept back. Of one that is `half-open` the target's end is closed, and its writer hears nothing until it is
dropped. Each held write has its connection to itself, so they may go in any order.

A held read has been answered by its target, and its reader does not have the answer; with payload `at-release` it
is the question that is held, and the target answers when it is let go.

A notification (injectors.wire_notices) comes by the gate's name too, on the handshake port.

Writes that no hold wants do not come here at all (racelab.transport.lanes); those that do come pass.
"""

from __future__ import annotations

import argparse
import socket
import struct
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from injectors import entry, tally, wire_notices
from injectors.wire_book import ACTIONS, Book
from injectors.wire_notices import Notices
from injectors.wire_relay import Relay
from racelab.gates import Injector, Mechanism
from racelab.transport.lanes import acknowledge, read_announcement
from racelab.transport.tcp_layout import METADATA, NOTIFY, Segment, pack_handshake, read_handshake, redirect

TARGET_BOUND_S = 10.0

INJECTOR = Injector(
    name="wire",
    subject="write",
    module="injectors.wire",
    means="a TCP relay that the writer reaches by the gate's segment name; whole writes stop in it",
    stage="on the wire",
    payload="at-hold",
    actions=ACTIONS,
    reads=("at-hold", "at-release"),
    retargets=True,
    ends=("release", "drop", "reset", "corrupt", "tear", "order"),
    notifies=wire_notices.ACTIONS,
    ends_of_notifies=wire_notices.ENDS,
    transports=("tcp",),
    mechanisms={
        "congestion": Mechanism(
            means=(
                "segments of the write are lost and sent again while the writer keeps its socket; "
                "the sender's kernel gives up after tcp_retries2 (15) retransmissions"
            ),
            bound_ms=924_600,
            source="Linux Documentation/networking/ip-sysctl.rst, tcp_retries2; RFC 9293, 3.8.3 (R2); RFC 6298",
        ),
        "congestion-after-close": Mechanism(
            means=(
                "the same after the writer gave up and closed its socket: what the kernel had taken is still sent, "
                "for tcp_orphan_retries (8) retransmissions, 511 times the least timeout of 200 ms"
            ),
            bound_ms=102_200,
            source="Linux Documentation/networking/ip-sysctl.rst, tcp_orphan_retries; net/ipv4/tcp_timer.c",
        ),
        "paused-peer": Mechanism(
            means=(
                "the target's host stalls (a paused virtual machine, a frozen process). The writer's API gives up at "
                "its own progress timeout, and the bytes stay in the sockets between, no more than both buffers take: "
                "those that the target's kernel has outlive the writer, the others are bound by retransmission. "
                "The bound is that of a host that answers nothing at all"
            ),
            bound_ms=924_600,
            source="Linux ip-sysctl.rst, tcp_retries2, tcp_rmem, tcp_wmem; RFC 9293, 3.8.6.1 (zero-window probing)",
        ),
        "reset-behind-the-bytes": Mechanism(
            means=(
                "the writer is sent a reset (by a firewall that lost its state, by a link that was taken down) while "
                "its bytes are in the network or the target's socket: they arrive for as long as a segment may live"
            ),
            bound_ms=120_000,
            source="RFC 9293, 3.4.1 (maximum segment lifetime, 2 minutes) and 3.10.7.4 (reset)",
        ),
        "busy-handshake-thread": Mechanism(
            means=(
                "of a notification: the target's one handshake thread takes connections one after the other, and waits "
                "for 5 s on each that says nothing; the bound is that of one such connection before it"
            ),
            bound_ms=5_000,
            source="Mooncake, transfer_metadata_plugin.cpp, SocketHandShakePlugin::startDaemon (SO_RCVTIMEO)",
        ),
        "lost-end": Mechanism(
            means=(
                "of a half-open connection: the target's host, or a firewall or address translator on the way, has "
                "lost it, and nothing tells the writer, whose kernel sends again and again until tcp_retries2"
            ),
            bound_ms=924_600,
            source="RFC 9293, 3.5.1 (half-open connections); Linux ip-sysctl.rst, tcp_retries2",
        ),
        "route-flap": Mechanism(
            means="a rail or route goes away and comes back: the connection lives on and its segments are sent again",
            bound_ms=924_600,
            source="RFC 1122, 4.2.3.9 (unreachable is a soft error); Linux ip-sysctl.rst, tcp_retries2",
        ),
    },
)


class Door:
    """The gate's name for one engine: where its handshakes are answered, and its data comes."""

    def __init__(self, target: entry.Address, host: str, port: int = 0, notices: Notices | None = None) -> None:
        self.target = target
        self._notices = notices
        self.host = host
        self.handshakes = entry.listen(host, port)
        self.data = entry.listen(host)
        self._segment: Segment | None = None

    @property
    def name(self) -> str:
        """The segment that stands for the target's."""
        return f"{self.host}:{self.data_port(self.handshakes)}"

    @staticmethod
    def data_port(listener: socket.socket) -> int:
        """Where a listener listens."""
        return int(listener.getsockname()[1])

    def retarget(self, target: entry.Address) -> None:
        """Stand for another engine: its process has taken the place of one that is gone, and has a new address."""
        self.target = target
        self._segment = None

    def answer(self, writer: socket.socket) -> None:
        """Pass one question on to the target, and put the gate's place into an answer about where data goes."""
        question = read_handshake(writer)
        if question is None:
            return
        if question[0] == NOTIFY and self._notices is not None:
            self._notices.carry(writer, question[1], self.target)
            return
        with socket.create_connection(self.target, timeout=TARGET_BOUND_S) as target:
            target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            target.sendall(pack_handshake(*question))
            answer = read_handshake(target)
        if answer is None:
            return
        kind, body = answer
        if kind == METADATA:
            body, segment = redirect(body, self.name, self.host, self.data_port(self.data))
            if segment.protocol < 2:
                raise ValueError("protocol 1 never says what landed; take MC_TCP_PROTO out of the environment")
            self._segment = segment
        writer.sendall(pack_handshake(kind, body))

    def connect(self) -> socket.socket:
        """A data connection to the target."""
        if self._segment is None:
            raise ValueError("a data connection before any handshake")
        target = socket.create_connection((self.target[0], self._segment.data_port), timeout=TARGET_BOUND_S)
        target.settimeout(None)
        return target


class Gate:
    """The listeners, one thread each, and one thread for every connection to them.

    `relay` is what serves a data connection; an injector of its own can put another one in its place.
    """

    relay: type[Relay] = Relay

    def __init__(
        self, speaker: entry.Speaker, targets: list[entry.Address], host: str, port: int = 0, name: str = INJECTOR.name
    ) -> None:
        self.recorder = speaker.recorder
        self.host = host
        self.book = Book(speaker.recorder, speaker.urgently, name)
        self.notices = Notices(speaker.recorder, speaker.urgently, name)
        ports = [port, *[0] * (len(targets) - 1)]
        self.doors = [Door(target, host, at, self.notices) for target, at in zip(targets, ports, strict=True)]
        self._announcements = entry.listen(host)
        self._lock = threading.Lock()
        self._relays: set[Relay] = set()
        self._gone = tally.NOTHING

    @property
    def segments(self) -> dict[str, str]:
        """The names of the doors, by the segments that they stand for."""
        return {f"{door.target[0]}:{door.target[1]}": door.name for door in self.doors}

    @property
    def facts(self) -> dict[str, Any]:
        """What the conductor tells writers and readers of this gate; `segments` by those that they stand for."""
        first = self.doors[0]
        return {
            "segment": first.name,
            "segments": self.segments,
            "announce": f"{self.host}:{Door.data_port(self._announcements)}",
            "data_port": Door.data_port(first.data),
        }

    def start(self) -> None:
        """Take connections."""
        for door in self.doors:
            self._open(door)
        _spawn(_accept, self._announcements, self._hear)

    def _open(self, door: Door) -> None:
        _spawn(_accept, door.handshakes, door.answer)
        _spawn(_accept, door.data, partial(self._relay, door))

    def close(self) -> None:
        """Take no more connections."""
        for listener in (*(each for door in self.doors for each in (door.handshakes, door.data)), self._announcements):
            listener.close()

    # -- one thread a connection

    def _relay(self, door: Door, writer: socket.socket) -> None:
        relay = self.relay(self.book, self.recorder, writer, door.connect())
        with self._lock:
            self._relays.add(relay)
        relay.run()
        with self._lock:
            self._relays.discard(relay)
            self._gone = tally.add(self._gone, relay.counts())

    def _hear(self, writer: socket.socket) -> None:
        while (announcement := read_announcement(writer)) is not None:
            self.recorder.learned(announcement.sender, announcement.seq, announcement.hlc)
            self.book.announce(announcement.writes)
            acknowledge(writer, announcement)

    # -- commands

    def handlers(self) -> dict[str, Callable[..., Any]]:
        """What the conductor may ask, see racelab.gates."""
        return {
            "arm": self.arm,
            "release": self.release,
            "drop": self.drop,
            "reset_connections": self.book.reset_connections,
            "reset": self.reset,
            "retarget": self.retarget,
            "count": self.count,
            "add_targets": self.add_targets,
        }

    def add_targets(self, targets: list[str]) -> dict[str, str]:
        """Stand for more engines, as from the start; the names of all."""
        for target in targets:
            door = Door(entry.address(target), self.host)
            self.doors.append(door)
            self._open(door)
        return self.segments

    def retarget(self, targets: list[str]) -> dict[str, Any]:
        """Stand for other engines than those that it was started with, as many; the facts that follow."""
        for door, target in zip(self.doors, targets, strict=True):
            door.retarget(entry.address(target))
        return self.facts

    def arm(self, hold: str, match: dict[str, Any], count: int, **more: Any) -> None:
        """Arm for accesses, or for notifications: those have a type, as every message."""
        (self.notices if "type" in match else self.book).arm(hold, match, count, **more)

    def release(self, hold: str, **change: Any) -> list[str]:
        """End a hold of either: what it holds goes on."""
        return self.notices.release(hold, **change) if self.notices.knows(hold) else self.book.release(hold, **change)

    def drop(self, hold: str) -> list[str]:
        """End a hold of either: what it holds is lost."""
        return (self.notices if self.notices.knows(hold) else self.book).drop(hold)

    def reset(self, incarnation: int) -> dict[str, Any]:
        """Begin an incarnation: counts from zero, no rules; the writes that are still held."""
        with self._lock:
            self._gone = tally.NOTHING
            for relay in self._relays:
                relay.zero()
        held, armed = self.notices.reset()
        answer = self.book.reset(incarnation)
        return {"held": answer["held"] + held, "armed": answer["armed"] + armed}

    def count(self) -> dict[str, int]:
        """Record and return bytes in and out of all data connections since the last reset, live or gone."""
        with self._lock:
            total = tally.add(self._gone, *(relay.counts() for relay in self._relays))
        counts = dict(zip(tally.NAMES, total, strict=True))
        counts |= {"unannounced": self.book.unannounced, "ambiguous": self.book.ambiguous}
        counts |= self.notices.counts()
        self.recorder.record("counted", gate=self.book.gate, counts=counts)
        return counts


def _spawn(run: Callable[..., None], *args: Any) -> None:
    threading.Thread(target=run, args=args, daemon=True).start()


def _accept(listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # closed: the gate ends
        _spawn(_serve, connection, serve)


def _serve(connection: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    """One connection, to its end; a stranger or a dead target costs no more than that connection."""
    with connection:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            serve(connection)
        except (OSError, ValueError, struct.error) as error:
            print(f"wire gate: a connection ended: {error}", file=sys.stderr, flush=True)


def serve(injector: Injector, gate: type[Gate] = Gate) -> None:
    """Be the process of such a gate: parse the arguments, connect, and serve until the conductor is gone."""
    arguments = entry.parser(injector.module, injector.means)
    arguments.add_argument(
        "--target",
        type=entry.address,
        required=True,
        action="append",
        metavar="HOST:PORT",
        help="the segment of an engine that is written to or read from; may be given several times",
    )
    options: argparse.Namespace = arguments.parse_args()
    speaker = entry.Speaker(options.instance)
    standing = gate(speaker, options.target, options.host, options.port, injector.name)
    link = speaker.connect(options.hub, standing.facts)
    standing.start()
    link.serve(standing.handlers())
    standing.close()


def main() -> None:
    """The wire gate's own process."""
    serve(INJECTOR)


if __name__ == "__main__":
    entry.run(main)

"""Keeps packets of RDMA requests in the machine's network, for the packet gate (injectors/packets/keeping.py).

Rules of nftables send it packets of the queue pairs that are held (nfnetlink_queue; Linux
include/uapi/linux/netfilter/nfnetlink_queue.h). It sends each on, loses it, or keeps it until it is told. The packets
of a queue pair keep their order; one that is sent again while its like is kept is lost. It is sent along with the
request that starts it. One line of JSON a request; each is answered by {"ok": watch}:

    {"do": "watch", "watch", "address", "bytes", "keeps"}   `keeps`: keep its packets; else lose them each time
    {"do": "release", "watch", "late"}   its packets go on; `late`: marked, as nobody counts on them any more
    {"do": "drop", "watch"}              they are lost, and so is what is sent again
    {"do": "forget", "watch"}            it is over
told:
    {"stopped": watch, "packets", "requester", "responder", "queue_pair"}    all are kept, or the first one is lost
    {"answered": watch, "syndrome"}      the responder acknowledged its last packet, or refused it (AETH)
"""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import struct
import sys
from typing import Any

NETLINK_NETFILTER = 12
PACKET, VERDICT, CONFIG = 0x300, 0x301, 0x302
BIND, COPY_PACKET = 1, 2
DROP, ACCEPT = 0, 1
QUEUE = 0
QUEUE_PACKETS_MAX = 65536
COPIED_BYTES = 64
LATE_MARK = 9
AROUND_BYTES = 44  # of a packet, around its payload: IP 20, UDP 8, BTH 12, ICRC 4; RETH 16 where a request begins
BEGINS, ENDS, ACKNOWLEDGE = (6, 10, 11, 12), (8, 9, 10, 11, 12), 17
WRAP = 1 << 24


class Packet:
    """What is read of one: IP, UDP, BTH and, where a request begins, RETH."""

    def __init__(self, number: int, data: bytes) -> None:
        self.number = number
        self.requester, self.responder = (socket.inet_ntoa(data[at : at + 4]) for at in (12, 16))
        self.opcode = data[28]
        self.queue_pair = int.from_bytes(data[33:36], "big")
        self.sequence = int.from_bytes(data[37:40], "big")
        begins = self.opcode in BEGINS
        self.address = int.from_bytes(data[40:48], "big") if begins else 0
        self.syndrome = data[40]
        self.payload = int.from_bytes(data[2:4], "big") - AROUND_BYTES - (16 if begins else 0)
        self.watch: Watch | None = None


class Watch:
    """One access, and what is to become of its packets."""

    def __init__(self, number: int, address: int, size: int, keeps: bool) -> None:
        self.number, self.address, self.size, self.keeps = number, address, size, keeps
        self.state = "stops"
        self.late = self.told = False
        self.packets = self.payload = 0
        self.flow: Flow | None = None
        self.last: Packet | None = None


class Flow:
    """What goes to one queue pair."""

    def __init__(self) -> None:
        self.kept: list[Packet] = []
        self.current: Watch | None = None


class Keeper:
    """Single-threaded."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.buffered = b""
        self.watches: dict[int, Watch] = {}
        self.flows: dict[tuple[str, int], Flow] = {}
        self.netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
        self.netlink.bind((0, 0))
        self.netlink.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
        self.config(1, struct.pack(">BBH", BIND, 0, socket.AF_INET))
        self.config(2, struct.pack(">IB", COPIED_BYTES, COPY_PACKET))
        self.config(3, struct.pack(">I", QUEUE_PACKETS_MAX))

    def config(self, kind: int, data: bytes) -> None:
        self.ask(CONFIG, attribute(kind, data))

    def ask(self, kind: int, attributes: bytes) -> None:
        size = 20 + len(attributes)
        self.netlink.send(struct.pack("=IHHII", size, kind, 1, 0, 0) + struct.pack(">BBH", 0, 0, QUEUE) + attributes)

    def decide(self, packet: Packet, verdict: int) -> None:
        late = packet.watch is not None and packet.watch.late
        mark = attribute(3, struct.pack(">I", LATE_MARK)) if late and verdict == ACCEPT else b""
        self.ask(VERDICT, attribute(2, struct.pack(">II", verdict, packet.number)) + mark)

    def serve(self) -> None:
        """Packets and requests, until the gate hangs up."""
        while True:
            readable, _, _ = select.select([self.netlink, self.connection], [], [])
            if self.netlink in readable:
                self.receive()
            if self.connection in readable:
                data = self.connection.recv(1 << 16)
                if not data:
                    return
                *lines, self.buffered = (self.buffered + data).split(b"\n")
                for line in lines:
                    self.obey(json.loads(line))

    def receive(self) -> None:
        try:
            data = self.netlink.recv(1 << 16)
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                return  # the kernel lost what did not fit, as a network does
            raise
        while len(data) >= 16:
            size, kind = struct.unpack_from("=IH", data)
            if kind == PACKET:
                self.take(packet_of(data[20:size]))
            data = data[(size + 3) & ~3 :]

    def take(self, packet: Packet) -> None:
        if packet.opcode == ACKNOWLEDGE:
            self.acknowledged(packet)
            return
        flow = self.flows.setdefault((packet.responder, packet.queue_pair), Flow())
        if any(one.sequence == packet.sequence for one in flow.kept):
            self.decide(packet, DROP)  # sent again
            return
        if packet.opcode in BEGINS:
            flow.current = self.wanting(packet, flow)
        packet.watch = flow.current
        self.count(packet)
        flow.kept.append(packet)
        self.pump(flow)

    def wanting(self, packet: Packet, flow: Flow) -> Watch | None:
        """The latest watch of this address that no other queue pair was the first to meet."""
        for watch in reversed(self.watches.values()):
            mine = watch.flow is flow or (watch.flow is None and watch.state == "stops")
            if mine and watch.address <= packet.address < watch.address + watch.size:
                watch.flow = flow
                return watch
        return None

    def count(self, packet: Packet) -> None:
        watch = packet.watch
        if watch is None or watch.told:
            return
        watch.packets += 1
        watch.payload += packet.payload
        whole = packet.opcode in ENDS and (packet.opcode == 12 or watch.payload >= watch.size)
        if whole:
            watch.last = packet
        if whole or not watch.keeps:
            watch.told = True
            about = {"requester": packet.requester, "responder": packet.responder, "queue_pair": packet.queue_pair}
            self.say({"stopped": watch.number, "packets": watch.packets} | about)

    def pump(self, flow: Flow) -> None:
        """What stands first goes on, or is lost, unless it is kept."""
        while flow.kept:
            first = flow.kept[0]
            state = first.watch.state if first.watch is not None else "released"
            if state == "stops" and first.watch is not None and first.watch.keeps:
                return
            flow.kept.pop(0)
            self.decide(first, ACCEPT if state == "released" else DROP)

    def acknowledged(self, packet: Packet) -> None:
        """Of a late request nobody else hears what the responder says."""
        self.decide(packet, ACCEPT)
        for watch in self.watches.values():
            last = watch.last
            if (
                not watch.late
                or last is None
                or (last.responder, last.requester) != (packet.requester, packet.responder)
            ):
                continue
            refused = packet.syndrome >> 5 == 3
            if refused or (packet.sequence - last.sequence) % WRAP < WRAP // 2:
                watch.late = False
                self.say({"answered": watch.number, "syndrome": packet.syndrome})

    def obey(self, request: dict[str, Any]) -> None:
        do, number = request["do"], int(request["watch"])
        if do == "watch":
            self.watches[number] = Watch(number, request["address"], request["bytes"], request["keeps"])
        elif do == "forget":
            self.watches.pop(number, None)
        elif (watch := self.watches.get(number)) is not None:
            watch.state = "released" if do == "release" else "lost"
            watch.late = bool(request.get("late"))
            for flow in self.flows.values():
                self.pump(flow)
        self.say({"ok": number})

    def say(self, what: dict[str, Any]) -> None:
        self.connection.sendall(json.dumps(what).encode() + b"\n")


def attribute(kind: int, data: bytes) -> bytes:
    """A netlink attribute."""
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def packet_of(data: bytes) -> Packet:
    """A packet of the queue, from the attributes of its message."""
    number, payload = 0, b""
    while len(data) >= 4:
        size, kind = struct.unpack_from("=HH", data)
        if kind & 0x7FFF == 1:
            number = int.from_bytes(data[4:8], "big")
        elif kind & 0x7FFF == 10:
            payload = data[4:size]
        data = data[(size + 3) & ~3 :]
    return Packet(number, payload.ljust(COPIED_BYTES, b"\0"))


def main() -> None:
    """Keep packets for the gate at the other end of the inherited connection."""
    with socket.socket(fileno=int(sys.argv[-1])) as connection:
        keeper = Keeper(connection)
        keeper.say({"ok": os.getpid()})
        keeper.serve()


if __name__ == "__main__":
    main()

"""MQTT 3.1.1 packets, as far as a gate on a subscriber's connection needs them.

https://docs.oasis-open.org/mqtt/mqtt/v3.1.1/os/mqtt-v3.1.1-os.html, sections 2.2 (fixed header),
3.1 (CONNECT), 3.2 (CONNACK), 3.3 (PUBLISH) and 3.4 (PUBACK).
"""

from __future__ import annotations

import struct

import msgspec

_PUBLISH = 3
_PUBACK = struct.Struct(">BBH")
_PUBACK_BYTE = 0x40
_DUPLICATE = 0x08
_U16 = struct.Struct(">H")
_LENGTH_BYTES_MAX = 4


class Packets:
    """Cuts a byte stream into whole packets; joined again they are the stream, byte for byte.

    What is not MQTT is given on as it comes, from there to the end of the stream.
    """

    def __init__(self) -> None:
        self._buffer = b""
        self.opaque = False

    def feed(self, data: bytes) -> list[bytes]:
        """Packets that `data` completes."""
        buffer = self._buffer + data if self._buffer else data
        packets: list[bytes] = []
        at = 0
        while at < len(buffer) and not self.opaque:
            try:
                end = packet_end(buffer, at)
            except ValueError:
                self.opaque = True
                break
            if end is None or end > len(buffer):
                break
            packets.append(buffer[at:end])
            at = end
        if self.opaque and at < len(buffer):
            packets.append(buffer[at:])
            at = len(buffer)
        self._buffer = buffer[at:]
        return packets


def packet_end(data: bytes, at: int) -> int | None:
    """Where the packet that starts at `at` ends; None if its length is not all there.

    Raises:
        ValueError: the length takes more than four bytes.
    """
    length = shift = 0
    for index in range(at + 1, at + 1 + _LENGTH_BYTES_MAX):
        if index >= len(data):
            return None
        length |= (data[index] & 0x7F) << shift
        if data[index] < 0x80:
            return index + 1 + length
        shift += 7
    raise ValueError("a packet length of more than four bytes")


class Publish(msgspec.Struct, frozen=True):
    """A PUBLISH: its topic, payload, and how it is to be acknowledged (`packet_id` if QoS is not 0)."""

    topic: bytes
    payload: bytes
    qos: int
    duplicate: bool
    packet_id: int | None


def parse_publish(packet: bytes) -> Publish | None:
    """The PUBLISH that a whole packet is; None if it is another kind, or malformed."""
    if packet[0] >> 4 != _PUBLISH:
        return None
    at = 2
    while packet[at - 1] >= 0x80:
        at += 1
    try:
        (length,) = _U16.unpack_from(packet, at)
        start = at + 2 + length
        qos = packet[0] >> 1 & 3
        packet_id = _U16.unpack_from(packet, start)[0] if qos else None
    except struct.error:
        return None
    payload = packet[start + 2 :] if qos else packet[start:]
    return Publish(packet[at + 2 : start], payload, qos, bool(packet[0] & _DUPLICATE), packet_id)


def as_duplicate(packet: bytes) -> bytes:
    """The PUBLISH that a sender repeats: the same packet with its DUP flag set (3.3.1.1)."""
    return bytes([packet[0] | _DUPLICATE]) + packet[1:]


def parse_puback(packet: bytes) -> int | None:
    """The packet id that a PUBACK acknowledges; None if it is another kind."""
    return int(_PUBACK.unpack(packet)[2]) if packet[0] == _PUBACK_BYTE and len(packet) == _PUBACK.size else None


def puback(packet_id: int) -> bytes:
    """The packet with which a subscriber acknowledges a QoS 1 PUBLISH."""
    return _PUBACK.pack(_PUBACK_BYTE, 2, packet_id)


def connect(client_id: str) -> bytes:
    """The packet with which a client that only looks in begins: clean session, no keep-alive."""
    name = client_id.encode()
    body = b"\x00\x04MQTT\x04\x02\x00\x00" + _U16.pack(len(name)) + name
    assert len(body) < 128
    return bytes([0x10, len(body)]) + body


CONNACK_BYTES = 4
DISCONNECT = b"\xe0\x00"


def is_connack(answer: bytes) -> bool:
    """Whether a broker answered CONNECT, be it with a refusal."""
    return len(answer) == CONNACK_BYTES and answer[:2] == b"\x20\x02"

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racelab.transport.mqtt import Packets, parse_publish, puback


def length_bytes(length: int) -> bytes:
    """MQTT 3.1.1, 2.2.3: seven bits a byte, least first."""
    out = bytearray()
    while True:
        length, digit = divmod(length, 128)
        out.append(digit | (0x80 if length else 0))
        if not length:
            return bytes(out)


def publish(topic: bytes, payload: bytes, qos: int = 0, packet_id: int = 1, flags: int = 0) -> bytes:
    body = len(topic).to_bytes(2, "big") + topic + (packet_id.to_bytes(2, "big") if qos else b"") + payload
    return bytes([0x30 | qos << 1 | flags]) + length_bytes(len(body)) + body


packets = st.builds(
    lambda first, body: bytes([first]) + length_bytes(len(body)) + body,
    st.integers(0x10, 0xEF),
    st.one_of(st.binary(max_size=8), st.integers(120, 140).map(bytes), st.integers(16_380, 16_390).map(bytes)),
)


@given(sent=st.lists(packets, max_size=6), cuts=st.lists(st.integers(0, 60_000), max_size=12))
def test_packets_do_not_depend_on_where_the_stream_is_cut(sent: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(sent)
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    splitter = Packets()
    got = [packet for start, end in itertools.pairwise(places) for packet in splitter.feed(stream[start:end])]
    assert got == sent
    assert not splitter.opaque


@given(stream=st.binary(max_size=400), cuts=st.lists(st.integers(0, 400), max_size=8))
def test_of_any_stream_nothing_is_lost_or_changed(stream: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    splitter = Packets()
    got = b"".join(packet for start, end in itertools.pairwise(places) for packet in splitter.feed(stream[start:end]))
    assert stream.startswith(got)
    assert got == stream or not splitter.opaque


def test_what_is_not_mqtt_is_given_on_as_it_comes() -> None:
    splitter = Packets()
    good = publish(b"t", b"p")
    assert splitter.feed(good + b"\x30\xff\xff\xff") == [good]
    assert splitter.feed(b"\xff\x01") == [b"\x30\xff\xff\xff\xff\x01"]
    assert splitter.opaque
    assert splitter.feed(good) == [good]


@given(
    topic=st.binary(max_size=200),
    payload=st.binary(max_size=300),
    qos=st.integers(0, 2),
    packet_id=st.integers(1, 65_535),
    duplicate=st.booleans(),
    retain=st.booleans(),
)
def test_a_publish_is_read_back(
    topic: bytes, payload: bytes, qos: int, packet_id: int, duplicate: bool, retain: bool
) -> None:
    found = parse_publish(publish(topic, payload, qos, packet_id, duplicate << 3 | retain))
    assert found is not None
    assert (found.topic, found.payload, found.qos, found.duplicate) == (topic, payload, qos, duplicate)
    assert found.packet_id == (packet_id if qos else None)


@pytest.mark.parametrize("packet", [b"\xd0\x00", b"\x30\x00", b"\x30\x01\x00", b"\x32\x03\x00\x01t"])
def test_another_packet_or_a_torn_one_is_no_publish(packet: bytes) -> None:
    assert parse_publish(packet) is None


def test_an_acknowledgement_names_the_packet() -> None:
    assert puback(0x1234) == b"\x40\x02\x12\x34"

from __future__ import annotations

import json
import socket
import threading

import pytest

from racelab.transport.tcp_layout import HEADER, METADATA, STATUS, Segment, pack_handshake, read_handshake, redirect

METADATA_REPLY = {
    "name": "127.0.0.1:16109",
    "protocol": "tcp",
    "buffers": [{"addr": 140514259099664, "length": 16777216, "name": "127.0.0.1:16109"}],
    "tcp_data_host": "127.0.0.1",
    "tcp_data_port": 16732,
    "tcp_proto_version": 2,
}


def test_the_sizes_are_those_on_the_wire() -> None:
    assert (HEADER.size, STATUS.size) == (24, 8)


@pytest.mark.parametrize("timeout", [None, 10.0])
def test_a_handshake_that_comes_byte_by_byte_is_whole(timeout: float | None) -> None:
    here, there = socket.socketpair()
    with here, there:
        there.settimeout(timeout)
        frame = pack_handshake(METADATA, b'{"a": 1}')

        def trickle() -> None:
            for byte in frame:
                here.send(bytes([byte]))

        thread = threading.Thread(target=trickle)
        thread.start()
        assert read_handshake(there) == (METADATA, b'{"a": 1}')
        thread.join(10)


@pytest.mark.parametrize("cut", [0, 3, 8, 12])
def test_a_peer_that_hangs_up_early_gives_none(cut: int) -> None:
    here, there = socket.socketpair()
    with there:
        with here:
            here.sendall(pack_handshake(METADATA, b"{}1234567890")[:cut])
        assert read_handshake(there) is None


@pytest.mark.parametrize("length", [0, 1 << 40])
def test_an_absurd_length_is_refused(length: int) -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(length.to_bytes(8, "little"))
        with pytest.raises(ValueError, match="a handshake of"):
            read_handshake(there)


def test_redirection_changes_the_place_and_nothing_else() -> None:
    body, was = redirect(json.dumps(METADATA_REPLY).encode(), "10.0.0.1:5", "10.0.0.1", 6)
    assert was == Segment(data_port=16732, protocol=2)
    moved = {"name": "10.0.0.1:5", "tcp_data_host": "10.0.0.1", "tcp_data_port": 6}
    assert json.loads(body) == METADATA_REPLY | moved


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"tcp_data_port": "x"}'])
def test_what_is_no_tcp_segment_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="not the metadata"):
        redirect(body, "a:1", "a", 2)

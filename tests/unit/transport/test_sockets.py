from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from racelab.transport import sockets

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="TCP_INFO and sock_diag are Linux's")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        here = socket.create_connection(listener.getsockname(), 10)
        there, _ = listener.accept()
        with here, there:
            yield here, there


def transfer(source: socket.socket, sink: socket.socket, size: int) -> None:
    source.sendall(bytes(size))
    left = size
    while left:
        left -= len(sink.recv(left))


def test_both_ends_count_the_same_bytes_of_data(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    assert sockets.info(here).acked == sockets.info(there).received == 0
    transfer(here, there, 100_000)
    transfer(there, here, 8)  # carries the acknowledgement of all of it
    assert sockets.info(here).acked == sockets.info(here).sent == sockets.info(there).received == 100_000
    assert sockets.info(there).sent == sockets.info(here).received == 8


def test_a_finished_peer_is_no_byte_of_data(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    transfer(here, there, 10)
    here.shutdown(socket.SHUT_WR)
    assert there.recv(1) == b""
    info = sockets.info(there)
    assert info.peer_finished
    assert (info.bytes_received, info.received) == (11, 10)


def test_a_connection_is_found_by_its_far_port(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    transfer(here, there, 300)
    transfer(there, here, 1)
    port = there.getsockname()[1]
    (found,) = sockets.connections(port) or []
    assert found.local == here.getsockname()
    assert found.remote == ("127.0.0.1", port)
    assert found.inode == os.fstat(here.fileno()).st_ino
    assert found.info.acked == 300
    assert sockets.connections(port, "127.0.0.1") == [found]
    assert sockets.connections(port, "127.0.0.2") == []
    here.close()
    assert sockets.connections(port) == []


def test_our_own_descriptors_say_the_same(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    transfer(here, there, 300)
    transfer(there, here, 1)
    port = there.getsockname()[1]
    assert [one.acked for one in sockets.own_to(port)] == [300]
    assert here.fileno() >= 0  # it was looked at, not taken
    transfer(here, there, 5)
    here.close()
    assert sockets.own_to(port) == []


def test_connections_of_others_are_left_out(pair: tuple[socket.socket, socket.socket]) -> None:
    _, there = pair
    port = there.getsockname()[1]
    look = f"from racelab.transport.sockets import connections as c; print(c({port}), len(c({port}, own=False)))"
    elsewhere = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=30)
    assert elsewhere.stdout == "[] 1\n"


def test_listening_ports_are_those_of_this_process() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as first,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as six,
    ):
        ports = {first.getsockname()[1], six.getsockname()[1]}
        assert ports <= set(sockets.listening_ports() or [])
    assert not ports & set(sockets.listening_ports() or [])


def test_where_the_kernel_does_not_answer_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> socket.socket:
        raise OSError("no netlink here")

    monkeypatch.setattr(sockets.socket, "socket", refuse)
    assert sockets.connections(1) is None
    assert sockets.listening_ports() is None

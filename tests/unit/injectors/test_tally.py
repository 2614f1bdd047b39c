"""A gate's bytes beside the kernel's: what a thread has just moved it may still have to count."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from injectors import tally
from injectors.tally import End


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as here:
        there, _ = server.accept()
        with there:
            yield here, there


def test_what_was_sent_and_not_counted_yet_is_waited_for(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = pair
    counted = End(here)
    here.sendall(b"12345678")

    def its_thread_goes_on(_: float) -> None:
        counted.sent = 8

    monkeypatch.setattr(tally.time, "sleep", its_thread_goes_on)
    assert counted.counts() == (0, 0, 8, 8)


def test_what_nobody_counts_shows(pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "COUNTING_BOUND_S", 0.01)
    here, there = pair
    counted = End(here)
    here.sendall(b"12345678")
    there.sendall(b"123")
    assert here.recv(3) == b"123"
    assert counted.counts() == (0, 3, 0, 8)

"""The address of a dead process can be taken at once, although its connections linger."""

from __future__ import annotations

import socket

import pytest

from racelab.errors import PortTakenError
from racelab.transport import ports

HOST = "127.0.0.1"


def listen_as_mooncake_does(port: int = 0) -> socket.socket:
    """Without SO_REUSEADDR."""
    listener = socket.socket()
    try:
        listener.bind((HOST, port))
    except OSError:
        listener.close()
        raise
    listener.listen()
    return listener


def test_connections_in_time_wait_are_ended() -> None:
    with listen_as_mooncake_does() as listener:
        port = listener.getsockname()[1]
        with socket.create_connection((HOST, port)) as client:
            served, _ = listener.accept()
            served.close()
            assert client.recv(1) == b""
    with pytest.raises(OSError, match="in use"):
        listen_as_mooncake_does(port)
    ports.free_again(HOST, port)
    listen_as_mooncake_does(port).close()


def test_a_peer_that_closes_its_end_late_is_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then the dead process's end is in FIN-WAIT-2, which nothing can be done about."""
    with listen_as_mooncake_does() as listener:
        port = listener.getsockname()[1]
        client = socket.create_connection((HOST, port))
        served, _ = listener.accept()
        served.close()
    monkeypatch.setattr(ports.time, "sleep", lambda _: client.close())
    ports.free_again(HOST, port)
    listen_as_mooncake_does(port).close()


def test_what_stays_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "TIME_WAIT_S", 0.0)
    with listen_as_mooncake_does() as listener:
        port = listener.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"port {port} of {HOST}.*is taken .LISTEN"):
            ports.free_again(HOST, port)


def test_a_window_is_free_and_in_the_environment() -> None:
    window = ports.free_window(HOST, "rdma")
    assert len(window) == ports.PORTS["rdma"]
    assert ports.variables(window) == {
        "MC_MIN_RPC_PORT": str(window[0]),
        "MC_MAX_RPC_PORT": str(window[-1]),
    }


def test_a_window_in_which_only_connections_linger_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    window = ports.free_window(HOST, "tcp")
    monkeypatch.setattr(ports, "any_window", lambda transport: window)
    for port in (window[1], window[-1]):
        with listen_as_mooncake_does(port) as listener, socket.create_connection((HOST, port)) as client:
            served, _ = listener.accept()
            served.close()
            assert client.recv(1) == b""
    assert ports.free_window(HOST, "tcp") == window
    with listen_as_mooncake_does(window[5]), pytest.raises(PortTakenError, match="no 40 free ports"):
        ports.free_window(HOST, "tcp")


class Engine:
    """Picks the last of the free ports, as one that picks at random may."""

    def __init__(self, window: range) -> None:
        for port in reversed(window):
            if ports._is_free(HOST, port):
                self._listener = listen_as_mooncake_does(port)
                break

    def __del__(self) -> None:
        self._listener.close()

    def get_rpc_port(self) -> int:
        return int(self._listener.getsockname()[1])


def test_an_engine_that_never_picks_the_port_is_given_up() -> None:
    window = ports.free_window(HOST, "tcp")
    with pytest.raises(PortTakenError, match=f"does not start at port {window[0]}"):
        ports.pinned(lambda: Engine(window), window[0], window)


def test_all_but_the_port_and_one_more_are_taken_meanwhile() -> None:
    window = ports.free_window(HOST, "tcp")
    engine = ports.pinned(lambda: Engine(window), window[-1], window)
    assert engine.get_rpc_port() == window[-1]

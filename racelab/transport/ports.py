"""A Mooncake engine at a port of one's choice, so that a new process can take the place of a dead one.

Mooncake picks its handshake port at random from a window (MC_MIN_RPC_PORT to MC_MAX_RPC_PORT, read when the
library is loaded), and over TCP its data port from the same one. So while an engine starts that has to be at one
port, all of the window but two is taken. It may still pick the other one; then it is started again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from racelab.errors import PortTakenError

RANGE = range(17_100, 31_000)
"""Above what Mooncake takes when it is left alone, below what Linux gives to clients."""
PORTS = {"tcp": 40, "rdma": 40}
"""A process starts further engines: over RDMA one for each hold of writes, over TCP one when a peer was replaced,
and one for each notification under way."""
REPLACED_MAX = 3
"""So many peers may be replaced before those who knew them are: an engine takes two ports, and the rest of them are
for notifications."""
STARTS_MAX = 24
"""Each has an even chance to be at the wanted port."""
TIME_WAIT_S = 60.0
_STATES = (
    "?", "ESTABLISHED", "SYN-SENT", "SYN-RECEIVED", "FIN-WAIT-1", "FIN-WAIT-2", "TIME-WAIT",
    "CLOSED", "CLOSE-WAIT", "LAST-ACK", "LISTEN", "CLOSING", "SYN-RECEIVED",
)  # fmt: skip
"""As /proc/net/tcp numbers them (net/tcp_states.h)."""
_POLL_S = 0.05


def free_window(host: str, transport: str) -> range:
    """Ports of `host` that nobody has.

    Instances that come and go leave connections behind that linger for a minute. Where no window is free of those,
    they are ended in one in which nothing else is.

    Raises:
        PortTakenError: none was found.
    """
    for ends_lingering in (False, True):
        for _ in range(STARTS_MAX):
            window = any_window(transport)
            if ends_lingering:
                _end_lingering(host, window)
            if all(_is_free(host, port) and _is_free_for_data(port) for port in window):
                return window
    raise PortTakenError(f"no {PORTS[transport]} free ports in a row on {host}", next="end what listens there")


def any_window(transport: str) -> range:
    """As many ports somewhere, on a machine where nobody else takes any."""
    base = RANGE.start + secrets.randbelow(len(RANGE) - PORTS[transport])
    return range(base, base + PORTS[transport])


def variables(window: range) -> dict[str, str]:
    """The environment of a process whose engines are to be in this window."""
    return {"MC_MIN_RPC_PORT": str(window.start), "MC_MAX_RPC_PORT": str(window.stop - 1)}


def window_of_environment() -> range:
    """The ports that this process's engines may take, if its environment says."""
    first, last = (int(os.environ.get(name, 0)) for name in ("MC_MIN_RPC_PORT", "MC_MAX_RPC_PORT"))
    return range(first, last + 1)


def free_again(host: str, port: int) -> None:
    """See that the handshake port of a dead process can be taken.

    Mooncake's handshake listener does not set SO_REUSEADDR (0.3.13), and its server ends each connection first:
    for a minute after a handshake (TIME-WAIT) no process could listen there. Both ends are of this machine,
    so that each such connection is ended as if its old duplicate had come (RFC 1337, TIME-WAIT assassination).

    Raises:
        PortTakenError: somebody else is there.
    """
    deadline = time.monotonic() + TIME_WAIT_S
    while True:
        for address in _lingering(port):  # in each round: a peer may close its end only now
            _end_time_wait(address, (host, port))
        if _is_free(host, port):
            return
        if time.monotonic() > deadline:
            raise PortTakenError(
                f"port {port} of {host}, which was a dead process's, is taken ({_taken_by(port)})",
                next="end what holds it, and run again",
            )
        time.sleep(_POLL_S)


def pinned(start: Callable[[], Any], port: int | None, window: Sequence[int]) -> Any:
    """The engine that `start` starts; at `port` of the window that the environment names, if one is given."""
    if port is None:
        return start()
    for _ in range(STARTS_MAX):
        others = iter([other for other in window if other != port])
        with ExitStack() as taken:
            for other in others:
                if _is_free_for_data(other):
                    break  # left for the data
            for other in others:
                with contextlib.suppress(OSError):  # taken by somebody else, which does as well
                    taken.enter_context(socket.create_server(("", other)))
            engine = start()
        if engine.get_rpc_port() == port:
            return engine
        del engine  # and its ports
    raise PortTakenError(f"Mooncake does not start at port {port}", next="run again")


def _is_free(host: str, port: int) -> bool:
    """Whether a process that does not set SO_REUSEADDR could listen there."""
    with socket.socket() as probe:
        return _binds(probe, (host, port))


def _is_free_for_data(port: int) -> bool:
    """The data port is one of both address families, where a dead process's connections may linger too."""
    with socket.socket(socket.AF_INET6) if socket.has_dualstack_ipv6() else socket.socket() as probe:
        return _binds(probe, ("", port))


def _binds(probe: socket.socket, address: tuple[str, int]) -> bool:
    try:
        probe.bind(address)
    except OSError:
        return False
    return True


def _end_lingering(host: str, window: range) -> None:
    """End what is in TIME-WAIT at a window's ports, if all that is there is."""
    there = [row for row in _all_connections() if row[0] in window]
    if all(state == "TIME-WAIT" for _, state, _ in there):
        for port, _, other in there:
            _end_time_wait(other, (host, port))


def _lingering(port: int) -> list[tuple[str, int]]:
    """The other ends of the connections in TIME-WAIT at a local port (proc_net_tcp(5))."""
    return [other for state, other in _connections(port) if state == "TIME-WAIT"]


def _taken_by(port: int) -> str:
    found = [f"{state} with port {other[1]}" for state, other in _connections(port)]
    return ", ".join(found) or "no connection of IPv4 is in its way"


def _connections(port: int) -> list[tuple[str, tuple[str, int]]]:
    """State and other end of every socket at a local port."""
    return [(state, other) for local, state, other in _all_connections() if local == port]


def _all_connections() -> list[tuple[int, str, tuple[str, int]]]:
    """Local port, state and other end of every socket, those of IPv4 through a socket of both families among them."""
    tables = [Path("/proc/net") / name for name in ("tcp", "tcp6")]
    rows = [row.split() for table in tables if table.exists() for row in table.read_text().splitlines()[1:]]
    return [(int(row[1].rpartition(":")[2], 16), _STATES[int(row[3], 16)], _address(row[2])) for row in rows]


def _address(hexadecimal: str) -> tuple[str, int]:
    host, port = hexadecimal.split(":")
    return socket.inet_ntoa(bytes.fromhex(host[-8:])[::-1]), int(port, 16)


def _end_time_wait(client: tuple[str, int], server: tuple[str, int]) -> None:
    """Knock once more from where the connection came: the answer is of the old one, and is answered by a reset.

    Nobody waits for what becomes of the knock itself: its own next word would be a second later (RFC 6298, 2.1).
    """
    with socket.socket() as knock, contextlib.suppress(OSError):  # BlockingIOError: it is on its way
        knock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        knock.setblocking(False)
        knock.bind(client)
        knock.connect(server)

"""Rows about another process at a dead one's address."""

from __future__ import annotations

import socket
from typing import Any

from fault_rig import two
from wire_rig import PAGE

from racelab.lab.environment import environment
from racelab.transport import ports
from racelab.transport.tcp_layout import (
    METADATA,
    pack_handshake,
    read_handshake,
)


def peer_replaced() -> dict[str, Any]:
    return _replaced()


def peer_replaced_without_metadata_cache() -> dict[str, Any]:
    return _replaced(MC_DISABLE_METACACHE="1")


def _replaced(**variables: str) -> dict[str, Any]:
    with two(**variables) as own:
        writes = {"segment": own.target, "source": 0, "size": PAGE}
        assert own.writer("write", **writes, address=own.base) == 0
        own.kill("target")
        host, _, port = own.target.rpartition(":")
        ports.free_again(host, int(port))
        window = range(int(port), int(port) + ports.PORTS["tcp"])
        with environment(ports.variables(window) | {"MOONCAKE_PEER_PORT": port}):
            facts = own.start_peer("target")
        assert facts["segment"] == own.target
        first, again = (own.writer("write", **writes, address=facts["base"]) for _ in range(2))
        other = own.start_peer("writer2") and own.hub.call("writer2", "write", **writes, address=facts["base"])
        return {"code": first, "code-again": again, "code-of-another-engine": other}


def address_of_a_dead_target() -> dict[str, Any]:
    with two() as own:
        host, _, port = own.target.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as asking:
            asking.sendall(pack_handshake(METADATA, b"{}"))
            assert read_handshake(asking) is not None
            assert asking.recv(1) == b"", "the target ends it first"
        own.kill("target")
        free = ports._is_free(host, int(port))
        ports.free_again(host, int(port))
        return {"free": free, "free-once-its-connections-are-ended": ports._is_free(host, int(port))}

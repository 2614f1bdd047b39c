"""What went over the machine's wire: packets of RDMA WRITE and READ, each counted once however often it was sent.

The counters are nftables' (guest/wire.nft), beside the devices and not in them: what leaves an end (`sent`),
and what comes to the other end behind everything that may hold it back (`arrived`).
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from racelab.vm.client import Supervisor

TABLE = ("ip", "racelab")
_WRAPPING_BYTES = {"heads": 60, "bodies": 44}
_ANSWER_WRAPPING_BYTES = {"heads": 48, "bodies": 44}
"""Of a packet, around its payload: IP 20, UDP 8, BTH 12, ICRC 4; RETH 16 where a write begins, AETH 4 in an answer."""


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """Of the accesses of one end: requests that left it, payload bytes of its writes that left it and that arrived
    at the other, and payload bytes that came in answer to its reads."""

    requests: int = 0
    sent_bytes: int = 0
    arrived_bytes: int = 0
    read_bytes: int = 0

    def since(self, before: Carried) -> Carried:
        """What was added."""
        names = self.__struct_fields__
        return Carried(**{name: getattr(self, name) - getattr(before, name) for name in names})


def end_of(host: str) -> int:
    """Which end of the wire has this address: 1 or 2. An end has two rails: 1 and 3, 2 and 4."""
    return 2 - int(host.rpartition(".")[2]) % 2


def carried(supervisor: Supervisor) -> dict[int, Carried]:
    """The counts of both ends since the machine came up."""
    listed = json.loads(supervisor.checked(["nft", "-j", "list", "counters", "table", *TABLE]))["nftables"]
    counters = {row["counter"]["name"]: row["counter"] for row in listed if "counter" in row}
    return {end: _of(counters, end) for end in (1, 2)}


def _of(counters: dict[str, Any], end: int) -> Carried:
    def payload(side: str, wrapping: dict[str, int]) -> int:
        parts = ((counters[f"{side}_{end}_{part}"], size) for part, size in wrapping.items())
        return sum(int(counter["bytes"]) - size * int(counter["packets"]) for counter, size in parts)

    return Carried(
        requests=sum(counters[f"sent_{end}_{part}"]["packets"] for part in ("heads", "asks")),
        sent_bytes=payload("sent", _WRAPPING_BYTES),
        arrived_bytes=payload("arrived", _WRAPPING_BYTES),
        read_bytes=payload("read", _ANSWER_WRAPPING_BYTES),
    )

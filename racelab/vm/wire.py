"""What went over the machine's wire: RDMA WRITE packets, each counted once however often it was sent.

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
"""Of a packet, around its payload: IP 20, UDP 8, BTH 12, ICRC 4, and RETH 16 where a request begins."""


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """Of the writes of one end: requests and payload bytes that left it, and that arrived at the other."""

    sent_requests: int = 0
    sent_bytes: int = 0
    arrived_requests: int = 0
    arrived_bytes: int = 0

    def since(self, before: Carried) -> Carried:
        """What was added."""
        names = self.__struct_fields__
        return Carried(**{name: getattr(self, name) - getattr(before, name) for name in names})


def end_of(host: str) -> int:
    """Which end of the wire has this address: 1 or 2."""
    return int(host.rpartition(".")[2])


def carried(supervisor: Supervisor) -> dict[int, Carried]:
    """The counts of both ends since the machine came up."""
    listed = json.loads(supervisor.checked(["nft", "-j", "list", "counters", "table", *TABLE]))["nftables"]
    counters = {row["counter"]["name"]: row["counter"] for row in listed if "counter" in row}
    return {end: _of(counters, end) for end in (1, 2)}


def _of(counters: dict[str, Any], end: int) -> Carried:
    found: dict[str, int] = {}
    for side in ("sent", "arrived"):
        parts = {part: counters[f"{side}_{end}_{part}"] for part in _WRAPPING_BYTES}
        found[f"{side}_requests"] = parts["heads"]["packets"]
        found[f"{side}_bytes"] = sum(
            counter["bytes"] - _WRAPPING_BYTES[part] * counter["packets"] for part, counter in parts.items()
        )
    return Carried(**found)

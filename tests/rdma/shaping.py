"""A slow wire, for a while: netem on the requester's rails, for all packets or for the first of a write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from racelab.vm.client import Supervisor

_RAILS = ("veth0", "veth2")
_BANDS = " ".join("0" for _ in range(16))


@contextmanager
def slow_wire(supervisor: Supervisor, delay_ms: int) -> Iterator[None]:
    """Every packet takes `delay_ms`."""
    rail = _RAILS[0]
    supervisor.checked(f"tc qdisc add dev {rail} root netem delay {delay_ms}ms limit 10000".split())
    try:
        yield
    finally:
        supervisor.run(f"tc qdisc del dev {rail} root".split())  # a test may have ended it


@contextmanager
def slow_first_packets(supervisor: Supervisor, address: int, size: int, delay_ms: int) -> Iterator[None]:
    """Of the first queue pair that writes to these addresses, the packets that begin a request take `delay_ms`."""
    rules = (
        "table ip slow {\n"
        "    set first { typeof ip daddr . @th,104,24; size 1; flags dynamic; }\n"
        "    chain marks {\n"
        "        type filter hook output priority 10\n"
        f"        udp dport 4791 @th,64,8 {{ 6, 10 }} @th,160,64 {address}-{address + size - 1}"
        " add @first { ip daddr . @th,104,24 } counter meta mark set 7\n"
        "    }\n"
        "    chain arrivals {\n"
        "        type filter hook prerouting priority 200\n"
        "        udp dport 4791 @th,64,8 { 6, 10 } ip daddr . @th,104,24 @first counter\n"
        "    }\n"
        "}\n"
    )
    shaped = (
        "tc qdisc add dev {rail} root handle 1: prio bands 3 priomap {bands}",
        "tc qdisc add dev {rail} parent 1:3 handle 30: netem delay {delay_ms}ms limit 10000",
        "tc filter add dev {rail} parent 1: protocol ip u32 match mark 7 0xffffffff flowid 1:3",
    )
    try:
        for rail in _RAILS:
            for line in shaped:
                supervisor.checked(line.format(rail=rail, bands=_BANDS, delay_ms=delay_ms).split())
        supervisor.checked(["nft", "-f", "-"], rules)
        yield
    finally:
        supervisor.run(["nft", "delete", "table", "ip", "slow"])
        for rail in _RAILS:
            supervisor.run(f"tc qdisc del dev {rail} root".split())


def slowed_packets(supervisor: Supervisor) -> tuple[int, int]:
    """How many packets were slowed, and how many of them have arrived."""
    return _packets(supervisor, "marks"), _packets(supervisor, "arrivals")


def _packets(supervisor: Supervisor, chain: str) -> int:
    words = supervisor.checked(["nft", "list", "chain", "ip", "slow", chain]).split()
    return int(words[words.index("packets") + 1])

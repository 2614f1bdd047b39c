"""Rules of nftables in the machine: the packet that begins a write to an address is lost before the responder.

RoCE v2 is UDP to port 4791. Behind the UDP header come BTH (12 bytes, its first the opcode) and, of a request that
begins, RETH, whose first 8 bytes are the address: WRITE FIRST is opcode 6, WRITE ONLY 10. What follows a lost first
packet is out of sequence and ignored by the responder, so the whole write stops.

A page's next owner writes to the same address. So each rule keeps to the queue pair that was the first to match: a
set with room for one takes its number, and a rule whose set is full does not match any more.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping

from racelab.vm.client import Supervisor, machine

_TABLE = "ip racelab"
_CHAIN = f"{_TABLE} holds"
_BEGINS = "udp dport 4791 @th,64,8 { 6, 10 }"
_QUEUE_PAIR = "ip daddr . @th,104,24"


class Rules:
    """One rule a watched write, known by its number. Thread-safe."""

    def __init__(self) -> None:
        self._supervisor = Supervisor(machine())
        self._lock = threading.Lock()
        self._forget_others()

    def _forget_others(self) -> None:
        """A gate that was killed left its rules and sets."""
        listed = json.loads(self._supervisor.checked(["nft", "-j", "-t", "list", "sets", "table", *_TABLE.split()]))
        left = [row["set"]["name"] for row in listed["nftables"] if row.get("set", {}).get("name", "").startswith("w")]
        self._apply([f"flush chain {_CHAIN}", *(f"delete set {_TABLE} {name}" for name in left)])

    def lose(self, wanted: Mapping[int, tuple[int, int]]) -> None:
        """From now on, lose what begins a write into these (address, bytes)."""
        lines = []
        for number, (address, size) in wanted.items():
            lines.append(f"add set {_TABLE} w{number} {{ typeof {_QUEUE_PAIR}; size 1; flags dynamic; }}")
            first_of_its_kind = (
                f"{_BEGINS} @th,160,64 {address}-{address + size - 1} add @w{number} {{ {_QUEUE_PAIR} }}"
            )
            lines.append(f'add rule {_CHAIN} {first_of_its_kind} counter drop comment "{number}"')
        self._apply(lines)

    def lost(self) -> list[int]:
        """Of which writes a packet was lost."""
        return [number for number, (_, packets) in self._list().items() if packets]

    def pass_on(self, numbers: Iterable[int]) -> None:
        """Lose these no more."""
        found = self._list()
        going = [each for each in numbers if each in found]
        rules = [f"delete rule {_CHAIN} handle {found[each][0]}" for each in going]
        self._apply(rules + [f"delete set {_TABLE} w{each}" for each in going])

    def keep(self, numbers: set[int]) -> None:
        """Lose nothing but these."""
        self.pass_on(set(self._list()) - numbers)

    def _list(self) -> dict[int, tuple[int, int]]:
        """By number, the rule's handle and how many packets it has lost."""
        with self._lock:
            said = self._supervisor.checked(["nft", "-j", "-a", "list", "chain", *_CHAIN.split()])
        found = {}
        for row in json.loads(said)["nftables"]:
            rule = row.get("rule")
            if rule is not None:
                packets = next(part["counter"]["packets"] for part in rule["expr"] if "counter" in part)
                found[int(rule["comment"])] = (int(rule["handle"]), int(packets))
        return found

    def _apply(self, lines: list[str]) -> None:
        if lines:
            with self._lock:
                self._supervisor.checked(["nft", "-f", "-"], "\n".join(lines) + "\n")

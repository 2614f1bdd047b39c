"""Rules of nftables in the machine: what begins an access to an address goes to the keeper, with all behind it.

RoCE v2 is UDP to port 4791. Behind the UDP header come BTH (12 bytes, its first the opcode) and, of a request that
begins, RETH, whose first 8 bytes are the address: WRITE FIRST is opcode 6, WRITE ONLY 10 and 11, READ REQUEST 12.

A page's next owner writes to the same address. So each rule keeps to the queue pair that was the first to match: a
set with room for one takes its number, and a rule whose set is full does not match any more. The whole queue pair is
stopped, as on a reliable connection nothing later arrives before what is held.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping

from racelab.vm.client import Supervisor, machine

_TABLE = "ip racelab"
_CHAIN = f"{_TABLE} holds"
_ROCE = "udp dport 4791 @th,64,8"
_QUEUE_PAIR = "ip daddr . @th,104,24"
_ACKNOWLEDGE = 17
_KEPT = "counter queue num 0"


class Rules:
    """Those of one watched access are known by its number. Thread-safe."""

    def __init__(self) -> None:
        self._supervisor = Supervisor(machine())
        self._lock = threading.Lock()
        self._numbers: set[int] = set()
        self._forget_others()

    def _forget_others(self) -> None:
        """A gate that was killed left its rules and sets."""
        listed = json.loads(self._supervisor.checked(["nft", "-j", "-t", "list", "sets", "table", *_TABLE.split()]))
        left = [row["set"]["name"] for row in listed["nftables"] if row.get("set", {}).get("name", "").startswith("w")]
        self._apply([f"flush chain {_CHAIN}", *(f"delete set {_TABLE} {name}" for name in left)])

    def stop(self, wanted: Mapping[int, tuple[int, int]]) -> None:
        """From now on the keeper gets what begins an access to these (address, bytes), and all behind it."""
        lines = []
        for number, (address, size) in wanted.items():
            lines.append(f"add set {_TABLE} w{number} {{ typeof {_QUEUE_PAIR}; size 1; flags dynamic; }}")
            begins = f"{_ROCE} {{ 6, 10, 11, 12 }} @th,160,64 {address}-{address + size - 1}"
            # before all that send to the keeper: what begins may be behind another access that is held
            lines.append(f'insert rule {_CHAIN} {begins} add @w{number} {{ {_QUEUE_PAIR} }} comment "{number}"')
            lines.append(f'add rule {_CHAIN} {_ROCE} 6-12 {_QUEUE_PAIR} @w{number} {_KEPT} comment "{number}"')
        self._numbers |= set(wanted)
        self._apply(lines)

    def hear(self, requester: str, queue_pair: int) -> None:
        """The keeper gets what is acknowledged to a requester."""
        rule = f"ip daddr {requester} {_ROCE} {_ACKNOWLEDGE} @th,104,24 {queue_pair} {_KEPT}"
        self._apply([f"add rule {_CHAIN} {rule}"])

    def pass_on(self, numbers: set[int]) -> None:
        """Stop these no more; the keeper has let go what it had of them."""
        numbers &= self._numbers
        if numbers:
            handles = [handle for handle, number in self._list() if number in numbers]
            rules = [f"delete rule {_CHAIN} handle {handle}" for handle in handles]
            self._apply(rules + [f"delete set {_TABLE} w{number}" for number in sorted(numbers)])
            self._numbers -= numbers

    def clear(self) -> None:
        """Stop nothing any more."""
        gone, self._numbers = self._numbers, set()
        self._apply([f"flush chain {_CHAIN}", *(f"delete set {_TABLE} w{number}" for number in sorted(gone))])

    def _list(self) -> list[tuple[int, int]]:
        """Each rule's handle, and whose it is."""
        with self._lock:
            said = json.loads(self._supervisor.checked(["nft", "-j", "-a", "list", "chain", *_CHAIN.split()]))
        rules = (row["rule"] for row in said["nftables"] if "rule" in row)
        return [(int(rule["handle"]), int(rule["comment"])) for rule in rules if rule.get("comment")]

    def _apply(self, lines: list[str]) -> None:
        with self._lock:
            self._supervisor.checked(["nft", "-f", "-"], "\n".join(lines) + "\n")

"""What the wire's counters mean: payload is what is left of the packets without what wraps it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from racelab.vm import wire
from racelab.vm.client import Supervisor

RULES = Path(wire.__file__).with_name("guest") / "wire.nft"


class Said:
    """Stands in for the supervisor: says the counters as `nft -j` does."""

    def __init__(self, **counts: tuple[int, int]) -> None:
        declared = [line.split()[1] for line in RULES.read_text().splitlines() if line.startswith("    counter ")]
        self.rows: list[dict[str, Any]] = [{"metainfo": {"version": "1"}}]
        for name in declared:
            packets, size = counts.pop(name, (0, 0))
            self.rows.append({"counter": {"name": name, "packets": packets, "bytes": size}})
        assert not counts, "no such counter in wire.nft"

    def checked(self, argv: list[str], given: str = "") -> str:
        assert argv[:4] == ["nft", "-j", "list", "counters"]
        return json.dumps({"nftables": self.rows})


def counted(**counts: tuple[int, int]) -> dict[int, wire.Carried]:
    return wire.carried(cast(Supervisor, Said(**counts)))


def test_a_write_of_64_kib_in_packets_of_4096() -> None:
    first, rest = (1, 4096 + 60), (15, 15 * (4096 + 44))
    found = counted(sent_1_heads=first, sent_1_bodies=rest, arrived_1_heads=first, arrived_1_bodies=rest)
    assert found[1] == wire.Carried(requests=1, sent_bytes=65536, arrived_bytes=65536)
    assert found[2] == wire.Carried()


def test_a_read_counts_for_the_end_that_asked() -> None:
    found = counted(sent_2_asks=(1, 60), read_2_heads=(2, 2 * (4096 + 48)), read_2_bodies=(14, 14 * (4096 + 44)))
    assert found[2] == wire.Carried(requests=1, read_bytes=65536)


def test_a_write_that_was_lost_on_the_way_has_left_and_not_arrived() -> None:
    found = counted(sent_1_heads=(1, 4096 + 60))[1]
    assert (found.sent_bytes, found.arrived_bytes) == (4096, 0)


def test_what_was_added() -> None:
    before, after = wire.Carried(requests=2, sent_bytes=10), wire.Carried(requests=5, sent_bytes=30, read_bytes=7)
    assert after.since(before) == wire.Carried(requests=3, sent_bytes=20, read_bytes=7)


def test_the_end_of_an_address() -> None:
    assert wire.end_of("10.77.0.2") == 2

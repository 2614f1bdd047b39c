"""What the machine's keeper does with the packets of a queue pair: their order, and what is sent again."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from typing import Any

import pytest

import racelab.vm

FIRST, MIDDLE, LAST, ONLY, ACK = 6, 7, 8, 10, 17
DROP, ACCEPT = 0, 1
ADDRESS, SIZE = 0x7F0000001000, 3 * 4096


def module() -> Any:
    file = Path(racelab.vm.__file__).with_name("guest") / "keeper.py"
    spec = importlib.util.spec_from_file_location("keeper", file)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def keeper() -> Any:
    """One without a kernel: `decided` has its verdicts, `said` what it told."""
    keeps = module()

    class Alone(keeps.Keeper):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.watches: dict[int, Any] = {}
            self.flows: dict[Any, Any] = {}
            self.decided: list[tuple[int, int]] = []
            self.said: list[dict[str, Any]] = []

        def decide(self, packet: Any, verdict: int) -> None:
            self.decided.append((packet.number, verdict))

        def say(self, what: dict[str, Any]) -> None:
            self.said.append(what)

        def comes(self, number: int, opcode: int, sequence: int, address: int = 0, pair: int = 17) -> None:
            self.take(keeps.Packet(number, packet(opcode, sequence, address, pair)))

    return Alone()


def packet(opcode: int, sequence: int, address: int = 0, pair: int = 17, payload: int = 4096) -> bytes:
    """The first bytes of one from 10.77.0.1 to 10.77.0.2: IP, UDP, BTH, and RETH or AETH."""
    begins = opcode in (FIRST, ONLY)
    ip = bytes([0x45, 0]) + struct.pack(">H", 44 + 16 * begins + payload) + bytes(8)
    ends = bytes([10, 77, 0, 1]), bytes([10, 77, 0, 2])
    source, target = ends if opcode != ACK else ends[::-1]
    bth = bytes([opcode, 0, 0, 0, 0]) + pair.to_bytes(3, "big") + bytes(1) + sequence.to_bytes(3, "big")
    return ip + source + target + bytes(8) + bth + struct.pack(">QII", address, 1, SIZE)


def watched(keeper: Any, *, keeps: bool) -> None:
    keeper.obey({"do": "watch", "watch": 1, "address": ADDRESS, "bytes": SIZE, "keeps": keeps})
    keeper.comes(1, FIRST, 5, ADDRESS)
    keeper.comes(2, MIDDLE, 6)


def test_what_is_kept_goes_on_in_order_with_what_came_behind_it(keeper: Any) -> None:
    watched(keeper, keeps=True)
    keeper.comes(3, LAST, 7)
    assert keeper.said[-1]["stopped"] == 1
    assert keeper.said[-1]["packets"] == 3
    keeper.comes(4, ONLY, 8, ADDRESS + (1 << 20))
    keeper.comes(5, FIRST, 5, ADDRESS)
    assert keeper.decided == [(5, DROP)], "sent again while its like is kept"
    keeper.comes(6, ONLY, 5, ADDRESS + (1 << 20), pair=18)
    assert keeper.decided[-1] == (6, ACCEPT), "another queue pair"
    keeper.obey({"do": "release", "watch": 1})
    assert keeper.decided[2:] == [(1, ACCEPT), (2, ACCEPT), (3, ACCEPT), (4, ACCEPT)]


def test_what_is_lost_passes_when_it_is_sent_after_its_release(keeper: Any) -> None:
    watched(keeper, keeps=False)
    assert keeper.said[-1]["stopped"] == 1
    assert keeper.decided == [(1, DROP), (2, DROP)]
    keeper.obey({"do": "release", "watch": 1})
    keeper.comes(3, FIRST, 5, ADDRESS)
    assert keeper.decided[-1] == (3, ACCEPT)


def test_what_is_dropped_is_lost_however_often_it_is_sent(keeper: Any) -> None:
    watched(keeper, keeps=True)
    keeper.obey({"do": "drop", "watch": 1})
    keeper.comes(3, FIRST, 5, ADDRESS)
    assert keeper.decided == [(1, DROP), (2, DROP), (3, DROP)]


@pytest.mark.parametrize("syndrome", [0x1F, 0x62], ids=["acknowledged", "refused"])
def test_the_word_of_a_late_requests_responder_is_told(keeper: Any, syndrome: int) -> None:
    watched(keeper, keeps=True)
    keeper.comes(3, LAST, 7)
    keeper.obey({"do": "release", "watch": 1, "late": True})
    keeper.comes(4, ACK, 6, 0x1F << 56)
    assert "answered" not in keeper.said[-1], "that was an earlier packet's"
    keeper.comes(5, ACK, 7, syndrome << 56)
    assert keeper.said[-1] == {"answered": 1, "syndrome": syndrome}

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racelab.errors import BoundError, PeerDiedError
from racelab.scenario.steps import WriteMatch
from racelab.transport.lanes import Announcement, Announcer, Lanes, WriteIdentity, acknowledge, read_announcement


def write(name: str = "w", **fields: Any) -> WriteIdentity:
    whole = {"request": "r1", "attempt": 1, "chunk": 0, "layer": 0, "page": 0, "gen": 1, "address": 4096, "bytes": 512}
    return WriteIdentity(write=name, **(whole | fields))


def test_with_no_rule_every_write_goes_direct() -> None:
    assert Lanes().choose(write()) is None


@pytest.mark.parametrize("field", ["request", "attempt", "chunk", "layer", "page"])
def test_every_field_that_is_given_must_agree(field: str) -> None:
    other: Any = "r2" if field == "request" else 7
    lanes = Lanes()
    lanes.arm("h", {field: other}, 1)
    assert lanes.choose(write()) is None
    assert lanes.choose(write(**{field: other})) == "h"


def test_a_zero_is_a_value_and_not_an_absence() -> None:
    lanes = Lanes()
    lanes.arm("h", {"page": 0}, 2)
    assert lanes.choose(write(page=1)) is None
    assert lanes.choose(write(page=0)) == "h"


def test_a_match_with_no_field_wants_everything() -> None:
    lanes = Lanes()
    lanes.arm("h", WriteMatch(), 1)
    assert lanes.choose(write()) == "h"


@given(count=st.integers(1, 5), writes=st.lists(st.sampled_from(["r1", "r2"]), max_size=20))
def test_a_rule_takes_the_first_count_that_agree(count: int, writes: list[str]) -> None:
    lanes = Lanes()
    lanes.arm("h", {"request": "r1"}, count)
    taken = [index for index, request in enumerate(writes) if lanes.choose(write(request=request))]
    assert taken == [index for index, request in enumerate(writes) if request == "r1"][:count]


def test_the_rule_armed_first_takes_what_both_want() -> None:
    lanes = Lanes()
    lanes.arm("first", {"layer": 0}, 1)
    lanes.arm("second", {"request": "r1"}, 1)
    assert [lanes.choose(write()) for _ in range(3)] == ["first", "second", None]


def test_a_rule_for_batches_takes_all_of_the_first_count_batches() -> None:
    lanes = Lanes()
    assert not lanes.takes_batches()
    lanes.arm("b", WriteMatch(request="r1", batch=True), 2)
    lanes.arm("w", WriteMatch(request="r1"), 1)
    assert lanes.takes_batches("b")
    assert not lanes.takes_batches("w")
    came = ["b1", "b1", "b2", "b1", "b2", "b3", "b3"]
    chosen = [lanes.choose(write(batch=batch, batch_writes=3)) for batch in came]
    assert chosen == ["b", "b", "b", "b", "b", "w", None]
    assert lanes.choose(write(request="r2", batch="b2")) is None
    assert lanes.choose(write()) is None, "nobody said what it was submitted with"
    assert lanes.forget() == 0


def test_disarmed_and_forgotten_rules_want_nothing() -> None:
    lanes = Lanes()
    for hold in ("a", "b", "c"):
        lanes.arm(hold, {"request": "r1"}, 2)
    lanes.disarm("a")
    assert lanes.choose(write()) == "b"
    assert lanes.forget() == 2
    assert lanes.choose(write()) is None
    assert not lanes


@pytest.fixture
def gate() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        yield listener


def announcer_to(gate: socket.socket, bound_s: float = 10.0) -> Announcer:
    return Announcer(f"127.0.0.1:{gate.getsockname()[1]}", bound_s=bound_s)


def test_an_announcement_arrives_whole_and_waits_for_its_acknowledgement(gate: socket.socket) -> None:
    writes = [write(f"w{n}", request="r" * 100) for n in range(2000)]  # more than one segment
    heard: list[Announcement | None] = []

    def hear() -> None:
        connection, _ = gate.accept()
        with connection:
            announcement = read_announcement(connection)
            assert announcement is not None
            heard.append(announcement)
            acknowledge(connection, announcement)
            heard.append(read_announcement(connection))

    thread = threading.Thread(target=hear)
    thread.start()
    with closing(announcer_to(gate)) as announcer:
        announcer.announce(writes, seq=7, hlc=9, sender="prefill")
        assert heard == [Announcement("prefill", 7, 9, writes)]
    thread.join(10)
    assert heard[1:] == [None]


def test_a_gate_that_hangs_up_has_died(gate: socket.socket) -> None:
    with closing(announcer_to(gate)) as announcer:
        gate.accept()[0].close()
        with pytest.raises(PeerDiedError, match="the gate died"):
            announcer.announce([write()], seq=1, hlc=1, sender="prefill")


def test_a_gate_that_says_nothing_reaches_the_bound(gate: socket.socket) -> None:
    with closing(announcer_to(gate, bound_s=0.05)) as announcer, pytest.raises(BoundError, match="2 writes"):
        announcer.announce([write(), write()], seq=1, hlc=1, sender="prefill")


@pytest.mark.parametrize("garbage", [b"\xff\xff\xff\xff", b"\x03\x00\x00\x00abc"])
def test_what_is_no_announcement_is_refused(garbage: bytes) -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(garbage)
        with pytest.raises(ValueError, match="announcement"):
            read_announcement(there)

"""Reads through the wire gate, between two real Mooncake engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from wire_rig import PAGE, Rig, assert_counts_agree, boot, fresh

from racelab.errors import LabError


@pytest.fixture(scope="module")
def shared() -> Iterator[Rig]:
    yield from boot()


@pytest.fixture
def rig(shared: Rig) -> Rig:
    rig = fresh(shared)
    rig.hub.call("target", "fill", start=0, size=4 * PAGE, value=0xB2)
    rig.events.clear()
    return rig


def mine(rig: Rig, page: int) -> list[int]:
    values: list[int] = rig.writer("peek", start=page * PAGE, size=PAGE)
    return values


def test_a_batch_of_one_read_has_a_handle_that_tells_its_end(rig: Rig) -> None:
    assert rig.finish(rig.read(0)) == {1}
    assert mine(rig, 0) == [0xB2]
    assert [event.data["what"] for event in rig.await_events("delivered", 1)] == ["d0"]
    bad = rig.writer("submit_reads", segment=rig.gate["segment"], starts=[0], addresses=[64], sizes=[PAGE])
    assert rig.finish(bad) == {-1}


def test_a_held_read_has_the_bytes_of_when_it_was_held(rig: Rig) -> None:
    rig.do("arm", hold="h", match={"op": "read"}, count=1)
    handles = rig.read(0)
    (held,) = rig.await_events("held", 1)
    assert held.data["op"] == "read"
    assert mine(rig, 0) == [0xA1]
    assert rig.writer("status", handle=handles[0]) == 0
    rig.hub.call("target", "fill", start=0, size=PAGE, value=0xEE)
    rig.do("release", hold="h")
    assert rig.finish(handles) == {1}
    assert mine(rig, 0) == [0xB2]
    assert [event.kind for event in rig.events if event.data.get("hold") == "h"] == [
        "armed",
        "held",
        "released",
        "delivered",
    ]
    assert_counts_agree(rig)


def test_a_held_question_gets_the_bytes_of_when_it_is_let_go(rig: Rig) -> None:
    rig.do("arm", hold="h", match={"op": "read"}, count=1, payload="at-release")
    handles = rig.read(1)
    (held,) = rig.await_events("held", 1)
    assert "fingerprint" not in held.data
    rig.hub.call("target", "fill", start=PAGE, size=PAGE, value=0xEE)
    rig.do("release", hold="h")
    assert rig.finish(handles) == {1}
    assert mine(rig, 1) == [0xEE]
    assert_counts_agree(rig)


def test_a_rule_about_writes_takes_no_read_and_one_about_reads_no_write(rig: Rig) -> None:
    rig.do("arm", hold="w", match={"request": "r1"}, count=1)
    rig.do("arm", hold="r", match={"op": "read", "page": 3}, count=1)
    assert rig.finish(rig.read(2)) == {1}
    assert rig.finish(rig.post([3], request="r2")) == {1}
    assert [event for event in rig.events if event.kind == "held"] == []


def test_a_dropped_read_fails_at_its_reader_and_changes_nothing(rig: Rig) -> None:
    rig.do("arm", hold="h", match={"op": "read"}, count=1)
    handles = rig.read(2)
    rig.await_events("held", 1)
    assert rig.do("drop", hold="h") == ["d2"]
    assert rig.finish(handles) == {-1}
    assert mine(rig, 2) == [0xA1]


def test_only_reads_can_be_held_before_they_are_answered(rig: Rig) -> None:
    with pytest.raises(LabError, match="payload 'at-release'"):
        rig.do("arm", hold="h", match={"request": "r1"}, count=1, payload="at-release")


@pytest.mark.parametrize("payload", ["at-hold", "at-release"])
def test_a_torn_read_brings_its_first_bytes_and_fails_at_its_reader(rig: Rig, payload: str) -> None:
    rig.do("arm", hold="h", match={"op": "read"}, count=1, payload=payload)
    handles = rig.read(1)
    rig.await_events("held", 1)
    assert rig.do("release", hold="h", tear=24_576) == ["d1"]
    (torn,) = rig.await_events("torn", 1)
    assert (torn.data["op"], torn.data["tear"], torn.data["bytes"]) == ("read", 24_576, PAGE)
    assert rig.finish(handles) == {-1}
    assert [rig.writer("peek", start=PAGE + at, size=8192)[0] for at in range(0, PAGE, 8192)] == [0xB2] * 3 + [0xA1] * 5
    assert rig.finish(rig.read(2, write="next")) == {1}
    assert_counts_agree(rig)


def test_a_read_cannot_be_torn_behind_its_end(rig: Rig) -> None:
    rig.do("arm", hold="h", match={"op": "read"}, count=1)
    handles = rig.read(3)
    rig.await_events("held", 1)
    with pytest.raises(LabError, match=r"read d3 has 65,536 bytes: it cannot be torn after 65,536"):
        rig.do("release", hold="h", tear=PAGE)
    rig.do("release", hold="h")
    assert rig.finish(handles) == {1}


@pytest.mark.parametrize("payload", ["at-hold", "at-release"])
def test_a_read_with_a_byte_changed_succeeds_at_its_reader(rig: Rig, payload: str) -> None:
    rig.do("arm", hold="h", match={"op": "read"}, count=1, payload=payload)
    handles = rig.read(0)
    rig.await_events("held", 1)
    rig.do("release", hold="h", corrupt=5000)
    assert rig.finish(handles) == {1}
    assert rig.writer("peek", start=5000, size=1) == [0xB2 ^ 0xFF]
    assert [rig.writer("peek", start=at, size=size) for at, size in ((0, 5000), (5001, PAGE - 5001))] == [[0xB2]] * 2
    assert_counts_agree(rig)

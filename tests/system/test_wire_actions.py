"""What else the wire gate does to a write than to stop it, between two real Mooncake engines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from wire_rig import MEMORY, PAGE, Rig, assert_counts_agree, boot, fresh

from racelab import delays
from racelab.errors import LabError
from racelab.evidence.events import KINDS


@pytest.fixture(scope="module")
def shared() -> Iterator[Rig]:
    yield from boot()


@pytest.fixture
def rig(shared: Rig) -> Rig:
    return fresh(shared)


def story(rig: Rig) -> list[tuple[str, str]]:
    """What the gate recorded after it was armed."""
    events = [event for event in rig.events if event.instance == "wire" and event.kind not in ("armed", "counted")]
    for event in events:
        assert set(KINDS[event.kind].data) <= set(event.data)
    return [(event.kind, event.data["what"]) for event in events]


def test_what_an_armed_gate_lets_pass_lands_at_once_and_is_counted(rig: Rig) -> None:
    rig.do("arm", hold="p", match={"request": "r1"}, count=0, action="pass")
    others = rig.post([4], request="r2", prefix="x")
    assert rig.finish(rig.post([0, 1])) == {1}
    assert rig.finish(others) == {1}
    rig.await_events("landed", 3)
    assert rig.peek(0, 2) == [0xA1]
    assert {what for kind, what in story(rig) if kind == "passed"} == {"w0", "w1"}
    landed = {event.data["what"]: event.data["hold"] for event in rig.events if event.kind == "landed"}
    assert landed == {"w0": "p", "w1": "p", "x4": None}
    rig.do("release", hold="p")
    assert rig.do("reset", incarnation=2) == {"held": [], "armed": 0}


def test_a_withheld_status_the_bytes_are_there_and_the_writer_waits(rig: Rig) -> None:
    rig.do("arm", hold="s", match={"request": "r1"}, count=2, action="lose-completion")
    handles = rig.post([0, 1])
    rig.await_events("withheld", 2)
    assert rig.peek(0, 2) == [0xA1]
    assert [rig.writer("status", handle=handle) for handle in handles] == [0, 0]
    assert sorted(rig.do("release", hold="s")) == ["w0", "w1"]
    assert rig.finish(handles) == {1}
    for what in ("w0", "w1"):
        assert [kind for kind, of in story(rig) if of == what] == ["landed", "withheld", "told"]
    assert {event.data["as"] for event in rig.events if event.kind == "told"} == {"completed"}
    assert_counts_agree(rig)


@pytest.mark.parametrize("how", ["drop", "reset_connections"])
def test_a_lost_status_the_bytes_are_there_and_the_writer_hears_that_it_failed(rig: Rig, how: str) -> None:
    rig.do("arm", hold="s", match={"request": "r1"}, count=1, action="lose-completion")
    handles = rig.post([0])
    rig.await_events("withheld", 1)
    assert rig.do(how, hold="s") == ["w0"]
    assert rig.finish(handles) == {-1}
    assert rig.peek(0) == [0xA1]
    assert story(rig) == [("landed", "w0"), ("withheld", "w0"), ("told", "w0")]
    assert rig.events[-1].data["as"] == "lost"
    assert rig.finish(rig.post([1])) == {1}
    assert_counts_agree(rig)


def test_a_status_that_refuses_is_not_kept_back(rig: Rig) -> None:
    rig.do("arm", hold="s", match={"request": "r1"}, count=1, action="lose-completion")
    address = rig.base + 2 * MEMORY
    whose = {"write": "far", "request": "r1", "attempt": 1, "chunk": 0, "layer": 0, "page": 9, "gen": 1}
    rig.writer("announce", address=rig.gate["announce"], writes=[whose | {"address": address, "bytes": 64}])
    handles = rig.writer("submit", segment=rig.gate["segment"], sources=[0], addresses=[address], sizes=[64])
    assert rig.finish(handles) == {-1}
    assert [kind for kind, _ in story(rig)] == ["unlanded"]


def test_the_writer_of_a_ghost_hears_at_once_that_it_failed_and_the_bytes_land_later(rig: Rig) -> None:
    rig.do("arm", hold="g", match={"request": "r1"}, count=1, action="ghost")
    handles = rig.post([0])
    rig.await_events("held", 1)
    assert rig.finish(handles) == {-1}
    assert rig.peek(0) == [0]
    assert rig.finish(rig.post([1], prefix="again")) == {1}
    rig.hub.call("target", "fill", start=0, size=PAGE, value=0xBB)
    assert rig.do("release", hold="g") == ["w0"]
    rig.await_events("released", 1)
    rig.await_events("landed", 2)
    assert rig.peek(0) == [0xA1]
    assert [kind for kind, what in story(rig) if what == "w0"] == ["held", "released", "landed"]
    counts = assert_counts_agree(rig)
    assert counts["in"] == counts["out"] + 8, "nobody took the status of the ghost"


def test_the_writer_of_a_half_open_connection_hears_nothing_until_it_is_dropped(rig: Rig) -> None:
    rig.do("arm", hold="o", match={"request": "r1"}, count=1, action="half-open")
    handles = rig.post([0])
    (held,) = rig.await_events("held", 1)
    assert held.data["targets_end"] == "CLOSED"
    assert rig.finish(rig.post([1], prefix="next")) == {1}
    assert rig.writer("status", handle=handles[0]) == 0
    with pytest.raises(LabError, match="nothing can go on"):
        rig.do("release", hold="o")
    assert rig.do("drop", hold="o") == ["w0"]
    assert rig.finish(handles) == {-1}
    assert rig.peek(0) == [0]
    (dropped,) = rig.await_events("dropped", 1)
    assert dropped.data["writers_end"] == "ESTABLISHED"
    counts = assert_counts_agree(rig)
    assert counts["in"] > counts["out"], "the target got none of it"


def test_a_failed_write_is_over_at_once(rig: Rig) -> None:
    rig.do("arm", hold="f", match={"request": "r1"}, count=1, action="fail")
    assert rig.finish(rig.post([0])) == {-1}
    rig.await_events("dropped", 1)
    assert story(rig) == [("held", "w0"), ("dropped", "w0")]
    assert rig.peek(0) == [0]
    assert rig.do("release", hold="f") == []


def test_a_reset_ends_both_ends_of_a_connection(rig: Rig) -> None:
    rig.do("arm", hold="h", match={"request": "r1"}, count=2)
    handles = rig.post([0, 1])
    rig.await_events("held", 2)
    assert sorted(rig.do("reset_connections", hold="h")) == ["w0", "w1"]
    assert rig.finish(handles) == {-1}
    assert rig.peek(0, 2) == [0]
    assert all(event.data["reset"] for event in rig.await_events("dropped", 2))
    assert rig.finish(rig.post([0], prefix="next")) == {1}
    assert_counts_agree(rig)


def test_one_write_of_a_batch_is_reset_and_its_sibling_lands_afterwards(rig: Rig) -> None:
    """Mooncake says that the batch failed while one of its writes can still land."""
    rig.do("arm", hold="h", match={"page": 0}, count=1)
    rig.do("arm", hold="late", match={"page": 1}, count=1)
    rig.announce([0, 1])
    places = [0, PAGE]
    handle = rig.writer(
        "submit_batch",
        segment=rig.gate["segment"],
        sources=places,
        addresses=[rig.base + place for place in places],
        sizes=[PAGE] * 2,
    )
    rig.await_events("held", 2)
    rig.do("reset_connections", hold="h")
    assert rig.finish([handle]) == {-1}
    assert rig.peek(1) == [0]
    rig.do("release", hold="late")
    rig.await_events("landed", 1)
    assert rig.peek(1) == [0xA1]


def test_held_writes_go_in_the_other_order(rig: Rig) -> None:
    rig.do("arm", hold="h", match={"request": "r1"}, count=3)
    handles = rig.post([0, 1, 2])
    order = [event.data["what"] for event in rig.await_events("held", 3)]
    assert rig.do("release", hold="h", order="reversed") == order[::-1]
    rig.await_events("landed", 3)
    assert rig.finish(handles) == {1}
    went = [(kind, what) for kind, what in story(rig) if kind != "held"]
    assert went == [(kind, what) for what in order[::-1] for kind in ("released", "landed")]


def test_delayed_writes_land_by_themselves_and_no_sooner_than_drawn(rig: Rig) -> None:
    distribution: delays.Distribution = {"uniform": [5, 20]}
    rig.do("arm", hold="d", match={"request": "r1"}, count=0, action="delay", ms=distribution, seed="7/d")
    handles = rig.post(list(range(8)))
    rig.await_events("landed", 8)
    assert rig.finish(handles) == {1}
    assert rig.peek(0, 8) == [0xA1]
    held = [event for event in rig.events if event.kind == "held"]
    assert [event.data["delay_ms"] for event in held] == list(islice(delays.draws(distribution, "7/d"), 8))
    released = {event.data["what"]: event.mono_ns for event in rig.events if event.kind == "released"}
    for event in held:
        assert (released[event.data["what"]] - event.mono_ns) / 1e6 >= event.data["delay_ms"]
    assert rig.do("release", hold="d") == []
    assert rig.do("reset", incarnation=2)["held"] == []


def test_a_delay_is_not_hurried_by_the_end_of_its_rule(rig: Rig) -> None:
    rig.do("arm", hold="d", match={"request": "r1"}, count=0, action="delay", ms={"constant": 50})
    handles = rig.post([0])
    (held,) = rig.await_events("held", 1)
    assert rig.do("release", hold="d") == []
    (released,) = rig.await_events("released", 1)
    assert released.mono_ns - held.mono_ns >= 50e6
    assert rig.finish(handles) == {1}
    assert rig.finish(rig.post([1])) == {1}
    assert rig.whats("held") == ["w0"]


def test_writes_are_told_apart_by_rank_and_by_bytes(rig: Rig) -> None:
    rig.do("arm", hold="h", match={"rank": 1, "bytes": [100, 200]}, count=0)
    writes = [
        {"write": f"w{rank}-{start}", "request": "r1", "attempt": 1, "chunk": 0, "layer": 0, "page": 0, "gen": 1}
        | {"address": rig.base + rank * PAGE + start, "bytes": 100, "start": start, "rank": rank}
        for rank in (0, 1)
        for start in (0, 100, 150, 200)
    ]
    rig.writer("announce", address=rig.gate["announce"], writes=writes)
    addresses = [write["address"] for write in writes]
    sizes = [100] * len(writes)
    handles = rig.writer(
        "submit", segment=rig.gate["segment"], sources=[0] * len(writes), addresses=addresses, sizes=sizes
    )
    held = rig.await_events("held", 2)
    assert {event.data["what"] for event in held} == {"w1-100", "w1-150"}
    assert {event.data["rank"] for event in held} == {1}
    rig.await_events("landed", 6)
    rig.do("release", hold="h")
    assert rig.finish(handles) == {1}


def test_an_action_that_it_does_not_know_is_refused(rig: Rig) -> None:
    with pytest.raises(LabError, match="the wire gate knows no 'vanish'"):
        rig.do("arm", hold="h", match={}, count=1, action="vanish")
    with pytest.raises(LabError, match="payload 'reread'"):
        rig.do("arm", hold="h", match={}, count=1, payload="reread")


# -- reads


def read(rig: Rig, pages: list[int]) -> list[int]:
    """Announce and submit reads of these pages of the target into the same pages here."""
    base = rig.hub.peers["writer"].facts["base"]
    whose = {"request": "r1", "attempt": 1, "chunk": 0, "layer": 0, "gen": 3, "op": "read", "bytes": PAGE}
    reads = [
        whose | {"write": f"d{page}", "page": page, "address": base + page * PAGE, "source": rig.base + page * PAGE}
        for page in pages
    ]
    rig.writer("announce", address=rig.gate["announce"], writes=reads)
    handles: list[int] = rig.writer(
        "submit_reads",
        segment=rig.gate["segment"],
        starts=[page * PAGE for page in pages],
        addresses=[rig.base + page * PAGE for page in pages],
        sizes=[PAGE] * len(pages),
    )
    return handles


@pytest.mark.parametrize(("payload", "carries"), [("at-hold", 0), ("at-release", 0xBB)])
def test_a_held_read_brings_what_was_there_when_its_target_was_read(rig: Rig, payload: str, carries: int) -> None:
    rig.do("arm", hold="h", match={"request": "r1", "op": "read"}, count=2, payload=payload)
    handles = read(rig, [0, 1])
    rig.await_events("held", 2)
    assert rig.writer("peek", start=0, size=2 * PAGE) == [0xA1]
    rig.hub.call("target", "fill", start=0, size=2 * PAGE, value=0xBB)
    assert sorted(rig.do("release", hold="h")) == ["d0", "d1"]
    assert rig.finish(handles) == {1}
    rig.await_events("delivered", 2)
    assert rig.writer("peek", start=0, size=2 * PAGE) == [carries]
    assert_counts_agree(rig)


def test_a_dropped_read_fails_and_brings_nothing(rig: Rig) -> None:
    rig.do("arm", hold="h", match={"op": "read"}, count=1)
    handles = read(rig, [0])
    rig.await_events("held", 1)
    assert rig.do("drop", hold="h") == ["d0"]
    assert rig.finish(handles) == {-1}
    assert rig.writer("peek", start=0, size=PAGE) == [0xA1]
    assert rig.finish(read(rig, [1])) == {1}
    assert rig.writer("peek", start=PAGE, size=PAGE) == [0]


def test_reads_and_writes_of_one_range_are_told_apart(rig: Rig) -> None:
    rig.do("arm", hold="h", match={"op": "read", "page": 0}, count=1)
    rig.announce([0])
    handles = read(rig, [0])
    rig.await_events("held", 1)
    places = {"sources": [0], "addresses": [rig.base], "sizes": [PAGE]}
    assert rig.finish(rig.writer("submit", segment=rig.gate["segment"], **places)) == {1}
    assert rig.whats("held") == ["d0"]
    assert rig.do("count")["ambiguous"] == 0
    rig.do("release", hold="h")
    assert rig.finish(handles) == {1}


def test_reads_pass_are_delayed_and_fail(rig: Rig) -> None:
    rig.do("arm", hold="p", match={"op": "read", "page": 0}, count=0, action="pass")
    rig.do("arm", hold="d", match={"op": "read", "page": 1}, count=0, action="delay", ms={"constant": 5})
    rig.do("arm", hold="f", match={"op": "read", "page": 2}, count=0, action="fail")
    assert rig.finish(read(rig, [0])) == {1}
    assert rig.finish(read(rig, [1])) == {1}
    assert rig.finish(read(rig, [2])) == {-1}
    rig.await_events("dropped", 1)
    assert [(kind, what) for kind, what in story(rig) if what in ("d0", "d1", "d2")] == [
        *[("passed", "d0"), ("delivered", "d0")],
        *[("held", "d1"), ("released", "d1"), ("delivered", "d1")],
        *[("held", "d2"), ("dropped", "d2")],
    ]


def test_what_a_read_cannot_be_is_refused(rig: Rig) -> None:
    for action in ("ghost", "lose-completion"):
        with pytest.raises(LabError, match=f"knows no '{action}'"):
            rig.do("arm", hold="h", match={"op": "read"}, count=1, action=action)

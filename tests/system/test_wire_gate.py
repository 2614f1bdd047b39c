"""The wire gate between two real Mooncake engines, each in a process of its own."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from wire_rig import LANES, MEMORY, PAGE, Rig, assert_counts_agree, boot, fresh

from racelab.errors import PeerDiedError
from racelab.evidence.events import KINDS


@pytest.fixture(scope="module")
def shared() -> Iterator[Rig]:
    yield from boot()


@pytest.fixture
def rig(shared: Rig) -> Rig:
    return fresh(shared)


@pytest.fixture
def own() -> Iterator[Rig]:
    """A rig that the test may break."""
    yield from boot()


def test_what_nobody_wants_passes(rig: Rig) -> None:
    assert rig.finish(rig.post([0, 1])) == {1}
    assert rig.peek(0, 2) == [0xA1]
    landed = rig.await_events("landed", 2)
    assert {(event.data["what"], event.data["hold"], event.data["code"]) for event in landed} == {
        ("w0", None, 0),
        ("w1", None, 0),
    }


@pytest.mark.parametrize("size", [1, 4096, 256 << 10, (256 << 10) + 1, 5 << 20])
def test_any_size_passes_whole_and_counted(rig: Rig, size: int) -> None:
    assert rig.writer("write", segment=rig.gate["segment"], source=0, address=rig.base, size=size) == 0
    assert rig.hub.call("target", "peek", start=0, size=size) == [0xA1]
    assert rig.hub.call("target", "peek", start=size, size=PAGE) == [0]
    rig.hub.call("target", "fill", start=0, size=size, value=0xB2)
    assert rig.writer("read", segment=rig.gate["segment"], start=0, address=rig.base, size=size) == 0
    assert rig.writer("peek", start=0, size=size) == [0xB2]
    counts = assert_counts_agree(rig)
    assert counts["unannounced"] == 2
    # header and payload one way, status the other; for the read header one way, status and data the other
    assert counts["in"] == counts["out"] == 2 * (24 + size + 8)


def test_held_writes_land_when_released_and_in_order(rig: Rig) -> None:
    rig.do("arm", hold="h", match={"request": "r1"}, count=4)
    handles = rig.post([0, 1, 2, 3])
    held = rig.await_events("held", 4)
    assert rig.peek(0, 4) == [0]
    assert [rig.writer("status", handle=handle) for handle in handles] == [0] * 4
    first = held[0]
    page = first.page
    assert page is not None
    assert (first.request, first.attempt, first.gen, first.instance) == ("r1", 1, 3, "wire")
    assert first.data == {
        "hold": "h",
        "what": f"w{page}",
        "address": rig.base + page * PAGE,
        "bytes": PAGE,
        "layer": page % 2,
        "chunk": page // 2,
    }
    assert [event.kind for event in rig.events if event.instance == "wire"] == ["armed"] + ["held"] * 4
    assert held[0].after.get("writer"), "the announcement is a causal edge"

    order = rig.whats("held")
    assert rig.do("release", hold="h") == order
    rig.await_events("landed", 4)
    assert rig.finish(handles) == {1}
    assert rig.peek(0, 4) == [0xA1]
    story = [(event.kind, event.data["what"]) for event in rig.events if event.kind in ("released", "landed")]
    assert story == [(kind, what) for what in order for kind in ("released", "landed")]
    counts = assert_counts_agree(rig)
    assert counts["in"] == counts["out"] == 4 * (24 + PAGE + 8)
    for event in (event for event in rig.events if event.instance == "wire"):
        assert set(KINDS[event.kind].data) <= set(event.data)


def test_mooncake_tells_the_status_of_a_batch_by_its_first_write_alone(rig: Rig) -> None:
    """Why every write gets a handle of its own: `transfer_check_status` looks at task 0 and frees the batch."""
    rig.do("arm", hold="h", match={"page": 1}, count=1)
    rig.announce([0, 1])
    handle = rig.writer(
        "submit_batch",
        segment=rig.gate["segment"],
        sources=[0, PAGE],
        addresses=[rig.base, rig.base + PAGE],
        sizes=[PAGE] * 2,
    )
    rig.await_events("held", 1)
    rig.await_events("landed", 1)
    assert rig.finish([handle]) == {1}
    assert rig.peek(1) == [0]
    rig.do("release", hold="h")
    rig.await_events("landed", 2)


def test_a_held_write_carries_the_bytes_of_when_it_was_held(rig: Rig) -> None:
    rig.do("arm", hold="h", match={"page": 0}, count=1)
    handles = rig.post([0])
    rig.await_events("held", 1)
    rig.writer("fill", start=0, size=PAGE, value=0xEE)
    rig.hub.call("target", "fill", start=0, size=PAGE, value=0xBB)
    rig.do("release", hold="h")
    assert rig.finish(handles) == {1}
    assert rig.peek(0) == [0xA1]


def test_a_rule_takes_what_agrees_in_every_field_and_no_more_than_its_count(rig: Rig) -> None:
    rig.do("arm", hold="h", match={"request": "r1", "layer": 1}, count=1)
    others = rig.post([5], request="r2", prefix="x")
    handles = rig.post([0, 1, 2, 3])
    rig.await_events("held", 1)
    rig.await_events("landed", 4)
    assert rig.finish(others) == {1}
    assert rig.whats("held") == ["w1"]
    assert rig.peek(1) == [0]
    assert rig.do("release", hold="h") == ["w1"]
    assert rig.do("release", hold="h") == []
    assert rig.finish(handles) == {1}


def test_a_dropped_write_fails_at_its_writer_and_never_lands(rig: Rig) -> None:
    rig.do("arm", hold="h", match={"request": "r1"}, count=1)
    handles = rig.post([0])
    rig.await_events("held", 1)
    assert rig.do("drop", hold="h") == ["w0"]
    assert rig.whats("dropped") == ["w0"]
    assert rig.finish(handles) == {-1}
    assert rig.peek(0) == [0]
    assert rig.finish(rig.post([0], prefix="next")) == {1}
    assert rig.peek(0) == [0xA1]
    counts = assert_counts_agree(rig)
    assert counts["in"] == 2 * (24 + PAGE) + 8
    assert counts["out"] == 24 + PAGE + 8


@pytest.mark.parametrize("part", [1, 24_576, PAGE - 1])
def test_a_torn_write_lands_in_part_and_fails_at_its_writer(rig: Rig, part: int) -> None:
    """What `torn` says is in the target's memory when it is recorded, to the byte."""
    rig.do("arm", hold="h", match={"request": "r1"}, count=1)
    handles = rig.post([0])
    rig.await_events("held", 1)
    assert rig.do("release", hold="h", tear=part) == ["w0"]
    rig.await_events("torn", 1)
    assert rig.hub.call("target", "peek", start=0, size=part) == [0xA1]
    assert rig.hub.call("target", "peek", start=part, size=PAGE - part) == [0]
    assert rig.finish(handles) == {-1}
    assert rig.finish(rig.post([0], prefix="next")) == {1}
    counts = assert_counts_agree(rig)
    assert counts["out"] == 24 + part + 24 + PAGE + 8


@pytest.mark.parametrize("size", [64, PAGE, 5 << 20])
@pytest.mark.parametrize("hold", ["h", None])
def test_a_write_that_the_target_refuses_is_unlanded(rig: Rig, hold: str | None, size: int) -> None:
    address = rig.base + 2 * MEMORY  # beyond what is registered
    whose = {"write": "far", "request": "r1", "attempt": 1, "chunk": 0, "layer": 0, "page": 9, "gen": 1}
    if hold is not None:
        rig.do("arm", hold=hold, match={"request": "r1"}, count=1)
    rig.writer("announce", address=rig.gate["announce"], writes=[whose | {"address": address, "bytes": size}])
    where = {"segment": rig.gate["segment"], "sources": [0], "addresses": [address], "sizes": [size]}
    handles = rig.writer("submit", **where)
    if hold is not None:
        rig.await_events("held", 1)
        rig.do("release", hold=hold)
    (event,) = rig.await_events("unlanded", 1)
    assert event.data["hold"] == hold
    assert (event.data["code"], event.data["why"]) == (1, "the target refused it with code 1")
    assert rig.finish(handles) == {-1}


def test_reset_names_what_is_held_and_forgets_the_rest(rig: Rig) -> None:
    rig.do("arm", hold="h", match={"page": 0}, count=2)
    rig.do("arm", hold="unused", match={"page": 9}, count=1)
    handles = rig.post([0])
    rig.await_events("held", 1)
    assert rig.do("reset", incarnation=2) == {"held": ["w0"], "armed": 2}
    rig.events.clear()
    rig.do("release", hold="h")
    assert rig.await_events("landed", 1)[0].incarnation == 2
    assert rig.finish(handles) == {1}
    assert rig.do("reset", incarnation=3) == {"held": [], "armed": 0}
    assert rig.finish(rig.post([0, 9])) == {1}
    assert rig.whats("held") == []
    rig.do("reset", incarnation=4)
    assert set(rig.do("count").values()) == {0}


def test_many_holds_of_many_writers_block_nobody(own: Rig) -> None:
    writers = ["writer", "writer2", "writer3", "writer4"]
    for writer in writers[1:]:
        own.start_peer(writer)
    for writer in writers:
        own.hub.call(writer, "fill", start=0, size=MEMORY, value=0xA1)
    count = LANES * len(writers)
    handles: dict[str, list[int]] = {writer: [] for writer in writers}
    for page in range(count):
        writer = writers[page // LANES]
        own.do("arm", hold=f"h{page}", match={"page": page}, count=1)
        handles[writer] += own.post([page], writer=writer)
        own.await_events("held", page + 1)
    assert own.peek(0, count) == [0]
    assert {own.hub.call(writer, "status", handle=handles[writer][0]) for writer in writers} == {0}
    for page in reversed(range(count)):
        assert own.do("release", hold=f"h{page}") == [f"w{page}"]
    own.await_events("landed", count)
    assert own.peek(0, count) == [0xA1]
    for writer in writers:
        assert own.finish(handles[writer], writer) == {1}
    counts = assert_counts_agree(own)
    assert counts["in"] == counts["out"] == count * (24 + PAGE + 8)


def test_two_writers_of_the_same_range_are_counted_as_ambiguous(rig: Rig) -> None:
    rig.do("arm", hold="h", match={"page": 0}, count=1)
    handles = rig.post([0], prefix="a")
    rig.await_events("held", 1)
    assert rig.do("count")["ambiguous"] == 0
    rig.announce([0], prefix="lost")
    assert rig.finish(rig.post([0], prefix="b")) == {1}
    assert rig.do("count")["ambiguous"] == 1
    rig.do("release", hold="h")
    assert rig.finish(handles) == {1}


def test_an_unknown_hold_is_an_error_that_names_those_there_are(rig: Rig) -> None:
    with pytest.raises(Exception, match="no hold 'nope' at the wire gate"):
        rig.do("release", hold="nope")


def test_a_stranger_at_any_port_changes_nothing(rig: Rig) -> None:
    for place in (rig.gate["segment"], rig.gate["announce"], f"127.0.0.1:{rig.gate['data_port']}"):
        host, _, port = place.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as stranger:
            stranger.sendall(b"\xff" * 64)
    assert rig.finish(rig.post([0])) == {1}


def test_direct_writes_are_proven_by_the_kernel_of_the_writer(rig: Rig) -> None:
    facts = rig.hub.peers["target"].facts
    (data_port,) = set(facts["listening"]) - {int(facts["segment"].rpartition(":")[2])}
    before = rig.writer("acked", port=data_port)
    for size in (1, 4096, PAGE):
        assert rig.writer("write", segment=rig.target, source=0, address=rig.base, size=size) == 0
    assert rig.writer("acked", port=data_port) - before == sum(24 + size for size in (1, 4096, PAGE))


def test_a_held_write_outlives_its_writer(own: Rig) -> None:
    own.writer("fill", start=0, size=MEMORY, value=0xA1)
    own.do("arm", hold="h", match={"request": "r1"}, count=2)
    own.post([0, 1])
    own.await_events("held", 2)
    own.kill("writer")
    own.hub.call("target", "fill", start=0, size=2 * PAGE, value=0xBB)
    own.do("release", hold="h")
    own.await_events("landed", 2)
    assert own.peek(0, 2) == [0xA1]
    counts = assert_counts_agree(own)
    assert counts["in"] == 2 * (24 + PAGE + 8)
    assert counts["out"] == 2 * (24 + PAGE)
    own.start_peer("writer")
    assert own.finish(own.post([3])) == {1}


def test_a_dead_target_is_unlanded_and_the_writer_hears(own: Rig) -> None:
    own.do("arm", hold="h", match={"request": "r1"}, count=2)
    handles = own.post([0, 1])
    own.await_events("held", 2)
    own.kill("target")
    own.do("release", hold="h")
    own.await_events("unlanded", 2)
    assert own.finish(handles) == {-1}


def test_a_dead_gate_is_noticed_at_once(own: Rig) -> None:
    own.do("arm", hold="h", match={"request": "r1"}, count=1)
    handles = own.post([0])
    own.await_events("held", 1)
    own.children["wire"].send_signal(signal.SIGKILL)
    own.children.pop("wire").wait(10)
    with pytest.raises(PeerDiedError, match="wire died"):
        own.do("release", hold="h")
    assert own.finish(handles) == {-1}
    assert own.peek(0) == [0]


def test_the_gate_ends_with_its_conductor(own: Rig) -> None:
    own.hub.part_with(*own.children)
    own.hub.close()
    assert own.children["wire"].wait(10) == 0


def test_a_taken_port_is_one_line_and_exit_code_4() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ["--hub", "127.0.0.1:1", "--instance", "wire", "--target", "127.0.0.1:1", "--port", str(port)]
        done = subprocess.run(
            [sys.executable, "-m", "injectors.wire", *arguments], capture_output=True, text=True, timeout=30
        )
    assert done.returncode == 4
    assert done.stderr.splitlines() == [
        f"port {port} of 127.0.0.1 is taken; free it, or leave the port out to get a free one"
    ]

"""The wire gate between two real Mooncake engines, one of which notifies the other."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from wire_rig import Rig, boot, fresh

from racelab.errors import LabError
from racelab.transport.messages import Message, encode

HEADER_BYTES = 9
"""What comes before the JSON: its length and its type."""


@pytest.fixture(scope="module")
def shared() -> Iterator[Rig]:
    yield from boot()


@pytest.fixture
def rig(shared: Rig) -> Rig:
    shared.hub.call("target", "notified")
    return fresh(shared)


def notify(rig: Rig, *requests: str) -> dict[str, str]:
    """Tell the target of chunk 0 of these requests; the texts by request."""
    texts = {
        request: encode(
            Message(
                id=f"m-{request}", type="written", sender="writer", to="target",
                request=request, attempt=1, chunk=0, seq=1, hlc=1,
            )
        ).decode()
        for request in requests
    }  # fmt: skip
    rig.writer("notify", segment=rig.gate["segment"], texts=list(texts.values()))
    return texts


def as_sent(text: str) -> bytes:
    """The JSON in which Mooncake sends this text."""
    return msgspec.json.encode({"name": "written", "notify_msg": text})


def counts(rig: Rig) -> dict[str, int]:
    counted: dict[str, int] = rig.do("count")
    for name in ("notified_in", "notified_out"):
        assert counted[name] == counted[f"{name}_kernel"]
    return counted


def test_what_no_hold_wants_passes(rig: Rig) -> None:
    rig.do("arm", hold="n", match={"type": "written", "request": "r1"}, count=1)
    sent = notify(rig, "r2")
    assert rig.hub.call("target", "heard", count=1) == [sent["r2"]]
    assert rig.writer("told", count=1) == [0]
    rig.do("release", hold="n")
    counted = counts(rig)
    assert counted["notified_in"] == counted["notified_out"] > 0


def test_a_held_one_holds_up_no_other_and_arrives_when_it_is_let_go(rig: Rig) -> None:
    rig.do("arm", hold="n", match={"type": "written", "request": "r1"}, count=1)
    sent = notify(rig, "r1")
    (held,) = rig.await_events("held", 1)
    assert (held.request, held.attempt, held.data["what"], held.data["chunk"]) == ("r1", 1, "m-r1", 0)
    assert rig.writer("told", count=1, within_s=0.0) == [], "its sender waits for an answer"
    other = notify(rig, "r2")
    assert rig.hub.call("target", "heard", count=1) == [other["r2"]]
    assert rig.do("release", hold="n") == ["m-r1"]
    rig.await_events("delivered", 1)
    assert rig.hub.call("target", "heard", count=1) == [sent["r1"]]
    assert rig.writer("told", count=2) == [0, 0]
    counts(rig)


def test_the_sender_of_a_lost_one_sees_a_success(rig: Rig) -> None:
    rig.do("arm", hold="n", match={"type": "written"}, count=1)
    notify(rig, "r1")
    rig.await_events("held", 1)
    assert rig.do("drop", hold="n") == ["m-r1"]
    rig.await_events("dropped", 1)
    assert rig.writer("told", count=1) == [0]
    assert rig.hub.call("target", "notified") == 0
    assert rig.do("reset", incarnation=2) == {"held": [], "armed": 0}


def test_two_go_in_the_other_order(rig: Rig) -> None:
    rig.do("arm", hold="n", match={"type": "written"}, count=2)
    sent = {f"m-{request}": text for request, text in notify(rig, "r1", "r2").items()}
    order = [event.data["what"] for event in rig.await_events("held", 2)]
    assert rig.do("release", hold="n", order="reversed") == order[::-1]
    rig.await_events("delivered", 2)
    assert rig.hub.call("target", "heard", count=2) == [sent[what] for what in order[::-1]]
    assert rig.writer("told", count=2) == [0, 0]
    counts(rig)


def test_a_delayed_one_goes_by_itself_and_a_passed_one_is_counted(rig: Rig) -> None:
    rig.do("arm", hold="d", match={"type": "written", "request": "r1"}, count=0, action="delay", ms={"constant": 1.5})
    rig.do("arm", hold="p", match={"type": "written", "request": "r2"}, count=0, action="pass")
    sent = notify(rig, "r1", "r2")
    assert sorted(rig.hub.call("target", "heard", count=2)) == sorted(sent.values())
    rig.await_events("delivered", 1)
    (passed,) = rig.await_events("passed", 1)
    assert (passed.data["hold"], passed.data["what"]) == ("p", "m-r2")
    (held,) = rig.await_events("held", 1)
    (released,) = rig.await_events("released", 1)
    assert held.data["delay_ms"] == 1.5 <= (released.mono_ns - held.mono_ns) / 1e6
    rig.do("release", hold="d")
    rig.do("release", hold="p")
    assert rig.writer("told", count=2) == [0, 0]


def test_a_torn_one_ends_within_and_its_sender_sees_a_success(rig: Rig) -> None:
    rig.do("arm", hold="n", match={"type": "written"}, count=1)
    notify(rig, "r1")
    (held,) = rig.await_events("held", 1)
    with pytest.raises(LabError, match="it cannot be torn after"):
        rig.do("release", hold="n", tear=held.data["bytes"])
    before = counts(rig)["notified_out"]
    assert rig.do("release", hold="n", tear=40) == ["m-r1"]
    (lost,) = rig.await_events("dropped", 1)
    assert (lost.data["tear"], lost.data["bytes"]) == (40, held.data["bytes"])
    assert rig.writer("told", count=1) == [0]
    assert rig.hub.call("target", "notified") == 0
    assert counts(rig)["notified_out"] - before == HEADER_BYTES + 40
    assert rig.do("reset", incarnation=2) == {"held": [], "armed": 0}


@pytest.mark.parametrize(
    ("where", "kind", "answered", "heard"),
    [
        (b'"notify_msg"', "dropped", False, "nothing"),  # its quotation mark: no JSON
        (b"notify_msg", "dropped", True, "empty"),
        (b"m-r1", "dropped", True, "no UTF-8"),
        (b'written","notify_msg', "delivered", None, "message"),  # the name of a notification is nobody's business
    ],
)
def test_what_becomes_of_one_with_a_byte_changed(
    rig: Rig, where: bytes, kind: str, answered: bool | None, heard: str
) -> None:
    rig.do("arm", hold="n", match={"type": "written"}, count=1)
    (text,) = notify(rig, "r1").values()
    rig.await_events("held", 1)
    rig.do("release", hold="n", corrupt=as_sent(text).index(where))
    (end,) = rig.await_events(kind, 1)
    assert end.data.get("answered") is answered
    assert rig.writer("told", count=1) == [0]
    seen = {"message": [text], "empty": [""], "nothing": []}
    if heard in seen:
        assert rig.hub.call("target", "heard", count=len(seen[heard]), within_s=1.0) == seen[heard]
        assert rig.hub.call("target", "notified") == 0
    else:
        with pytest.raises(LabError, match="UnicodeDecodeError"):
            rig.hub.call("target", "heard", count=1)
    counts(rig)


def test_what_nobody_sends_is_refused(rig: Rig) -> None:
    with pytest.raises(LabError, match="knows no 'duplicate' for a notification"):
        rig.do("arm", hold="n", match={"type": "written"}, count=1, action="duplicate")


def test_a_held_one_whose_target_has_died_is_lost(shared: Rig) -> None:
    own = Rig()
    try:
        own.start_all()
        own.do("arm", hold="n", match={"type": "written"}, count=1)
        notify(own, "r1")
        own.await_events("held", 1)
        own.kill("target")
        own.do("release", hold="n")
        (lost,) = own.await_events("dropped", 1)
        assert "the target is gone" in lost.data["why"]
        assert own.writer("told", count=1) == [0]
    finally:
        own.close()

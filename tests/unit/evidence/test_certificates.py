"""Certificates: confirmed only with every proof, and what is said when one is missing."""

from __future__ import annotations

import histories
import pytest
from histories import kind

from racelab.evidence.certificates import Certificate, certify
from racelab.evidence.history import History


@pytest.fixture
def late_write() -> History:
    return histories.play(histories.LATE_WRITE)


def first(history: History) -> Certificate:
    return certify(history)[0]


def test_a_held_write_that_landed_is_confirmed(late_write: History) -> None:
    certificate = first(late_write)
    assert certificate.state == "confirmed", certificate.why
    assert (certificate.id, certificate.gate, certificate.action) == ("w1", "wire", "release")
    assert certificate.requested == {
        "match": {"request": "r1"},
        "count": 4,
        "mechanism": "congestion",
        "bound_ms": 924_600,
    }
    achieved = certificate.achieved
    assert achieved["held"] == ["w1", "w2", "w3", "w4"]
    assert achieved["bytes"] == 2 * 24 * histories.TOKEN_BYTES
    kinds = [[entry.split()[1] for entry in bracket] for bracket in achieved["bracket"]]
    assert kinds == [["held", "look", "released", "landed", "look"]] * 4
    assert achieved["armed_ms"][0] < achieved["held_ms"][0] < achieved["released_ms"][0] < achieved["landed_ms"][0]
    assert achieved["counts_equal"] is True
    assert achieved["transport_proven"] is True


def test_the_json_has_the_contracts_keys(late_write: History) -> None:
    keys = ["id", "gate", "stage", "action", "payload", "state", "requested", "achieved"]
    assert list(first(late_write).to_json())[: len(keys)] == keys


def test_a_held_message_is_confirmed(late_write: History) -> None:
    certificate = certify(late_write)[1]
    assert (certificate.id, certificate.gate, certificate.state) == ("n2", "bus", "confirmed")


def test_a_lost_write_is_confirmed() -> None:
    certificate = first(histories.play(histories.LOST_WRITE))
    assert (certificate.action, certificate.state) == ("drop", "confirmed"), certificate.why
    assert certificate.achieved["dropped_ms"]


def test_what_the_schedule_never_came_to() -> None:
    text = histories.LATE_WRITE.replace(
        "- await: {event: finished, request: r2}",
        "- await: {event: finished, request: r2}\n  - hold: {id: w9, write: {request: r2, attempt: 2}, count: 1}",
    )
    blocked = certify(histories.play(text, histories.LEDGER))[-1]
    assert (blocked.id, blocked.state) == ("w9", "not-reached")
    ran = certify(histories.play(text))[-1]
    assert (ran.id, ran.state) == ("w9", "mismatch")
    assert ran.why == ["0 of 1 asked for were held"]


def test_fewer_than_asked_for_is_a_mismatch(late_write: History) -> None:
    text = histories.LATE_WRITE.replace("write: {request: r1}, count: 4", "write: {request: r1}, count: 5")
    certificate = first(histories.play(text))
    assert certificate.state == "mismatch"
    assert certificate.why == ["4 of 5 asked for were held"]


TAMPERED = [
    ("no look before", "inconclusive", "did not look at its memory before",
     lambda h: histories.without(h, kind("look", why="before-release"))),
    ("no look after", "inconclusive", "did not look at its memory after",
     lambda h: histories.without(h, kind("look", why="after-landing"))),
    ("a look before that came after", "inconclusive", "did not look at its memory before",
     lambda h: histories.moved(h, kind("look", why="before-release"), behind=kind("landed"))),
    ("other bytes after the landing", "inconclusive", "the receiver sees other bytes",
     lambda h: histories.changed(h, kind("look", why="after-landing", page=1),
                                 data={"fingerprint": "feedfeedfeedfeed"})),
    ("never armed", "inconclusive", "never said that it was armed",
     lambda h: histories.without(h, kind("armed", "wire"))),
    ("never landed", "mismatch", "neither went on nor was lost",
     lambda h: histories.without(h, kind("landed"))),
    ("rejected by the target", "mismatch", "rejected w1 with code 1",
     lambda h: histories.changed(h, kind("landed"), data={"code": 1})),
    ("held something else", "mismatch", "request is r2, asked for was r1",
     lambda h: histories.changed(h, kind("held", "wire"), request="r2")),
    ("another address than posted", "mismatch", "differ about write w1",
     lambda h: histories.changed(h, kind("held", "wire"), data={"address": 1})),
    ("another generation than posted", "mismatch", "differ about write w1",
     lambda h: histories.changed(h, kind("held", "wire"), gen=2)),
    ("held what nobody posted", "inconclusive", "nobody posted write w1",
     lambda h: histories.without(h, kind("posted", write="w1"))),
    ("no counts", "inconclusive", "gave no byte counts",
     lambda h: histories.without(h, kind("counted", "wire"))),
    ("counts that disagree", "mismatch", "counts differ from the kernel's",
     lambda h: histories.changed(h, kind("counted", "wire"), data={"counts": {
         "in": 5, "in_kernel": 6, "out": 1, "out_kernel": 1, "unannounced": 0}})),
    ("a write that was not announced", "mismatch", "1 unannounced write(s) passed",
     lambda h: histories.changed(h, kind("counted", "wire"), data={"counts": {
         "in": 5, "in_kernel": 5, "out": 1, "out_kernel": 1, "unannounced": 1}})),
    ("counted too early", "inconclusive", "counted before everything had gone on",
     lambda h: histories.moved(h, kind("counted", "wire"), behind=kind("held", hold="w1"))),
    ("no socket counts", "inconclusive", "gave no count of its data connections",
     lambda h: histories.without(h, kind("sockets"))),
    ("bytes beside the data connections", "inconclusive", "data connections carried 7 bytes",
     lambda h: histories.changed(h, kind("sockets"), data={"acked": 7})),
    ("a kernel that does not tell", "inconclusive", "the kernel does not tell",
     lambda h: histories.changed(h, kind("sockets"), data={"acked": None})),
    ("released before its step", "mismatch", "went before any step or phase let it go",
     lambda h: histories.moved(h, kind("released", "wire"), behind=kind("held", hold="w1"))),
]  # fmt: skip


@pytest.mark.parametrize(("state", "words", "tamper"), [row[1:] for row in TAMPERED], ids=[row[0] for row in TAMPERED])
def test_what_is_missing_or_wrong_is_said(late_write: History, state: str, words: str, tamper: object) -> None:
    assert callable(tamper)
    certificate = first(tamper(late_write))
    assert certificate.state == state, certificate.why
    assert any(words in why for why in certificate.why), certificate.why


def test_a_landing_that_the_schedule_did_not_wait_for(late_write: History) -> None:
    history = histories.moved(late_write, kind("landed", what="w4"), behind=kind("finished", request="r2"))
    certificate = first(history)
    assert certificate.state == "inconclusive"
    assert any("went on before w4 was known to be landed" in why for why in certificate.why)


def test_a_dead_receiver_looks_at_nothing(late_write: History) -> None:
    history = histories.without(late_write, kind("look"))
    dead = histories.with_extra(
        history, kind("landed"), kind="died", instance="conductor", data={"peer": "decode", "doing": "step 10"}
    )
    assert not any("look" in why for why in first(dead).why)


def test_looks_may_differ_where_the_owner_appends() -> None:
    """r1's whole page lands on a page of which r2 was granted half: the rest is r2's to write."""
    history = histories.play(histories.LATE_WRITE)
    sizes = {
        (event.page, event.gen): event.data["bytes"]
        for event in history.by_kind["granted"]
        if event.instance == "decode"
    }
    assert sizes[0, 2] < sizes[0, 1]
    look = next(event for event in history.by_kind["look"] if event.data["why"] == "after-landing" and event.page == 0)
    tampered = histories.changed(
        history, lambda event: event.seq == look.seq and event.kind == "look", data={"fingerprint": "feedfeedfeedfeed"}
    )
    assert first(tampered).state == "confirmed"


CHANGED = histories.LATE_BUT_RIGHTFUL.replace("- release: w1", "- release: {hold: w1, corrupt: 9}")


def with_a_byte_changed(looked: str | None) -> History:
    """The first held write goes on with a byte changed; afterwards the receiver sees `looked` there."""
    history = histories.play(CHANGED)
    history = histories.changed(history, kind("released", hold="w1"), data={"corrupt": 9})
    what = next(event for event in history.by_kind["released"]).data["what"]
    seen = {"fingerprint": looked} if looked else {}
    return histories.changed(history, kind("look", why="after-landing", write=what), data=seen)


def test_a_changed_byte_is_confirmed_when_the_receiver_sees_other_bytes() -> None:
    certificate = first(with_a_byte_changed("feedfeedfeedfeed"))
    assert (certificate.action, certificate.state) == ("corrupt", "confirmed"), certificate.why
    assert certificate.requested["corrupt"] == 9
    assert len(certificate.achieved["corrupted"]) == 1
    assert certificate.label.startswith("synthetic: hold w1 changes a byte")


def test_a_changed_byte_that_the_receiver_does_not_see() -> None:
    certificate = first(with_a_byte_changed(None))
    assert certificate.state == "mismatch"
    assert "landed as it was posted" in certificate.why[0]


def test_a_byte_that_was_to_change_and_did_not() -> None:
    certificate = first(histories.play(CHANGED))
    assert certificate.state == "mismatch"
    assert certificate.why[0].startswith("changed were [], asked for was ['w1']")


def test_a_byte_that_nobody_asked_to_change(late_write: History) -> None:
    wrong = histories.changed(late_write, kind("released", hold="w1"), data={"corrupt": 3})
    assert first(wrong).state == "mismatch"


TORN = histories.LATE_BUT_RIGHTFUL.replace("- release: w1", "- release: {hold: w1, tear: 4096}")
POSTED, OLD = ("1" * 16, "2" * 16, "3" * 16), ("a" * 16, "b" * 16, "c" * 16)


def with_a_torn_write(seen: tuple[str, ...], kind_of_end: str = "torn") -> History:
    """The first held write is let go in part; the receiver's chunks were OLD before and are `seen` after."""
    history = histories.changed(histories.play(TORN), kind("released", hold="w1"), data={"tear": 4096})
    what = history.by_kind["released"][0].data["what"]
    history = histories.changed(
        history, kind("landed", what=what), kind=kind_of_end, data={"tear": 4096} if kind_of_end == "torn" else {}
    )
    history = histories.changed(history, kind("posted", write=what), data={"chunks": "".join(POSTED)})
    for why, name, chunks in (("before-release", "old", OLD), ("after-landing", "new", seen)):
        history = histories.changed(history, kind("look", why=why, write=what), data={"fingerprint": name})
        data = {"fingerprint": name, "chunks": "".join(chunks)}
        history = histories.with_extra(history, kind("quiesced", "decode"), kind="chunks", data=data)
    return history


def test_a_torn_write_is_confirmed_chunk_by_chunk() -> None:
    certificate = first(with_a_torn_write((POSTED[0], *OLD[1:])))
    assert (certificate.action, certificate.state) == ("tear", "confirmed"), certificate.why
    assert certificate.requested["tear"] == 4096
    assert len(certificate.achieved["torn"]) == 1
    assert certificate.label == "default-timers"


@pytest.mark.parametrize("seen", [POSTED, OLD, (POSTED[0], POSTED[1], OLD[2])], ids=["all", "nothing", "more"])
def test_other_bytes_than_those_of_the_tear_confirm_nothing(seen: tuple[str, ...]) -> None:
    certificate = first(with_a_torn_write(seen))
    assert certificate.state == "inconclusive"
    assert "torn there" in certificate.why[0]


def test_a_write_that_was_to_be_torn_and_landed_whole() -> None:
    assert first(with_a_torn_write(POSTED, "landed")).state == "mismatch"


def test_a_tear_whose_page_nobody_took_apart() -> None:
    history = with_a_torn_write((POSTED[0], *OLD[1:]))
    certificate = first(histories.without(history, kind("chunks")))
    assert certificate.state == "inconclusive"
    assert "nobody took apart" in certificate.why[0]

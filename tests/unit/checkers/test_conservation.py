"""Conservation: transitions, the truth of stop evidence, and the books at rest."""

from __future__ import annotations

from typing import Any

import histories
import pytest
from histories import kind

from checkers.conservation import check


def told(history: histories.History) -> str:
    result = check(history)
    assert result.outcome == "violated", result.why
    return " | ".join(finding.what for finding in result.findings)


@pytest.mark.parametrize(
    "text",
    [
        histories.CLEAN,
        histories.LATE_WRITE,
        histories.LATE_INTO_QUARANTINE,
        histories.STALE_MESSAGE,
        histories.ABORTED,
        histories.LOST_WRITE,
    ],
)
def test_the_ledger_conserves(text: str) -> None:
    history = histories.play(text, histories.LEDGER)
    result = check(history)
    assert (result.outcome, result.findings) == ("held", [])
    assert result.coverage["returns"] == len(history.by_kind["page-free"])
    assert result.coverage["instances_at_rest"] == 2


def test_a_page_freed_under_a_grant() -> None:
    assert "becomes FREE without stop evidence for its grant to r1 attempt 1 gen 1" in told(
        histories.play(histories.LATE_WRITE)
    )


@pytest.mark.parametrize("evidence", ["failed-unknown", "timeout", "writer-died"])
def test_what_is_no_stop_evidence(evidence: str) -> None:
    base = histories.play(histories.CLEAN)
    history = histories.changed(base, kind("grant-closed", "decode"), data={"evidence": evidence})
    assert f"{evidence!r} is no stop evidence" in told(history)


def test_evidence_that_comes_after_the_page_was_freed() -> None:
    base = histories.play(histories.CLEAN)
    closed = kind("grant-closed", "decode", page=0, gen=1)
    history = histories.moved(base, closed, behind=kind("page-free", "decode", page=0, gen=1))
    assert "evidence came only later" in told(history)


def test_completions_that_never_came() -> None:
    history = histories.without(histories.play(histories.CLEAN), kind("completed", writes=["w1"]))
    assert "write w1 never completed" in told(history)


def test_an_error_completion_proves_nothing() -> None:
    base = histories.play(histories.CLEAN)
    history = histories.changed(base, kind("completed", writes=["w1"]), data={"status": "failed", "code": -1})
    assert "write w1 completed with failed, which proves nothing" in told(history)


def test_a_completion_credited_before_it_happened() -> None:
    base = histories.play(histories.LATE_BUT_RIGHTFUL)
    history = histories.moved(
        base, kind("grant-closed", "decode", page=0), behind=kind("posted", request="r1", page=1, layer=1)
    )
    assert "write w1 completed after it" in told(history)


def test_completions_of_some_layers_only() -> None:
    base = histories.play(histories.CLEAN)
    history = histories.without(base, kind("posted", request="r1", page=0, layer=1))
    assert "no write of its layer 1 was posted" in told(history)


def test_a_write_posted_after_its_grant_was_closed() -> None:
    base = histories.play(histories.CLEAN)
    posted = next(event for event in base.by_kind["posted"] if event.request == "r1")
    closed = next(event for event in base.by_kind["grant-closed"] if event.instance == "decode")
    late = posted.data | {"write": "w99"}
    history = histories.with_extra(
        base, kind("attempt-ended", request="r1"), kind="posted", page=posted.page, gen=posted.gen, data=late
    )
    ended = next(event for event in history.by_kind["posted"] if event.data["write"] == "w99")
    ended.after = {"decode": closed.seq}
    assert "write w99 is posted after it" in told(history)


def test_an_acknowledgement_that_nobody_sent() -> None:
    base = histories.play(histories.CLEAN)
    history = histories.changed(base, kind("grant-closed", "decode"), data={"evidence": "acknowledged", "by": "x-1"})
    assert "nobody sent the message 'x-1'" in told(history)


def test_an_acknowledgement_with_a_failed_write() -> None:
    base = histories.play(histories.ABORTED, histories.LEDGER)
    history = histories.changed(base, kind("sent", "prefill", type="abort-ack"), data={"clean": False})
    acknowledged = [event for event in base.by_kind["grant-closed"] if event.data["evidence"] == "acknowledged"]
    assert acknowledged
    assert "says that not every write succeeded" in told(history)


def test_a_page_freed_twice() -> None:
    base = histories.play(histories.CLEAN)
    page_free = kind("page-free", "decode", page=0, gen=1)
    assert "becomes FREE a second time" in told(histories.with_extra(base, page_free))


def test_a_page_given_away_while_it_is_taken() -> None:
    history = histories.without(histories.play(histories.CLEAN), kind("page-free", "decode", page=0, gen=1))
    assert "page 0 is given to r2 attempt 1 gen 2 while it is PRIVATE of r1 attempt 1 gen 1" in told(history)


def test_a_generation_that_is_not_fresh() -> None:
    base = histories.play(histories.CLEAN)
    assert "not a fresh generation" in told(histories.changed(base, kind("page-private", "decode", gen=2), gen=1))


def test_a_page_that_leaves_quarantine() -> None:
    base = histories.play(histories.LATE_INTO_QUARANTINE, histories.LEDGER)
    quarantined = kind("page-quarantined", "decode", page=0)
    history = histories.with_extra(base, quarantined, kind="page-free", data={"from": "QUARANTINED", "why": "late"})
    assert "leaves quarantine" in told(history)


def test_a_page_released_by_somebody_else() -> None:
    base = histories.play(histories.CLEAN)
    history = histories.changed(base, kind("page-free", "decode", page=0, gen=1), request="r2")
    assert "is released by r2" in told(history)


def test_a_source_page_freed_under_the_nic() -> None:
    found = check(histories.play(histories.LATE_WRITE)).findings
    assert {finding.instance for finding in found} == {"decode", "prefill"}


def quiesced(states: dict[str, int], leftovers: dict[str, int] | None = None) -> dict[str, Any]:
    return {"states": states, "leftovers": leftovers or {}}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (quiesced({"FREE": 5}), "accounts for 5 pages (5 FREE) of a pool of 6"),
        (quiesced({"FREE": 7}), "accounts for 7 pages"),
        (quiesced({"FREE": 5, "DRAINING": 1}), "counts 1 pages DRAINING; its transitions leave 0"),
        (quiesced({"FREE": 6}, {"grants": 1}), "has 1 grants left"),
        (quiesced({"FREE": 6}, {"timers": 2}), "has 2 timers left"),
    ],
)
def test_the_books_at_rest(data: dict[str, Any], words: str) -> None:
    base = histories.play(histories.CLEAN, histories.LEDGER)
    assert words in told(histories.changed(base, kind("quiesced", "decode"), data=data))


def test_quarantined_pages_are_counted_at_rest() -> None:
    history = histories.play(histories.LATE_INTO_QUARANTINE, histories.LEDGER)
    states = next(event for event in history.by_kind["quiesced"] if event.instance == "decode").data["states"]
    assert states == {"QUARANTINED": 2, "FREE": 4}
    assert check(history).outcome == "held"


@pytest.mark.parametrize("instance", ["decode", "prefill"])
def test_a_side_that_never_came_to_rest_is_unknown(instance: str) -> None:
    history = histories.without(histories.play(histories.CLEAN), kind("quiesced", instance))
    result = check(history)
    assert result.outcome == "unknown"
    assert result.why == f"{instance} never reported itself at rest"


def test_lost_events_prove_no_absence() -> None:
    history = histories.play(histories.CLEAN)
    events = [event for event in history.events if not kind("grant-closed", "decode", page=0, gen=1)(event)]
    result = check(histories.History(history.header, events))
    assert result.outcome == "unknown"


def test_a_page_without_a_request_at_rest_is_lost() -> None:
    """A map that forgot a request does not count it, and its page is PRIVATE for good."""
    base = histories.play(histories.CLEAN, histories.LEDGER)
    freed = kind("page-free", "prefill", request="r2", page=0)
    lost = histories.without(base, freed)
    last = [event for event in lost.by_kind["quiesced"] if event.instance == "prefill"][-1]
    states = last.data["states"] | {"PRIVATE": 1, "FREE": last.data["states"]["FREE"] - 1}
    told = histories.changed(lost, kind("quiesced", "prefill"), data={"states": states})
    whats = [finding.what for finding in check(told).findings]
    assert any("at rest, and no request is left" in what for what in whats)

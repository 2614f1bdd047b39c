"""Isolation: what is a violation, in which grade, and what only looks like one."""

from __future__ import annotations

import histories
import pytest
from histories import kind

from checkers import integrity
from checkers.isolation import check


def grades(history: histories.History) -> set[str]:
    return {finding.grade for finding in check(history).findings}


@pytest.mark.parametrize("guards", [(), histories.LEDGER])
def test_clean_serving_with_reused_pages_holds(guards: tuple[str, ...]) -> None:
    history = histories.play(histories.CLEAN, guards)
    gens = {event.gen for event in history.by_kind["page-private"] if event.instance == "decode"}
    assert gens >= {1, 2}, "the schedule must reuse a page whose old writes had finished"
    result = check(history)
    assert result.outcome == "held"
    assert result.findings == []
    assert result.coverage["writes"] == len(history.by_kind["posted"])


def test_a_late_write_that_is_read_is_consumed() -> None:
    history = histories.play(histories.LATE_WRITE)
    result = check(history)
    assert result.outcome == "violated"
    finding = result.findings[0]
    assert (finding.grade, finding.owner, finding.writer) == ("consumed", "r2 attempt 1 gen 2", "r1 attempt 1 gen 1")
    assert finding.instance == "decode"
    assert finding.gen == 2
    assert finding.bytes == (0, 16 * histories.TOKEN_BYTES)
    by_number = {f"{event.instance}:{event.seq}": event.kind for event in history.events}
    told = [by_number[number] for number in finding.events]
    assert told == ["posted", "page-free", "page-private", "released", "landed", "committed"]


def test_a_late_write_that_nobody_reads_is_reached() -> None:
    result = check(histories.play(histories.LATE_INTO_QUARANTINE))
    assert result.outcome == "violated"
    assert {finding.grade for finding in result.findings} == {"reached", "exposed"}
    assert "the page is free" in result.findings[0].what


def test_a_late_write_on_a_draining_page_is_no_violation() -> None:
    history = histories.play(histories.LATE_WRITE, histories.LEDGER)
    assert history.by_kind["page-draining"]
    assert check(history).outcome == "held"


def test_a_late_write_on_a_quarantined_page_is_no_violation() -> None:
    history = histories.play(histories.LATE_INTO_QUARANTINE, histories.LEDGER)
    quarantined = [event for event in history.by_kind["page-quarantined"] if event.instance == "decode"]
    landed = history.by_kind["landed"]
    assert quarantined
    assert all(history.causality.before(quarantined[-1], event) for event in landed)
    result = check(history)
    assert (result.outcome, result.findings) == ("held", [])


def test_exposure_alone_is_reported_and_violates_nothing() -> None:
    result = check(histories.play(histories.ABORTED))
    assert result.outcome == "held"
    assert [finding.grade for finding in result.findings] == ["exposed"]


def test_a_landing_that_nothing_orders_is_unknown() -> None:
    history = histories.play(histories.LATE_WRITE)
    for event in history.by_kind["released"]:
        event.after = {}
    result = check(history)
    assert "consumed" not in grades(history)
    assert result.outcome == "unknown"
    assert result.why is not None
    assert "nothing orders the landing of write" in result.why


def test_an_unknown_fate_is_no_story() -> None:
    """The gate says that it could not deliver, not that nothing arrived."""
    history = histories.play(histories.LATE_WRITE)
    for event in history.by_kind["landed"]:
        event.kind = "unlanded"
        event.data = {"hold": "w1", "what": event.data["what"], "why": "the connection broke"}
    result = check(histories.History(history.header, history.events))
    assert result.outcome == "unknown"
    assert result.why is not None
    assert "ever landed is not known" in result.why


def test_a_write_the_target_rejected_did_not_land() -> None:
    history = histories.play(histories.LATE_WRITE)
    for event in history.by_kind["landed"]:
        event.data = event.data | {"code": 1}
    assert check(history).outcome == "held"


@pytest.mark.parametrize(("shift", "place"), [(8 * 1024, "outside of the 8,192 bytes"), (-1024, "outside of page 1")])
def test_a_write_across_its_page_is_judged_by_address(shift: int, place: str) -> None:
    """Same identity, same content: only the address says that bytes of a neighbour are hit."""
    base = histories.play(histories.CLEAN)
    posted = [event for event in base.by_kind["posted"] if event.page == 1]
    history = histories.changed(
        base,
        lambda event: event.seq == posted[0].seq and event.kind == "posted",
        data={"address": posted[0].data["address"] + shift},
    )
    result = check(history)
    assert result.outcome == "violated"
    assert place in result.findings[0].what


def test_a_write_without_a_grant_is_a_violation() -> None:
    history = histories.play(histories.CLEAN)
    history = histories.without(history, kind("granted", "decode", request="r1"))
    result = check(history)
    assert result.outcome == "violated"
    assert "never granted" in result.findings[0].what


def test_the_source_page_must_be_the_writers() -> None:
    base = histories.play(histories.CLEAN)
    history = histories.changed(base, kind("posted", request="r2"), data={"source_page": 7})
    result = check(history)
    assert result.outcome == "violated"
    assert "reads source page 7, which is free" in result.findings[0].what


def test_a_read_of_a_page_that_has_moved_on() -> None:
    base = histories.play(histories.CLEAN)
    old = next(event for event in base.by_kind["committed"] if event.request == "r1")
    history = histories.changed(base, kind("read", request="r2"), data={"fingerprints": old.data["fingerprints"]})
    result = check(history)
    assert result.outcome == "violated"
    assert "while the page belongs to r2" in result.findings[0].what


def test_lost_events_leave_it_unknown() -> None:
    history = histories.play(histories.CLEAN)
    events = [event for event in history.events if not kind("posted", write="w2")(event)]
    result = check(histories.History(history.header, events))
    assert result.outcome == "unknown"
    assert result.why is not None
    assert "lost" in result.why


def test_unannounced_writes_leave_it_unknown() -> None:
    base = histories.play(histories.CLEAN)
    counts = base.by_kind["counted"][0].data["counts"] | {"unannounced": 3}
    result = check(histories.changed(base, kind("counted", "wire"), data={"counts": counts}))
    assert result.outcome == "unknown"


def test_nothing_written_is_nothing_held() -> None:
    history = histories.play(histories.CLEAN)
    empty = [event for event in history.events if event.kind in ("run-started", "phase", "pool", "region")]
    result = check(histories.History(history.header, histories.renumbered(empty)))
    assert result.outcome == "unknown"


# -- control messages


def test_a_message_of_an_old_attempt_that_a_guard_refused() -> None:
    history = histories.play(histories.STALE_MESSAGE, histories.LEDGER)
    assert [event for event in history.by_kind["refused"] if event.data["guard"] == "control-carries-generation"]
    assert check(history).findings == []


def test_a_message_of_an_old_attempt_that_was_ignored() -> None:
    history = histories.play(histories.STALE_MESSAGE)
    assert history.by_kind["ignored"]
    assert grades(history) == {"exposed"}


def test_a_message_of_an_old_attempt_that_was_obeyed() -> None:
    history = histories.without(histories.play(histories.STALE_MESSAGE), kind("ignored"))
    result = check(history)
    assert result.outcome == "violated"
    told = [finding for finding in result.findings if finding.grade == "reached"]
    assert len(told) == 2
    assert told[0].what == "message 'written' of r1 attempt 1 is obeyed while r1 attempt 2 is live"


def test_evidence_that_is_credited_to_another_attempt() -> None:
    base = histories.play(histories.STALE_MESSAGE, histories.LEDGER)
    mine = [event for event in base.by_kind["received"] if event.data["type"] == "written" and event.attempt == 1]
    history = histories.changed(base, kind("grant-closed", "decode", attempt=2), data={"by": mine[0].data["id"]})
    result = check(history)
    assert result.outcome == "violated"
    assert "counted as stop evidence for a grant of r1 attempt 2" in result.findings[0].what


def test_an_acknowledgement_for_draining_pages_is_fine() -> None:
    history = histories.play(histories.LATE_WRITE, histories.LEDGER)
    acks = [event for event in history.by_kind["received"] if event.data["type"] == "abort-ack"]
    assert acks
    assert check(history).findings == []


def test_a_torn_write_reaches_as_far_as_it_came() -> None:
    history = histories.changed(histories.play(histories.LATE_WRITE), kind("landed"), kind="torn", data={"tear": 3000})
    torn = history.by_kind["torn"][0]
    ranges = {(finding.page, finding.layer): finding.bytes for finding in check(history).findings if finding.writer}
    whole = torn.data["bytes"]
    assert ranges.pop((torn.page, torn.data["layer"])) == (0, 3000)
    assert whole in {end for _, end in filter(None, ranges.values())}


def test_a_torn_write_has_not_arrived() -> None:
    """The bytes behind the tear may have been there before: nothing shows that these came."""
    base = histories.play(histories.LATE_BUT_RIGHTFUL)
    result = integrity.check(histories.changed(base, kind("landed"), kind="torn", data={"tear": 3000}))
    assert result.outcome == "violated"
    assert "before its bytes arrived" in result.findings[0].what


def test_a_message_on_whose_word_another_request_is_committed() -> None:
    """By a transfer id that both have: r1's news commits r2, whatever attempt either is."""
    base = histories.play(histories.CLEAN, histories.LEDGER)
    news, own = (next(filter(kind("received", request=name, type="written"), base.events)) for name in ("r1", "r2"))
    for message, outcome in ((news, "violated"), (own, "held")):
        told = histories.changed(base, kind("committed", request="r2"), data={"by": message.data["id"]})
        result = check(told)
        assert result.outcome == outcome
    told = histories.changed(base, kind("committed", request="r2"), data={"by": news.data["id"]})
    assert [finding.what for finding in check(told).findings] == [
        "message 'written' of r1 attempt 1 commits r2 attempt 1"
    ]


def test_the_end_of_an_attempt_by_a_timer_is_nobodys_word() -> None:
    """What follows a message of another attempt need not be because of it."""
    base = histories.play(histories.STALE_MESSAGE, histories.LEDGER)
    told = histories.changed(base, kind("attempt-ended"), data={"by": None})
    assert check(told).outcome == check(base).outcome

"""Finality: bounds in virtual time, one end each, and a wait graph for what is stuck."""

from __future__ import annotations

import histories
import pytest
from histories import kind

from checkers.finality import check


@pytest.mark.parametrize("guards", [(), histories.LEDGER])
@pytest.mark.parametrize("text", [histories.CLEAN, histories.LATE_WRITE, histories.LATE_INTO_QUARANTINE])
def test_everything_ends(text: str, guards: tuple[str, ...]) -> None:
    history = histories.play(text, guards)
    result = check(history)
    assert result.outcome == "held"
    assert result.coverage["requests"] == len(history.by_kind["submitted"])
    assert result.coverage["draining_pages"] == len(history.by_kind["page-draining"])


def test_a_request_that_never_ends_is_stuck_and_says_on_what() -> None:
    base = histories.play(histories.LATE_WRITE, histories.LEDGER)
    history = histories.without(base, lambda event: kind("timed-out", request="r1")(event) or event.kind == "page-free")
    result = check(history)
    assert result.outcome == "violated"
    told = next(finding for finding in result.findings if finding.owner == "r1 attempt 1")
    assert told.grade == "stuck"
    assert "page 0 gen 1" in told.what


def test_a_queued_request_counts_and_names_who_holds_the_pages() -> None:
    starved = histories.CLEAN.replace("requests:", "lab: {decode-pages: 3, prefill-pages: 3}\nrequests:").replace(
        "  - await: {event: finished, request: r1}\n  - submit: r2",
        "  - submit: r2",
    )
    starved = starved.replace("steps:\n", "steps:\n  - hold: {id: w1, write: {request: r1}, count: 1}\n")
    base = histories.play(starved, histories.LEDGER)
    assert base.by_kind["queued"]
    history = histories.without(base, lambda event: event.request == "r2" and event.kind not in ("submitted", "queued"))
    history = histories.without(history, lambda event: event.kind in ("page-free", "timed-out", "grant-closed"))
    result = check(history)
    told = next(finding for finding in result.findings if finding.owner == "r2 attempt 1")
    assert "it waits for 3 pages" in told.what
    assert "page 0 gen 1 is" in told.what


def test_before_the_drain_nothing_is_stuck() -> None:
    base = histories.play(histories.CLEAN)
    history = histories.without(base, kind("finished", request="r2"))
    history = histories.without(history, lambda event: event.kind == "phase" and event.data["phase"] == "drain")
    for event in history.events:
        event.clock_ms = 0
    result = check(history)
    assert result.outcome == "unknown"


def test_an_end_past_the_bound() -> None:
    base = histories.play(histories.LATE_WRITE)
    result = check(histories.changed(base, kind("timed-out", request="r1"), clock_ms=20_001))
    assert result.outcome == "violated"
    assert "20,001 ms, more than 20,000" in result.findings[0].what


def test_an_end_at_the_bound_is_in_time() -> None:
    base = histories.play(histories.LATE_WRITE)
    assert check(histories.changed(base, kind("timed-out", request="r1"), clock_ms=20_000)).outcome == "held"


def test_a_request_ends_once() -> None:
    base = histories.play(histories.LATE_WRITE)
    history = histories.with_extra(base, kind("timed-out", request="r1"), kind="finished", data={"tokens": [1]})
    result = check(history)
    assert result.outcome == "violated"
    assert "ended twice: timed-out and finished" in result.findings[0].what


def test_an_ended_request_stays_ended() -> None:
    base = histories.play(histories.CLEAN)
    history = histories.moved(base, kind("finished", request="r1"), behind=kind("received", "decode", request="r1"))
    result = check(history)
    assert result.outcome == "violated"
    assert "goes on (committed) after it finished" in result.findings[0].what


def test_another_attempt_of_the_same_request_may_go_on() -> None:
    assert check(histories.play(histories.STALE_MESSAGE)).outcome == "held"


def test_a_page_that_drains_for_ever() -> None:
    """The policy that holds for ever: stop evidence never comes, and nothing quarantines the page."""
    base = histories.play(histories.LATE_INTO_QUARANTINE, histories.LEDGER)
    history = histories.without(base, kind("page-quarantined", "decode"))
    result = check(history)
    assert result.outcome == "violated"
    assert "has been draining for" in result.findings[0].what


def test_a_page_stuck_after_the_drain_says_what_it_waits_for() -> None:
    base = histories.play(histories.LATE_INTO_QUARANTINE, histories.LEDGER)
    gone = ("page-quarantined", "released", "landed", "completed", "look", "grant-closed")
    history = histories.without(base, lambda event: event.kind in gone)
    for event in history.events:
        event.clock_ms = 0
    result = check(history)
    assert result.outcome == "violated"
    told = [finding.what for finding in result.findings if "stuck draining" in finding.what]
    assert "whose grant waits for write w1, held at the gate" in told[0]


def test_a_drain_within_its_bound() -> None:
    base = histories.play(histories.LATE_INTO_QUARANTINE, histories.LEDGER)
    quarantined = next(event for event in base.by_kind["page-quarantined"])
    draining = next(event for event in base.by_kind["page-draining"] if event.page == quarantined.page)
    assert quarantined.clock_ms - draining.clock_ms == base.header.scenario.lab.drain_timeout_ms
    assert check(base).outcome == "held"


def test_no_request_is_nothing_held() -> None:
    base = histories.play(histories.CLEAN)
    events = [event for event in base.events if event.kind in ("run-started", "phase", "pool")]
    assert check(histories.History(base.header, histories.renumbered(events))).outcome == "unknown"


def test_a_stated_bound_counts_from_the_end_of_the_schedule() -> None:
    """10,000 ms are a client's time-out; what is stated is shorter, and later."""
    stated = histories.LATE_WRITE.replace("steps:\n", "finality-ms: 25000\nsteps:\n", 1)
    history = histories.play(stated, histories.LEDGER)
    assert check(history).outcome == "held"
    drain = next(event for event in history.by_kind["phase"] if event.data["phase"] == "drain")
    late = kind("timed-out", request="r1")
    assert any(late(event) for event in history.events)
    moved = histories.changed(history, late, clock_ms=60_000, hlc=drain.hlc + 1)
    assert any("ended after 60,000 ms" in finding.what for finding in check(moved).findings)


def test_what_ends_only_for_the_probe_was_stuck() -> None:
    history = histories.play(histories.LATE_WRITE, histories.LEDGER)
    probe = next(event for event in history.by_kind["phase"] if event.data["phase"] == "probe")
    ended = kind("finished", request="r2")
    moved = histories.changed(history, ended, hlc=probe.hlc + 1)
    assert any("was stuck after the drain" in finding.what for finding in check(moved).findings)

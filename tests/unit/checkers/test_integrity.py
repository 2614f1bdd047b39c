"""Integrity: every consumed fingerprint against its source, and what that takes to be said."""

from __future__ import annotations

import histories
from histories import kind

from checkers.integrity import check
from racelab.evidence.events import Event


def first_fingerprint(event: Event, value: str) -> list[list[object]]:
    rows = [list(row) for row in event.data["fingerprints"]]
    rows[0][5] = value
    return rows


def test_clean_serving_compares_every_consumed_range() -> None:
    history = histories.play(histories.CLEAN)
    shown = sum(len(event.data["fingerprints"]) for event in history.of("committed", "read"))
    result = check(history)
    assert result.outcome == "held"
    assert result.coverage["fingerprints_compared"] == shown
    assert result.coverage["mismatches"] == 0


def test_a_late_write_is_named_by_who_landed_there() -> None:
    """r1's whole page is longer than what r2 reads of it: only the order of landings can tell."""
    result = check(histories.play(histories.LATE_WRITE))
    assert result.outcome == "violated"
    assert {finding.writer for finding in result.findings} == {"r1 attempt 1 gen 1"}
    assert {finding.owner for finding in result.findings} == {"r2 attempt 1 gen 2"}
    assert result.coverage["mismatches"] == len(result.findings)


def test_bytes_of_another_request_are_named_by_content() -> None:
    base = histories.play(histories.CLEAN)
    other = next(event for event in base.by_kind["posted"] if event.request == "r2" and event.data["chunk"] == 0)
    read = next(event for event in base.by_kind["read"] if event.request == "r1")
    rows = first_fingerprint(read, other.data["fingerprint"])
    result = check(histories.changed(base, kind("read", request="r1"), data={"fingerprints": rows}))
    assert result.outcome == "violated"
    assert result.findings[0].writer == "r2 attempt 1 gen 2"
    assert "these are the bytes of r2 attempt 1" in result.findings[0].what


def test_bytes_that_nobody_posted_are_never_seen() -> None:
    base = histories.play(histories.CLEAN)
    read = next(event for event in base.by_kind["read"] if event.request == "r1")
    rows = first_fingerprint(read, "0123456789abcdef")
    result = check(histories.changed(base, kind("read", request="r1"), data={"fingerprints": rows}))
    assert result.findings[0].what.endswith("never seen")
    assert result.findings[0].writer is None
    assert result.findings[0].bytes == (0, 16 * histories.TOKEN_BYTES)


def test_a_commit_before_the_bytes_arrived() -> None:
    """The right bytes may lie there from an earlier attempt: they have to have landed for this one."""
    base = histories.play(histories.LATE_BUT_RIGHTFUL)
    history = histories.moved(base, kind("committed", request="r1"), behind=kind("held", hold="w1"))
    result = check(history)
    assert result.outcome == "violated"
    assert "before its bytes arrived" in result.findings[0].what


def test_a_page_that_was_never_written_for_its_reader() -> None:
    history = histories.without(histories.play(histories.CLEAN), kind("posted", request="r1", page=1))
    result = check(history)
    assert result.outcome == "violated"
    assert "never written for it" in result.findings[0].what


def test_two_posts_of_one_place_with_other_bytes() -> None:
    """A retry that reads its source page after somebody else took it."""
    base = histories.play(histories.CLEAN)
    mine = next(event for event in base.by_kind["posted"] if event.request == "r1")
    other = mine.data | {"write": "w99", "fingerprint": "feedfeedfeedfeed"}
    history = histories.with_extra(base, kind("posted", write=mine.data["write"]), data=other)
    result = check(history)
    assert result.outcome == "violated"
    assert "posts other bytes for the same place" in result.findings[0].what


def test_a_finished_request_that_showed_nothing_leaves_it_unknown() -> None:
    history = histories.without(histories.play(histories.CLEAN), kind("read", request="r1"))
    result = check(history)
    assert result.outcome == "unknown"
    assert result.why == "r1 attempt 1 finished, and anything of it was never read"


def test_a_layer_that_was_not_looked_at_leaves_it_unknown() -> None:
    base = histories.play(histories.CLEAN)
    read = next(event for event in base.by_kind["read"] if event.request == "r1")
    rows = [row for row in read.data["fingerprints"] if row[2] == 0]
    result = check(histories.changed(base, kind("read", request="r1"), data={"fingerprints": rows}))
    assert result.outcome == "unknown"
    assert result.why is not None
    assert "layer 1" in result.why


def test_a_range_that_no_write_has_is_not_compared() -> None:
    base = histories.play(histories.CLEAN)
    read = next(event for event in base.by_kind["read"] if event.request == "r1")
    rows = [list(row) for row in read.data["fingerprints"]]
    rows[0][4] = 512
    result = check(histories.changed(base, kind("read", request="r1"), data={"fingerprints": rows}))
    assert result.outcome == "unknown"


def test_nothing_consumed_is_nothing_held() -> None:
    history = histories.play(histories.CLEAN)
    events = [event for event in history.events if event.kind not in ("committed", "read", "finished")]
    result = check(histories.History(history.header, histories.renumbered(events)))
    assert result.outcome == "unknown"
    assert result.why == "nothing was there to look at"

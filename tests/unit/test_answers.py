"""Answers beside solo runs: where they part, and which page is behind it."""

from __future__ import annotations

import histories
import pytest
from histories import kind

from checkers import integrity, isolation
from racelab.answers import compared, first_difference


@pytest.mark.parametrize(
    ("expected", "got", "at"),
    [
        ([1, 2, 3], [1, 2, 3], None),
        ([1, 2, 3], [9, 2, 3], 0),
        ([1, 2, 3], [1, 2, 9], 2),
        ([1, 2, 3], [1, 2], 2),
        ([1, 2], [1, 2, 3], 2),
    ],
)
def test_the_first_token_that_differs(expected: list[int], got: list[int], at: int | None) -> None:
    assert first_difference(expected, got) == at


def test_a_right_answer_needs_no_explanation() -> None:
    history = histories.play(histories.CLEAN)
    rows = compared(history, history.header.scenario.requests, isolation.check(history).findings)
    assert [(row["request"], row["first_difference"], row["explained_by"]) for row in rows] == [
        ("r1", None, None),
        ("r2", None, None),
    ]


def test_a_wrong_answer_is_explained_by_the_page_that_its_request_took() -> None:
    history = histories.play(histories.LATE_WRITE)
    (row,) = compared(history, ["r2"], integrity.check(history).findings)
    assert row["first_difference"] is not None
    because = row["explained_by"]
    assert (because["instance"], because["gen"], because["writer"]) == ("decode", 2, "r1 attempt 1 gen 1")
    taken = {f"{event.instance}:{event.seq}" for event in history.of("committed", "read") if event.request == "r2"}
    assert because["event"] in taken


def test_what_was_taken_after_the_wrong_token_does_not_explain_it() -> None:
    history = histories.play(histories.LATE_WRITE)
    late = [
        finding
        for finding in integrity.check(history).findings
        if any(
            f"{read.instance}:{read.seq}" in finding.events for read in history.by_kind["read"] if read.data["token"]
        )
    ]
    assert late
    wrong_at_once = histories.changed(history, kind("finished", request="r2"), data={"tokens": [0] * 8})
    (row,) = compared(wrong_at_once, ["r2"], late)
    assert row["first_difference"] == 0
    assert row["explained_by"] is None

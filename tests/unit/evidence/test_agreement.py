"""Witnesses of the same message, write or request have to say the same of it."""

from __future__ import annotations

from collections.abc import Callable

import histories
import pytest
from histories import kind

from racelab.evidence.agreement import disagreement
from racelab.evidence.history import History

Tamper = Callable[[History], History]


@pytest.mark.parametrize("guards", [(), histories.LEDGER])
@pytest.mark.parametrize(
    "text", [histories.CLEAN, histories.LATE_WRITE, histories.STALE_MESSAGE, histories.ABORTED, histories.LOST_WRITE]
)
def test_honest_witnesses_agree(text: str, guards: tuple[str, ...]) -> None:
    assert disagreement(histories.play(text, guards)) is None


@pytest.mark.parametrize(
    ("where", "change", "words"),
    [
        (kind("received", "decode"), {"request": "r9"}, "disagree about message"),
        (kind("received", "decode"), {"attempt": 9}, "disagree about message"),
        (kind("received", "decode"), {"data": {"chunk": 9}}, "disagree about message"),
        (kind("held", "bus"), {"attempt": 9}, "disagree about message"),
        (kind("landed", "wire"), {"gen": 9}, "disagree about write w1: gen"),
        (kind("released", "wire"), {"request": "r2"}, "disagree about write w1: request"),
        (kind("held", "wire"), {"data": {"bytes": 1}}, "disagree about write w1: bytes"),
        (kind("look"), {"gen": 9}, "sees page 0 gen 9; the page is at gen"),
        (kind("look"), {"data": {"layer": 1}}, "does not look where write w1 goes"),
        (kind("submitted", request="r1"), {"request": "r9"}, "r1 attempt 1 was never submitted"),
        (kind("finished"), {"attempt": 2}, "attempt 2 was never submitted"),
        (kind("accepted"), {"request": "r9"}, "r9 attempt 1 was never reserved"),
        (kind("attempt-ended", request="r1"), {"request": "r2"}, "r2 attempt 1"),
    ],
)
def test_a_witness_that_says_otherwise(where: object, change: dict[str, object], words: str) -> None:
    assert callable(where)
    said = disagreement(histories.changed(histories.play(histories.LATE_WRITE), where, **change))
    assert said is not None
    assert words in said

"""What is said of a prevented run whose variations do not bear it out."""

from __future__ import annotations

import pytest

from racelab.equivalents import bears_out, speaks_against

WITHOUT = "without drain-before-free"
ELSEWHERE = "with spare pages"


@pytest.mark.parametrize(
    ("what", "verdict", "right"),
    [
        (WITHOUT, "reproduced", True),
        (WITHOUT, "moved", True),
        (WITHOUT, "not-reproduced", False),
        (WITHOUT, "prevented", False),
        (ELSEWHERE, "prevented", True),
        (ELSEWHERE, "not-reproduced", True),
        (ELSEWHERE, "reproduced", False),
        (ELSEWHERE, "inconclusive", False),
    ],
)
def test_what_bears_it_out(what: str, verdict: str, right: bool) -> None:
    assert bears_out({"what": what, "verdict": verdict}) is right


@pytest.mark.parametrize(
    ("what", "verdict", "said"),
    [
        (WITHOUT, "not-reproduced", "nothing is violated without drain-before-free either"),
        (WITHOUT, "prevented", "another guard refuses it then, and drain-before-free is not the whole story"),
        (WITHOUT, "inconclusive", "that run decides nothing"),
        (ELSEWHERE, "moved", "there the fault does harm, and the named guard is not the whole story"),
        (ELSEWHERE, "diverged", "that run decides nothing"),
    ],
)
def test_each_is_told_for_what_it_is(what: str, verdict: str, said: str) -> None:
    assert speaks_against({"what": what, "verdict": verdict}).startswith(f"{what} gave {verdict}: {said}")

"""`racelab check`: each finding with its events in order, and what is missing."""

from __future__ import annotations

from typing import Any

import histories
import pytest
from histories import kind

from racelab import registry
from racelab.evidence.history import History
from racelab.report.findings import FINDINGS_MAX, missing, stories
from racelab.verdict import judge


def judged(history: History) -> dict[str, Any]:
    return judge(history, registry.checkers()).to_json()


@pytest.fixture(scope="module")
def late_write() -> History:
    return histories.play(histories.LATE_WRITE)


def told(history: History, verdict: dict[str, Any]) -> list[str]:
    return [line.plain for line in stories(history, verdict)]


def test_a_story_gives_every_event_of_its_finding_in_order(late_write: History) -> None:
    verdict = judged(late_write)
    lines = told(late_write, verdict)
    for count, finding in enumerate(verdict["evidence"][:FINDINGS_MAX], 1):
        head = next(index for index, line in enumerate(lines) if line.startswith(f"\n{count}. "))
        assert lines[head] == f"\n{count}. {finding['spec']}, {finding['grade']}: {finding['what']}"
        shown = [line.split()[0] for line in lines[head + 1 : head + 1 + len(finding["events"])]]
        assert sorted(shown) == sorted(finding["events"])
        places = {f"{event.instance}:{event.seq}": index for index, event in enumerate(late_write.events)}
        assert [places[name] for name in shown] == sorted(places[name] for name in shown)


def test_long_lists_end_with_a_count(late_write: History) -> None:
    verdict = judged(late_write)
    verdict["evidence"] = verdict["evidence"][:1] * (FINDINGS_MAX + 7)
    assert told(late_write, verdict)[-1] == "\nand 7 more: --json has them all"


def test_a_clean_run_has_nothing_to_tell_and_misses_nothing() -> None:
    history = histories.play(histories.CLEAN, histories.LEDGER)
    verdict = judged(history)
    assert told(history, verdict) == []
    assert [line.plain for line in missing(verdict)] == ["\nno evidence is missing"]


@pytest.mark.parametrize(
    ("taken", "said"),
    [
        (kind("look"), "the receiver did not look at its memory"),
        (kind("quiesced"), "conservation is unknown"),
        (kind("counted"), "gave no byte counts"),
    ],
    ids=["looks", "rest", "counts"],
)
def test_what_is_missing_is_named(late_write: History, taken: Any, said: str) -> None:
    clean = histories.play(histories.LATE_BUT_RIGHTFUL, histories.LEDGER)
    lines = [line.plain for line in missing(judged(histories.without(clean, taken)))]
    assert lines[0] == "\nmissing evidence"
    assert any(said in line for line in lines), lines


def test_a_wrong_page_that_nobody_took_apart_is_missing_evidence(late_write: History) -> None:
    lines = [line.plain for line in missing(judged(late_write))]
    assert any("nobody took page" in line for line in lines)

"""What the conductor asks to be taken apart: what was seen and nobody had posted, and nothing else."""

from __future__ import annotations

import histories
from histories import kind

from racelab.conductor.witness import Witness
from racelab.evidence.history import History


def witness(history: History) -> Witness:
    seen = Witness(lambda event: None)
    for event in history.events:
        seen.see(event)
    return seen


def test_a_clean_run_asks_nothing() -> None:
    assert witness(histories.play(histories.CLEAN)).unposted() == {}


def test_whole_pages_of_another_request_are_known_already() -> None:
    """r2 commits just what r1 had posted: that is wrong, and nothing needs to be asked."""
    history = histories.play(histories.CLEAN)
    other = next(event for event in history.by_kind["posted"] if event.request == "r1")
    rows = history.by_kind["committed"][-1].data["fingerprints"]
    swapped = [[*row[:5], other.data["fingerprint"]] for row in rows]
    last = history.by_kind["committed"][-1].seq
    assert (
        witness(histories.changed(history, kind("committed", seq=last), data={"fingerprints": swapped})).unposted()
        == {}
    )


def test_each_fingerprint_that_nobody_posted_is_asked_for_once() -> None:
    history = histories.play(histories.CLEAN)
    for reading in ("committed", "read"):
        event = history.by_kind[reading][0]
        rows = [[*row[:5], "feed"] for row in event.data["fingerprints"][:1]] + event.data["fingerprints"][1:]
        history = histories.changed(history, kind(reading), data={"fingerprints": rows})
    assert witness(history).unposted() == {"decode": ["feed"]}


def test_looks_count_too() -> None:
    history = histories.play(histories.LATE_WRITE)
    changed = histories.changed(history, kind("look", why="after-landing"), data={"fingerprint": "feed"})
    assert "feed" in witness(changed).unposted()["decode"]

"""Writes put together from both sides, and the brackets of their landings."""

from __future__ import annotations

import histories
import pytest
from histories import kind

from racelab.evidence.writes import Write, Writes


def one(history: histories.History, identity: str = "w1") -> Write:
    return Writes(history).by_id[identity]


def test_a_direct_write_lands_between_post_and_success() -> None:
    write = one(histories.play(histories.CLEAN))
    assert (write.fate, write.lower.kind, [event.kind for event in write.uppers]) == ("landed", "posted", ["completed"])


def test_a_held_write_lands_between_release_and_the_gates_word() -> None:
    write = one(histories.play(histories.LATE_WRITE))
    assert (write.fate, write.lower.kind) == ("landed", "released")
    assert [event.kind for event in write.uppers] == ["landed", "completed"]


def test_success_before_the_release_is_no_bound() -> None:
    """A transport that says success while the gate still has the bytes."""
    base = histories.play(histories.LATE_WRITE)
    write = one(histories.moved(base, kind("completed", writes=["w1"]), behind=kind("held", hold="w1")))
    assert write.succeeded
    assert [event.kind for event in write.uppers] == ["landed"]


@pytest.mark.parametrize(
    ("gone", "fate"),
    [(("landed", "released", "completed"), "held"), (("landed", "completed"), "unknown"), (("landed",), "unknown")],
)
def test_fates_of_a_held_write(gone: tuple[str, ...], fate: str) -> None:
    base = histories.play(histories.LATE_WRITE)
    assert one(histories.without(base, lambda event: event.kind in gone)).fate == fate


@pytest.mark.parametrize("status", ["failed", "timeout"])
def test_an_error_completion_leaves_the_fate_unknown(status: str) -> None:
    base = histories.play(histories.CLEAN)
    assert one(histories.changed(base, kind("completed", writes=["w1"]), data={"status": status})).fate == "unknown"


def test_a_dropped_write_is_lost() -> None:
    assert one(histories.play(histories.LOST_WRITE)).fate == "lost"

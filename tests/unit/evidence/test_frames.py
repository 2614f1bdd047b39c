"""Histories as pandas frames: a row for each thing, with the types that one can count with."""

from __future__ import annotations

import sys

import histories
import pytest
from histories import kind

from racelab.errors import MissingPartError
from racelab.evidence import frames
from racelab.evidence.history import History

pandas = pytest.importorskip("pandas", reason="the extra `frames` is not installed")


@pytest.fixture(scope="module")
def history() -> History:
    return histories.play(histories.LATE_WRITE)


def test_a_row_is_an_event_in_causal_order(history: History) -> None:
    table = frames.events(history)
    assert len(table) == len(history.events)
    assert table.kind.tolist() == [event.kind for event in history.events]
    assert table.hlc.is_monotonic_increasing
    assert table[table.kind == "page-free"].page.dtype == "Int64"
    assert (table.groupby("instance").seq.max() == table.groupby("instance").size()).all()


def test_every_fingerprint_is_a_row(history: History) -> None:
    table = frames.fingerprints(history)
    taken = sum(len(event.data["fingerprints"]) for event in history.of("committed", "read"))
    assert len(table) == taken + len(history.by_kind["posted"]) + len(history.by_kind["look"])
    posted = set(table[table.kind == "posted"].fingerprint)
    wrong = table[(table.request == "r2") & (table.kind == "committed") & ~table.fingerprint.isin(posted)]
    assert len(table[(table.request == "r2") & (table.kind == "committed")]) > 0
    assert set(wrong.gen) <= {2}


def test_a_write_has_its_moments_in_order(history: History) -> None:
    table = frames.writes(history)
    held = table[table.held_ms.notna()]
    assert len(held) == len(history.by_kind["held"]) - sum(map(kind("held", "bus"), history.events))
    assert (held.posted_ms <= held.held_ms).all()
    assert (held.held_ms <= held.released_ms).all()
    assert (held.released_ms <= held.landed_ms).all()
    assert set(table.fate) == {"landed"}


def test_an_empty_history_has_the_same_columns(history: History) -> None:
    empty = History(history.header, [])
    for build in (frames.events, frames.fingerprints, frames.writes):
        assert list(build(empty).columns) == list(build(history).columns)


def test_without_pandas_it_says_what_to_install(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPartError, match="frames"):
        frames.events(history)

"""A history in a file: read in blocks, refused by line."""

from __future__ import annotations

from pathlib import Path

import histories
import pytest

from racelab.errors import HistoryError
from racelab.evidence import lines
from racelab.evidence.history import History, read


def stored(folder: Path) -> tuple[History, Path]:
    history = histories.play(histories.CLEAN, histories.LEDGER)
    file = folder / "history.jsonl"
    history.write(file)
    return history, file


@pytest.mark.parametrize("block_bytes", [1, 1000, 10_000_000])
def test_blocks_are_whole_lines_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int) -> None:
    history, file = stored(tmp_path)
    monkeypatch.setattr(lines, "BLOCK_BYTES", block_bytes)
    assert read(file).events == history.events
    assert read(tmp_path).lost == 0


def test_a_torn_line_is_named(tmp_path: Path) -> None:
    history, file = stored(tmp_path)
    file.write_bytes(file.read_bytes()[:-20])
    torn = read(file)
    with pytest.raises(HistoryError, match="a torn or wrong event") as caught:
        _ = torn.events
    assert caught.value.line == len(history.events) + 1


def test_a_kind_that_there_is_not_is_named_and_so_is_what_an_event_lacks(tmp_path: Path) -> None:
    history, file = stored(tmp_path)
    right = file.read_text(encoding="utf-8")
    line = 2 + next(place for place, event in enumerate(history.events) if event.kind == "committed")
    for change, words in (
        (('"committed"', '"comitted"'), "no event has the kind 'comitted'"),
        (('"kind":"committed"', '"kind":"finished"'), "an event 'finished' without tokens"),
    ):
        file.write_text(right.replace(*change, 1), encoding="utf-8")
        with pytest.raises(HistoryError, match=words) as caught:
            _ = read(file).events
        assert caught.value.line == line


def test_events_out_of_order_are_sorted(tmp_path: Path) -> None:
    history, file = stored(tmp_path)
    head, *rest = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(head + b"".join(reversed(rest)))
    assert read(file).events == history.events
    assert read(file).by_kind == history.by_kind

"""The Chrome trace of a history: complete, balanced, and every arrow tied to something."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import histories
import pytest

from racelab.evidence import perfetto
from racelab.evidence.history import History


@pytest.fixture(scope="module")
def history() -> History:
    return histories.play(histories.LATE_WRITE)


@pytest.fixture(scope="module")
def entries(history: History) -> list[dict[str, Any]]:
    return list(perfetto.trace(history)["traceEvents"])


def of(entries: list[dict[str, Any]], phase: str) -> list[dict[str, Any]]:
    return [entry for entry in entries if entry["ph"] == phase]


def test_every_process_and_every_pool_has_a_name(history: History, entries: list[dict[str, Any]]) -> None:
    names = {entry["args"]["name"] for entry in of(entries, "M") if entry["name"] == "process_name"}
    assert names == {event.instance for event in history.events} | {"decode pages", "prefill pages"}
    pids = {entry["pid"] for entry in of(entries, "M")}
    assert {entry["pid"] for entry in entries} == pids


def test_every_event_is_there_with_its_number_and_data(history: History, entries: list[dict[str, Any]]) -> None:
    told = [entry["args"]["number"] for entry in of(entries, "i")]
    assert told == [f"{event.instance}:{event.seq}" for event in history.events]
    assert all(entry["ts"] >= 0 for entry in of(entries, "i"))


def test_spans_are_balanced_and_in_order(entries: list[dict[str, Any]]) -> None:
    begun = {(entry["cat"], entry["id"]): entry["ts"] for entry in of(entries, "b")}
    ended = {(entry["cat"], entry["id"]): entry["ts"] for entry in of(entries, "e")}
    assert begun.keys() == ended.keys()
    assert all(begun[span] <= ended[span] for span in begun)
    assert {category for category, _ in begun} == {"request", "write", "hold"}


def test_arrows_have_two_ends_on_slices(history: History, entries: list[dict[str, Any]]) -> None:
    starts, ends = (Counter(entry["id"] for entry in of(entries, phase)) for phase in ("s", "f"))
    assert starts == ends
    assert len(starts) >= len(history.by_kind["received"]) + len(history.by_kind["landed"])
    places = {(entry["pid"], entry["tid"], entry["ts"]) for entry in of(entries, "X")}
    for entry in of(entries, "s") + of(entries, "f"):
        assert (entry["pid"], entry["tid"], entry["ts"]) in places


def test_a_page_is_somebodys_from_private_to_free(entries: list[dict[str, Any]]) -> None:
    names = {entry["pid"]: entry["args"]["name"] for entry in of(entries, "M") if entry["name"] == "process_name"}
    pages = [entry for entry in of(entries, "X") if names[entry["pid"]] == "decode pages"]
    owners = [entry["name"] for entry in sorted(pages, key=lambda entry: entry["ts"]) if entry["tid"] == 0]
    assert owners[:2] == ["PRIVATE of r1 attempt 1 gen 1", "PRIVATE of r2 attempt 1 gen 2"]
    assert all(entry["dur"] >= 1 for entry in pages)


def test_the_file_is_json_that_stands_alone(history: History, tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    perfetto.write(history, file)
    read = json.loads(file.read_text())
    assert read["otherData"]["scenario"] == "late-write"
    assert len(read["traceEvents"]) > len(history.events)
    assert list(tmp_path.iterdir()) == [file]


def test_a_history_that_stops_in_the_middle_still_draws(history: History) -> None:
    cut = History(history.header, history.events[: len(history.events) // 2])
    entries = list(perfetto.trace(cut)["traceEvents"])
    assert len(of(entries, "b")) == len(of(entries, "e"))

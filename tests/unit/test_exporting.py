"""`racelab export`: what goes into which format, and what is said of what does not."""

from __future__ import annotations

import json
from pathlib import Path

import histories
import pytest

from racelab.errors import LabError, UsageError
from racelab.exporting import export
from racelab.shipped import shipped
from racelab.traces import recognise


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    histories.play(histories.CLEAN).write(folder / "history.jsonl")
    return folder


@pytest.fixture
def counterexample() -> Path:
    return Path(str(shipped("scenarios", "counterexamples"))) / "late-write-after-timeout.txt"


def test_a_run_becomes_a_chrome_trace(run: Path, tmp_path: Path) -> None:
    export(run, "perfetto", tmp_path / "new" / "trace.json")
    assert json.loads((tmp_path / "new" / "trace.json").read_text())["traceEvents"]
    export(run / "history.jsonl", "perfetto", tmp_path / "same.json")
    assert (tmp_path / "same.json").read_bytes() == (tmp_path / "new" / "trace.json").read_bytes()


@pytest.mark.parametrize("to", ["itf", "ndjson"])
def test_a_counterexample_reads_back_the_same(counterexample: Path, tmp_path: Path, to: str) -> None:
    file = tmp_path / f"trace.{to}"
    export(counterexample, to, file)
    given, read = recognise.read(counterexample), recognise.read(file)
    assert len(read.steps) == len(given.steps)


def test_a_format_that_does_not_fit(run: Path, counterexample: Path, tmp_path: Path) -> None:
    for source, to, said in (
        (counterexample, "perfetto", "a format of runs"),
        (run, "pdf", "unknown format"),
    ):
        with pytest.raises(UsageError, match=said):
            export(source, to, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_gets_advice_that_names_no_option_of_another_command(
    counterexample: Path, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file, no folder")
    with pytest.raises(LabError, match="cannot write") as caught:
        export(counterexample, "ndjson", tmp_path / "taken" / "trace.ndjson")
    assert "--results" not in (caught.value.next or "")

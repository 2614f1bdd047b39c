"""A run's history as a trace of the ledger's model, which can be played again."""

from __future__ import annotations

from pathlib import Path

import histories
import pytest
from duet import Duet
from histories import kind

from racelab.engine.guards import GUARDS
from racelab.errors import HistoryError
from racelab.evidence.history import History
from racelab.importing import import_counterexample
from racelab.model.recorded import trace_of
from racelab.scenario import Lab, Request
from racelab.traces import recognise
from racelab.traces.export import export


def late_write(*guards: str) -> History:
    """r1's writes land after its pages have gone to r2, if no guard stops that."""
    duet = Duet({name: Request(prompt_tokens=25) for name in ("r1", "r2")}, Lab(decode_pages=2), guards)
    duet.wire.held = True
    duet.submit("r1")
    duet.play()
    duet.clock.advance(duet.lab.request_timeout_ms)
    duet.submit("r2")
    duet.play()
    return duet.history()


def test_a_run_that_went_wrong_is_a_counterexample(tmp_path: Path) -> None:
    trace = trace_of(late_write(), "run")
    assert (trace.kind, trace.property_name, trace.modules) == ("invariant", "Conservation", ("PdLedger",))
    file = tmp_path / "run.ndjson"
    file.write_text(export(trace, "ndjson"), encoding="utf-8")
    imported = import_counterexample(file)
    assert imported.binding == "pd-ledger"
    assert (imported.scenario.spec, imported.scenario.guard) == ("conservation", "drain-before-free")
    assert imported.scenario.lab.decode_pages == 2
    assert list(imported.scenario.requests) == ["r1"]


def test_the_specification_that_the_scenario_names_comes_first(tmp_path: Path) -> None:
    history = late_write()
    history.header.scenario = histories.scenarios.loads(histories.LATE_WRITE)
    trace = trace_of(history, "run")
    assert trace.property_name == "Isolation"
    file = tmp_path / "run.ndjson"
    file.write_text(export(trace, "ndjson"), encoding="utf-8")
    scenario = import_counterexample(file).scenario
    assert (scenario.spec, scenario.victim, scenario.guard) == ("isolation", "r2", "drain-before-free")


@pytest.mark.parametrize("to", ["itf", "ndjson"])
def test_a_run_that_went_right_reads_back_as_one(to: str, tmp_path: Path) -> None:
    trace = trace_of(late_write(*GUARDS), "run")
    assert trace.kind == "none"
    file = tmp_path / f"run.{to}"
    file.write_text(export(trace, to), encoding="utf-8")
    read = recognise.read(file)
    assert read.kind == "none"
    assert len(read.steps) == len(trace.steps)
    if to == "ndjson":
        assert [step.state for step in read.steps] == [step.state for step in trace.steps]


def test_a_run_that_the_specification_does_not_explain_is_no_trace() -> None:
    wrong = histories.without(late_write(), kind("granted", "decode"))
    with pytest.raises(HistoryError, match=r"does not explain this run \(engine bug\): decode must report granted"):
        trace_of(wrong, "run")

"""What is exported is read back: ndjson without loss, ITF as far as ITF can say it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from trace_samples import SAMPLES, sample

from racelab.errors import TraceError, UsageError
from racelab.traces import recognise
from racelab.traces.export import export
from racelab.traces.trace import Trace

READABLE = [
    str(path.relative_to(SAMPLES))
    for path in sorted(SAMPLES.glob("*/*"))
    if path.name not in ("no-error.txt", "assert-fails.txt")
]


def without_place(trace: Trace) -> Trace:
    steps = tuple(dataclasses.replace(step, line=0) for step in trace.steps)
    return dataclasses.replace(trace, file="", line=0, format="", steps=steps)


@pytest.mark.parametrize("name", READABLE)
def test_ndjson_keeps_all_that_a_trace_says(name: str) -> None:
    trace = sample(name)
    (back,) = recognise.read_text(export(trace, "ndjson"), "t.ndjson")
    assert without_place(back) == without_place(trace)


@pytest.mark.parametrize("name", READABLE)
def test_itf_keeps_variables_actions_and_the_lasso(name: str) -> None:
    trace = sample(name)
    text = export(trace, "itf")
    assert json.loads(text)["#meta"]["format"] == "ITF"
    (back,) = recognise.read_text(text, "t.itf.json")
    assert back.variables == trace.variables
    assert [step.action.name if step.action else None for step in back.steps] == [
        step.action.name if step.action else None for step in trace.steps
    ]
    assert back.loop == (trace.loop if not trace.stuttering else len(trace.steps) - 1)
    assert (back.kind == "none") == (trace.kind == "none")


def test_a_big_integer_is_a_bigint_and_a_model_value_a_string() -> None:
    state = json.loads(export(sample("tlc-text/every-value.txt"), "itf"))["states"][0]
    assert state["fn"] == {"#map": [["m1", 1], ["m2", -5]]}
    assert state["setv"] == {"#set": [1, 2, 3]}


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown format 'xml'"):
        export(sample("tlc-text/late.txt"), "xml")


def test_a_cut_export_is_refused(tmp_path: Path) -> None:
    lines = export(sample("tlc-text/late.txt"), "ndjson").splitlines(keepends=True)
    (tmp_path / "t.ndjson").write_text("".join(lines[:-1]), encoding="utf-8")
    with pytest.raises(TraceError, match="expected 5 states, found 4"):
        recognise.read(tmp_path / "t.ndjson")

"""ITF of Apalache and Quint: values, actions, instances, and a status that says ok."""

from __future__ import annotations

import json
from typing import Any

import pytest
from trace_samples import sample, text_of

from racelab.errors import TraceError
from racelab.traces import itf, json_values, recognise
from racelab.traces.values import Function, ModelValue


def test_quint_names_its_actions_and_picks() -> None:
    trace = sample("itf/late.itf.json")
    assert (trace.format, trace.checker) == ("itf", "Quint")
    assert [step.action.name if step.action else None for step in trace.steps] == [
        None,
        "startTransfer",
        "timeoutReq",
        "startTransfer",
        "land",
        "land",
    ]
    land = trace.steps[4].action
    assert land is not None
    assert land.parameters == {"w": Function({"held": False, "p": 1, "r": "r1"})}
    assert "mbt::actionTaken" not in trace.variables


def test_instances_prefix_variables_and_are_modules() -> None:
    trace = sample("itf/late.itf.json")
    assert "pdEager::pd::page" in trace.variables
    assert trace.modules == ("pdEager", "pd", "pdlate")


def test_a_run_with_status_ok_is_read_and_violates_nothing() -> None:
    trace = sample("itf/out_conservation.itf.json")
    assert trace.kind == "none"
    assert len(trace.steps) == 11
    assert sample("itf/late.itf.json").kind == "unknown"


def test_apalache_has_no_actions_and_keeps_sets() -> None:
    trace = sample("itf/missionaries.itf.json")
    assert trace.steps[5].state["who_is_on_bank"] == Function(
        {"E": frozenset(), "W": frozenset({"c1_OF_PERSON", "c2_OF_PERSON", "m1_OF_PERSON", "m2_OF_PERSON"})}
    )
    assert trace.steps[1].action is not None
    assert trace.steps[1].action.name is None


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ({"#bigint": "-12"}, -12),
        (7, 7),
        ({"#tup": [1, "a"]}, (1, "a")),
        ([1, "a"], (1, "a")),
        ({"#set": [[1], [2]]}, frozenset({(1,), (2,)})),
        ({"#map": [[{"#bigint": "5"}, True]]}, Function({5: True})),
        ({"#map": [[1, "a"], [2, "b"]]}, ("a", "b")),
        ({"#map": []}, ()),
        ({"a": {"#set": []}}, Function({"a": frozenset()})),
        ({"#unserializable": "Nat"}, ModelValue("Nat")),
        ({"tag": "FREE", "value": {"#tup": []}}, Function({"tag": "FREE", "value": ()})),
        ({"tag": "FREE", "value": {}}, Function({"tag": "FREE", "value": ()})),
        ({"tag": "FREE", "value": "U_OF_UNIT"}, Function({"tag": "FREE", "value": ()})),
    ],
)
def test_each_encoding_has_its_value(data: Any, value: Any) -> None:
    assert json_values.decode(data) == value


@pytest.mark.parametrize(
    ("data", "what"),
    [
        ({"#bigint": "x"}, "#bigint"),
        ({"#bigint": "9" * 5_000}, "#bigint"),
        ({"#set": [1, 1]}, "once"),
        ({"#set": [1, True]}, "once"),
        ({"#set": 1}, "a list in #set"),
        ({"#map": [[1]]}, "pairs"),
        ({"#map": [[1, 2], [1, 3]]}, "once"),
        ({"#what": 1}, "#what"),
    ],
)
def test_a_wrong_value_is_refused_with_its_variable(data: Any, what: str) -> None:
    text = json.dumps({"vars": ["x"], "states": [{"x": data}]})
    with pytest.raises(TraceError, match=f"variable 'x': .*{what}"):
        itf.read(text, "t.itf.json")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"states": []}', "no state"),
        ('{"states": [1]}', "expected a state"),
        ('{"states": [{"x": 1}, {"y": 1}]}', "state 2 lacks variable x"),
        ('{"states": [{"x": 1.5}]}', "1.5 is no TLA"),
        ('{"states": [{"x": NaN}]}', "NaN is no TLA"),
        ('{"states": [{"x": 1}], "loop": 4}', "'loop'"),
        ('{"states": [{"x": ' + "[" * 50_000 + "]" * 50_000 + "}]}", "nest"),
        ('{"states": [{"x": ' + "[" * 500 + "]" * 500 + "}]}", "nest"),
        ('{"states": [{"x": ' + "9" * 5_000 + "}]}", "digits"),
        ('{"#meta": {},\n"states": [{"x" 1}]}', "column 17: not JSON"),
    ],
)
def test_a_wrong_file_is_refused(text: str, what: str) -> None:
    with pytest.raises(TraceError, match=what):
        recognise.read_text(text, "t.itf.json")


def test_what_is_no_variable_is_passed_over() -> None:
    text = '{"params": ["N"], "vars": ["x"], "states": [{"x": 1, "N": 3}, {"x": 2}]}'
    (trace,) = recognise.read_text(text, "t.itf.json")
    assert [dict(step.state) for step in trace.steps] == [{"x": 1}, {"x": 2}]


def test_a_file_cut_at_any_byte_is_refused_with_its_place() -> None:
    text = text_of("itf/missionaries.itf.json").rstrip()
    for length in range(len(text)):
        with pytest.raises(TraceError) as caught:
            recognise.read_text(text[:length], "t.itf.json")
        assert 1 <= (caught.value.line or 0) <= text.count("\n") + 1


def test_a_pick_that_holds_no_value_is_taken_as_it_stands() -> None:
    """Found by coverage-guided fuzzing."""
    states = [{"x": 0}, {"x": 1, "mbt::nondetPicks": {"r": {"tag": "Some"}}}]
    (trace,) = recognise.read_text(json.dumps({"vars": ["x"], "states": states}), "t.itf.json")
    assert trace.steps[1].action is not None
    assert trace.steps[1].action.parameters == {"r": Function({"tag": "Some"})}

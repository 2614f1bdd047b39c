"""TLC's JSON: three schemas, one trace; and what the format cannot say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from trace_samples import sample, text_of

from racelab.errors import TraceError
from racelab.traces import recognise, tlc_json
from racelab.traces.trace import Location, Trace
from racelab.traces.values import Function


def read_one(data: Any) -> Trace:
    (trace,) = recognise.read_text(json.dumps(data), "t.json")
    return trace


def inner() -> Any:
    return json.loads(text_of("tlc-json/iso.json"))["counterexample"]


def test_states_actions_and_arguments() -> None:
    trace = sample("tlc-json/cons.json")
    assert (trace.format, trace.kind, trace.property_name) == ("tlc-json", "unknown", None)
    assert [step.action.name if step.action else None for step in trace.steps] == [
        None,
        "StartTransfer",
        "Next",
        "Timeout",
        "DeliverNote",
        "Abort",
    ]
    second = trace.steps[1].action
    assert second is not None
    assert (second.args, second.parameters) == (("r1",), {"r": "r1"})
    assert second.location == Location("PDPages", 26, 3, 32, 38)
    assert trace.modules == ("PDPages",)


def test_sets_are_lists_and_model_values_strings_here() -> None:
    state = sample("tlc-json/zooi.json").steps[0].state
    assert state["setv"] == (1, 2, 3)
    assert state["fn"] == Function({"m1": 1, "m2": -5})
    assert state["str"] == 'quote " and back \\ slash @@ :> /\\ x = 3'
    assert state["b"] is True


def test_the_three_schemas_give_the_same_states() -> None:
    newest = sample("tlc-json/iso.json")
    middle = read_one(inner())
    oldest = read_one([state for _, state in inner()["state"]])
    assert middle.steps == newest.steps
    assert [step.state for step in oldest.steps] == [step.state for step in newest.steps]
    assert all(step.action is not None and step.action.name is None for step in oldest.steps[1:])


def test_actions_come_as_a_set_in_any_order() -> None:
    data = inner()
    data["action"].reverse()
    assert read_one(data).steps == read_one(inner()).steps


def test_an_action_that_leads_back_closes_a_lasso() -> None:
    data = inner()
    data["action"].append([data["state"][2], {"name": "Next"}, data["state"][1]])
    trace = read_one(data)
    assert (trace.loop, trace.stuttering) == (1, False)
    data["action"][-1] = [data["state"][2], {"name": "Stuttering"}, data["state"][2]]
    assert read_one(data).stuttering


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda data: data.update(state=[], action=[]), "no error"),
        (lambda data: data["state"].pop(1), "expected state 2"),
        (lambda data: data["state"].__setitem__(0, 5), r"expected \[number, state\]"),
        (lambda data: data["action"].__setitem__(0, [1, 2]), "expected"),
        (lambda data: data["action"].__setitem__(0, [[1, {}], {}, [9, {}]]), "expected"),
        (lambda data: data.__setitem__("action", "x"), "expected a list"),
    ],
)
def test_a_wrong_file_is_refused(change: Any, what: str) -> None:
    data = inner()
    change(data)
    with pytest.raises(TraceError, match=what):
        tlc_json.read(json.dumps(data), "t.json")


def test_a_file_cut_at_any_byte_is_refused_with_its_place() -> None:
    text = text_of("tlc-json/iso.json").rstrip()
    for length in range(len(text)):
        with pytest.raises(TraceError) as caught:
            recognise.read_text(text[:length], "t.json")
        assert caught.value.line == 1

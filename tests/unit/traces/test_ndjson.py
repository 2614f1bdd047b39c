"""Logs of one JSON object a line: etcd's, CCF's, and racelab's own."""

from __future__ import annotations

import pytest
from trace_samples import sample

from racelab.errors import TraceError
from racelab.traces import recognise
from racelab.traces.values import Function


def test_an_etcd_log_is_a_trace_of_events_that_violates_nothing() -> None:
    trace = sample("ndjson/etcd.ndjson")
    assert (trace.format, trace.kind, len(trace.steps)) == ("ndjson", "none", 9)
    first = trace.steps[1].action
    assert first is not None
    assert first.name == "InitState"
    assert first.parameters["state"] == Function({"term": 0, "vote": "0", "commit": 0})
    assert (trace.steps[1].line, trace.steps[2].line) == (1, 2)


def test_other_tags_of_a_log_are_passed_over_and_floats_are_kept_as_text() -> None:
    text = '{"tag":"info","event":{}}\n{"tag":"trace","event":{"name":"Go","ts":1.25}}\n'
    (trace,) = recognise.read_text(text, "t")
    assert [(step.action.name, dict(step.action.parameters)) for step in trace.steps if step.action] == [
        ("Go", {"name": "Go", "ts": "1.25"})
    ]


def test_ccf_names_an_event_by_action_or_type() -> None:
    text = '{"action":"send_append_entries","type":"raft","n":1}\n{"type":"become_leader"}\n'
    (trace,) = recognise.read_text(text, "t")
    assert [step.action.name for step in trace.steps if step.action] == ["send_append_entries", "become_leader"]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ('{"tag":"trace","event":{"name":"A"}}\n{"x":1}\n', 2, "expected an event"),
        ('{"tag":"trace","event":{"name":"A"}}\n[1]\n', 2, "expected a JSON object"),
        ('{"tag":"trace","event":{"name":"A"}}\n{"tag":\n', 2, "column 8: not JSON"),
        ('{"tag":"info","event":{}}\n{"tag":"info","event":{}}\n', 1, "no event"),
        ('{"racelab-trace": 2, "states": 1}\n{"state": {}}\n', 1, "version 2"),
        ('{"racelab-trace": 1, "states": 3}\n{"state": {"x": 1}}\n', 1, "expected 3 states, found 1"),
        ('{"racelab-trace": 1, "states": 1}\n{"state": 5}\n', 2, "expected a state"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(text: str, line: int, what: str) -> None:
    with pytest.raises(TraceError) as caught:
        recognise.read_text(text, "t.ndjson")
    assert caught.value.line == line
    assert what in caught.value.what

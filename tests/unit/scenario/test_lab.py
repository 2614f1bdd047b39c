"""What of a lab does not go together is said when the scenario is read."""

from __future__ import annotations

import pytest

from racelab import scenario
from racelab.errors import DocumentError
from racelab.scenario.steps import read_aloud

SCALED = """
scenario: scaled
about: the scales are late
lab: {streams: [scales]}
requests:
  r1: {prompt-tokens: 13}
steps:
- hold:
    id: s1
    write: {request: r1, stream: scales}
- hold:
    id: n1
    message: {type: written, stream: kv}
- submit: r1
- release: s1
"""


def test_streams_are_read_and_written_back() -> None:
    made = scenario.loads(SCALED)
    assert made.lab.streams == ("scales",)
    assert read_aloud(made.steps[0]) == "hold s1: 1 write(s) with request r1, stream scales"
    assert scenario.loads(scenario.dump(made)) == made


@pytest.mark.parametrize(
    ("was", "now", "problem"),
    [
        ("[scales]", "[scales, scales]", "each stream once"),
        ("[scales]", "[scale]", "streams"),
        ("[scales]}", "[scales], transfer: pull}", "a pull reads the model's own KV alone"),
        ("[scales]}", "[scales], prefill-token-limit: 9}", "a placeholder is of the model's own KV alone"),
        ("stream: scales", "stream: drafts", "there is no stream 'drafts' in this lab"),
        ("lab: {streams: [scales]}", "lab: {}", r"it needs 'lab: \{streams: \[scales\]\}'"),
        ("lab: {streams: [scales]}", "lab: {}", "leave 'stream' out"),
    ],
)
def test_what_cannot_be_asked_of_a_lab_is_said(was: str, now: str, problem: str) -> None:
    with pytest.raises(DocumentError, match=problem):
        scenario.loads(SCALED.replace(was, now))


LAYERED = """
scenario: layered
about: a layer is late
lab: {send: layer-wise}
requests:
  r1: {prompt-tokens: 13}
steps:
- hold:
    id: f1
    work: {on: prefill, op: forward, layer: 1}
- hold:
    id: n1
    message: {type: written, layer: 0}
- submit: r1
- release: f1
"""


@pytest.mark.parametrize(
    ("was", "now", "problem"),
    [
        ("layer-wise}", "layers}", "send"),
        ("{send: layer-wise}", "{}", "only a lab with 'send: layer-wise' computes and reports layer by layer"),
        ("layer-wise}", "layer-wise, transfer: pull}", "a pull reads a prompt when all of it is computed"),
        ("layer-wise}", "layer-wise, prefill-token-limit: 9}", "a placeholder is sent as a whole"),
    ],
)
def test_what_cannot_be_asked_of_layers_is_said(was: str, now: str, problem: str) -> None:
    made = scenario.loads(LAYERED)
    assert scenario.loads(scenario.dump(made)) == made
    with pytest.raises(DocumentError, match=problem):
        scenario.loads(LAYERED.replace(was, now))


RETRACTED = """
scenario: retracted
about: pages are taken back
lab: {}
requests:
  r1: {prompt-tokens: 13}
steps:
- submit: r1
- retract: r1
"""


@pytest.mark.parametrize(
    ("was", "now", "problem"),
    [
        ("lab: {}", "lab: {transfer: pull}", "a pulled request has its reference once"),
        ("lab: {}", "lab: {router: true}", "decode cannot ask for it again"),
        ("submit: r1", "submit: {request: r1, transfer-id: 7}", "good for one transfer"),
        ("retract: r1", "retract: r9", "no request 'r9'"),
    ],
)
def test_who_cannot_be_retracted_is_said(was: str, now: str, problem: str) -> None:
    made = scenario.loads(RETRACTED)
    assert [read_aloud(step) for step in made.steps] == ["submit r1", "retract r1"]
    assert scenario.loads(scenario.dump(made)) == made
    with pytest.raises(DocumentError, match=problem):
        scenario.loads(RETRACTED.replace(was, now))

"""Steps that act on processes: what a schedule can ask of them, and how it reads."""

from __future__ import annotations

import pytest

from racelab import scenario
from racelab.errors import DocumentError
from racelab.scenario.steps import read_aloud

HEAD = "scenario: s\nabout: a\nrequests: {r1: {prompt-tokens: 13}}\nsteps:\n"


def load(*steps: str) -> scenario.Scenario:
    return scenario.loads(HEAD + "".join(f"  - {step}\n" for step in steps))


def test_they_read_aloud_and_dump_as_they_were_written() -> None:
    loaded = load("stop: prefill", "continue: prefill", "kill: decode", "restart: decode", "stop: prefill")
    aloud = [read_aloud(step) for step in loaded.steps]
    assert aloud == ["stop prefill", "continue prefill", "kill decode", "restart decode", "stop prefill"]
    assert list(loaded.process_faults()) == [
        "stop-prefill",
        "continue-prefill",
        "kill-decode",
        "restart-decode",
        "stop-prefill-2",
    ]
    assert scenario.loads(scenario.dump(loaded)) == loaded


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        (["stop: prefil"], "no process 'prefil'; did you mean 'prefill'?"),
        (["continue: prefill"], "continue: prefill is running, and must be stopped"),
        (["restart: prefill"], "restart: prefill is running, and must be dead"),
        (["kill: decode", "kill: decode"], "decode is dead already"),
        (["kill: decode", "submit: r1"], "decode is dead here: restart it first"),
        (["kill: decode", "unregister: decode"], "unregister: decode is dead, and must be running"),
        (["stop: decode", "stop: decode"], "stop: decode is stopped, and must be running"),
        (
            ["stop: prefill", "hold: {id: w1, write: {request: r1}}"],
            "prefill is stopped here, and takes no hold: it must be armed before that",
        ),
    ],
)
def test_what_cannot_be_asked_is_told_with_its_line(steps: list[str], problem: str) -> None:
    with pytest.raises(DocumentError) as raised:
        load(*steps)
    assert [(each.line, each.what) for each in raised.value.problems] == [(4 + len(steps), problem)]


def test_a_stopped_process_can_be_killed_and_asked() -> None:
    load("stop: decode", "submit: r1", "kill: decode", "restart: decode", "submit: r1")

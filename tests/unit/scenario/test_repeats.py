"""Repetition: what a few lines stand for, and what is refused where."""

from __future__ import annotations

import pytest

from racelab import scenario
from racelab.errors import DocumentError
from racelab.scenario import Request
from racelab.scenario.steps import Await, Submit

GOOD = """\
scenario: repeated
about: Three turns.
requests:
  chat-<n>: {count: 3, prompt-tokens: 40, prefix: topic-<n>, prefix-tokens: 32}
  last: {}
steps:
  - repeat:
      times: 3
      steps:
        - submit: chat-<n>
        - await: {event: finished, request: chat-<n>}
  - submit: last
"""


def test_turns_are_numbered_from_one_in_names_and_sizes() -> None:
    loaded = scenario.loads(GOOD)
    assert list(loaded.requests) == ["chat-1", "chat-2", "chat-3", "last"]
    assert loaded.requests["chat-2"] == Request(prompt_tokens=40, prefix="topic-2", prefix_tokens=32)
    assert loaded.steps[2:4] == [Submit(request="chat-2"), Await(event="finished", request="chat-2")]
    assert loaded.steps[-1] == Submit(request="last")
    assert len(loaded.steps) == 7


def test_what_is_resolved_loads_equal() -> None:
    loaded = scenario.loads(GOOD)
    assert scenario.loads(scenario.dump(loaded)) == loaded


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ("chat-<n>: {count", "chat: {count", 4, "has <n> in its name: 'chat-<n>'"),
        ("count: 3", "count: 0", 4, "count must be a number from 1"),
        ("times: 3", "times: many", 8, "times must be a number from 1"),
        ("times: 3", "times: 4", 10, "no request 'chat-4'"),
        ("      times: 3\n", "", 7, "a repeat has 'times', a number, and 'steps', a list of steps"),
        ("        - submit: chat-<n>\n", "        - sumbit: chat-<n>\n", 10, "did you mean 'submit'?"),
        ("        - submit: chat-<n>\n", "        - repeat: {times: 2, steps: []}\n", 10, "unknown step 'repeat'"),
        ("  last: {}", "  chat-2: {}", 5, "there is a request 'chat-2' already"),
    ],
)
def test_a_mistake_in_a_repeat_is_one_message_at_its_line(old: str, new: str, line: int, what: str) -> None:
    assert old in GOOD
    with pytest.raises(DocumentError) as caught:
        scenario.loads(GOOD.replace(old, new, 1))
    found = [(problem.line, problem.what) for problem in caught.value.problems]
    assert len([where for where, said in found if where == line and what in said]) == 1, found

"""Naming the action of a step: the order of evidence, and two candidates shown."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import traces_by_hand as hand

from racelab.binding.naming import Named, name_steps
from racelab.errors import BindingError
from racelab.traces.trace import Action, Location, Trace

MODULE = """\
---- MODULE Hand ----
Next == \\/ \\E r \\in R : Take(r)
        \\/ \\E w \\in wire : Land(w)
        \\/ Lose \\/ Deliver
====
"""

BY_CHANGES = """\
binding: hand
fits: {modules: [Hand]}
actions:
  Take: {means: submit, request: changed(at), changes: {at: changes}}
  Land: {means: land, request: "'r1'", changes: {free: gains}}
  Lose: {means: lose, request: "'r1'", changes: {free: gains}, when: {act.r: r9}}
  Twin: {means: silent, changes: {free: gains, act: changes}, when: {act.r: [r1, r2]}}
properties: {Safe: isolation}
"""


def with_action(trace: Trace, action: Action) -> Trace:
    first, *rest = trace.steps
    return dataclasses.replace(trace, steps=(first, *(dataclasses.replace(step, action=action) for step in rest)))


def only(named: list[Named]) -> Named:
    (step,) = named
    return step


def test_a_designated_variable_comes_first(tmp_path: Path) -> None:
    trace = with_action(hand.trace("Land r1"), Action(name="Take", args=("r2",)))
    step = only(name_steps(trace, hand.binding(tmp_path)))
    assert (step.rule.name, step.why) == ("Land", "act.name says Land")


def test_then_the_name_in_the_header_with_its_arguments(tmp_path: Path) -> None:
    trace = with_action(hand.trace("What r1"), Action(name="Take", args=("r2",)))
    step = only(name_steps(trace, hand.binding(tmp_path)))
    assert (step.rule.name, step.why) == ("Take", 'the trace says Take("r2")')
    assert step.first(step.rule.request) == "r2"


def test_then_the_source_at_the_location(tmp_path: Path) -> None:
    (tmp_path / "Hand.tla").write_text(MODULE, encoding="utf-8")
    trace = with_action(hand.trace("What r1"), Action(name="Next", location=Location("Hand", 3, 12, 3, 34)))
    step = only(name_steps(trace, hand.binding(tmp_path), tmp_path))
    assert step.rule.name == "Land"
    assert "the source at line 3, col 12 of module Hand" in step.why


def test_source_that_calls_two_actions_is_not_enough(tmp_path: Path) -> None:
    (tmp_path / "Hand.tla").write_text(MODULE, encoding="utf-8")
    trace = with_action(hand.trace("What r1"), Action(name="Next", location=Location("Hand", 4, 12, 4, 26)))
    with pytest.raises(BindingError, match="calls Deliver and Lose"):
        name_steps(trace, hand.binding(tmp_path), tmp_path)


def test_then_the_difference_of_the_states(tmp_path: Path) -> None:
    binding = hand.binding(tmp_path, BY_CHANGES)
    assert only(name_steps(hand.trace("What r1 on 1"), binding)).rule.name == "Take"
    assert only(name_steps(hand.trace("What r3 frees 1"), binding)).rule.name == "Land"


def test_two_candidates_are_both_shown(tmp_path: Path) -> None:
    with pytest.raises(BindingError, match=r"could be Land \(hand.yaml:5\) or Twin \(hand.yaml:7\)") as caught:
        name_steps(hand.trace("What r1 frees 1"), hand.binding(tmp_path, BY_CHANGES))
    assert caught.value.line == 20
    assert "the trace says 'Next'" in caught.value.what


def test_no_candidate_says_what_changed_and_what_was_tried(tmp_path: Path) -> None:
    trace = with_action(hand.trace("What r1"), Action(name="Next", location=Location("Hand", 3, 12, 3, 34)))
    with pytest.raises(BindingError, match=r"no action of binding hand \(changed: act\)") as caught:
        name_steps(trace, hand.binding(tmp_path, BY_CHANGES))
    assert "not given (--source DIR)" in caught.value.what
    assert "--source" in (caught.value.next or "")


def test_a_location_outside_of_the_source_says_so(tmp_path: Path) -> None:
    (tmp_path / "Hand.tla").write_text(MODULE, encoding="utf-8")
    trace = with_action(hand.trace("What r1"), Action(name="Next", location=Location("Hand", 90, 1, 91, 3)))
    with pytest.raises(BindingError, match=r"no such lines in Hand.tla"):
        name_steps(trace, hand.binding(tmp_path), tmp_path)

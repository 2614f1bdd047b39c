"""TLC's output for tools says the same as its plain one."""

from __future__ import annotations

from pathlib import Path

import pytest
from trace_samples import sample, text_of

from racelab.errors import TraceError
from racelab.traces import recognise


def test_the_same_run_in_both_outputs_is_the_same_trace() -> None:
    plain, tool = sample("tlc-text/conservation.txt"), sample("tlc-tool/conservation.txt")
    assert (tool.format, tool.checker) == ("tlc-tool", "TLC 2.15")
    assert (tool.kind, tool.property_name, tool.modules) == (plain.kind, plain.property_name, plain.modules)
    assert [(step.state, step.action) for step in tool.steps] == [(step.state, step.action) for step in plain.steps]


def test_a_lasso_says_where_it_goes_back_to() -> None:
    plain, tool = sample("tlc-text/lasso.txt"), sample("tlc-tool/lasso.txt")
    assert (tool.loop, tool.loop_action) == (1, plain.loop_action)


def test_stuttering_and_a_behaviour_before_a_good_end() -> None:
    stuttering = sample("tlc-tool/error-trace-stuttering.out")
    assert (stuttering.kind, stuttering.stuttering, len(stuttering.steps)) == ("temporal", True, 1)
    went_on = sample("tlc-tool/error-continue.out")  # -continue: TLC says afterwards that it completed
    assert (went_on.property_name, went_on.steps[0].state) == (
        "FooInvariant",
        {"FooVar": frozenset({1, 2}), "BarVar": -1},
    )


def test_sets_of_more_than_one_kind() -> None:
    assert sample("tlc-tool/error-trace.out").steps[2].state == {"FooVar": frozenset({4, True}), "BarVar": 40}


def test_a_state_violating_an_invariant_by_itself() -> None:
    trace = sample("tlc-tool/initial-state.txt")
    assert (trace.property_name, [dict(step.state) for step in trace.steps]) == ("Zero", [{"x": 0, "y": 0}])


def test_coverage_in_between_is_passed_over() -> None:
    trace = sample("tlc-tool/error-trace.out")
    assert [step.action.name for step in trace.steps if step.action] == ["SomeFunc", "SomeFunc"]


def test_windows_line_ends_change_nothing(tmp_path: Path) -> None:
    text = text_of("tlc-tool/lasso.txt")
    (tmp_path / "t").write_bytes(text.replace("\n", "\r\n").encode())
    assert recognise.read(tmp_path / "t").steps == recognise.read_text(text, "t")[0].steps


@pytest.mark.parametrize("name", ["lasso", "conservation"])
def test_a_file_cut_at_any_byte_is_refused_with_its_place(name: str) -> None:
    text = text_of(f"tlc-tool/{name}.txt")
    for length in range(len(text) - 1):
        with pytest.raises(TraceError) as caught:
            recognise.read_text(text[:length], "t.txt")
        assert caught.value.line is not None
        assert caught.value.next


def test_a_state_without_its_number_is_refused() -> None:
    text = text_of("tlc-tool/lasso.txt").replace("2: <A", "<A", 1)
    with pytest.raises(TraceError, match="expected a state's number and action"):
        recognise.read_text(text, "t.txt")

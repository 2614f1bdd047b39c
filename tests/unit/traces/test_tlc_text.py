"""TLC's plain output: every ending, every version, and every way to cut it."""

from __future__ import annotations

import pytest
from trace_samples import sample, text_of

from racelab.errors import TraceError
from racelab.traces import recognise, tlc_text
from racelab.traces.trace import Location, Trace
from racelab.traces.values import Function, ModelValue


def read_one(text: str) -> Trace:
    (trace,) = tlc_text.read(text, "t.txt")
    return trace


def test_a_violated_invariant_with_its_states_actions_and_lines() -> None:
    trace = sample("tlc-text/late.txt")
    assert (trace.checker, trace.kind, trace.property_name) == ("TLC 2.15", "invariant", "LateWrite")
    assert trace.modules[0] == "PDLate"
    assert set(trace.variables) == {"wire", "clock", "free", "notes", "req", "act", "page", "cache"}
    assert [step.action.name if step.action else None for step in trace.steps] == [None, *["LNext"] * 4]
    third = trace.steps[2]
    assert third.action is not None
    assert third.action.location == Location("PDLate", 11, 29, 11, 57)
    assert third.state["clock"] == 0
    assert third.state["free"] == (ModelValue("p1"),)
    assert third.state["act"] == Function({"name": "timeout", "req": "r1"})
    assert text_of("tlc-text/late.txt").splitlines()[third.line - 1].startswith("State 3:")


def test_the_first_state_has_no_action_whatever_its_header_says() -> None:
    header = "State 1: <Init line 8, col 1 to line 9, col 24 of module PDLate>"
    trace = read_one(text_of("tlc-text/late.txt").replace("State 1: <Initial predicate>", header))
    assert trace.steps[0].action is None


def test_arguments_in_headers_since_2023() -> None:
    trace = sample("tlc-text/isolation-2026.txt")
    assert [(step.action.name, step.action.args) for step in trace.steps if step.action] == [
        ("StartTransfer", ("r1",)),
        ("Timeout", ("r1",)),
    ]


def test_every_shape_of_value_is_the_same_in_both_versions() -> None:
    old, new = sample("tlc-text/every-value.txt"), sample("tlc-text/every-value-2026.txt")
    assert [step.state for step in old.steps] == [step.state for step in new.steps]
    assert old.steps[0].state["strf"] == Function({"r-1": 0, "r 2": 0})
    assert old.steps[0].state["f2"] == Function({5: 25, 6: 36, 7: 49})
    assert len(old.steps[0].state["longs"]) == 12  # type: ignore[arg-type]  # a sequence over twelve lines


@pytest.mark.parametrize(
    ("name", "kind", "property_name"),
    [
        ("stuttering", "temporal", None),
        ("stuttering-2026", "temporal", "Drain"),
        ("lasso", "temporal", None),
        ("deadlock", "deadlock", None),
        ("action-property", "action-property", "AP"),
        ("initial-state", "invariant", "Zero"),
        ("simulate", "invariant", "NotTwo"),
    ],
)
def test_what_was_violated(name: str, kind: str, property_name: str | None) -> None:
    trace = sample(f"tlc-text/{name}.txt")
    assert (trace.kind, trace.property_name) == (kind, property_name)


def test_how_a_behaviour_ends() -> None:
    assert sample("tlc-text/stuttering.txt").stuttering
    lasso = sample("tlc-text/lasso.txt")
    assert (lasso.loop, lasso.stuttering, len(lasso.steps)) == (1, False, 3)
    assert lasso.loop_action is not None
    assert lasso.loop_action.name == "B"
    late = sample("tlc-text/late.txt")
    assert (late.loop, late.stuttering) == (None, False)


def test_a_state_violating_an_invariant_by_itself_is_a_behaviour_of_one() -> None:
    trace = sample("tlc-text/initial-state.txt")
    assert [dict(step.state) for step in trace.steps] == [{"x": 0, "y": 0}]


def test_difftrace_leaves_out_what_stays() -> None:
    trace = sample("tlc-text/difftrace.txt")
    assert [dict(step.state) for step in trace.steps] == [{"x": 0, "y": 0}, {"x": 1, "y": 0}, {"x": 2, "y": 0}]


def test_continue_gives_several_behaviours_and_one_variable_has_no_bullet() -> None:
    first, second = tlc_text.read(text_of("tlc-text/continue.txt"), "t.txt")
    assert [first.property_name, second.property_name] == ["NotTwo", "NotThree"]
    assert [step.state["x"] for step in second.steps] == [0, 1, 2, 3]


def test_an_excerpt_without_head_and_tail_is_read() -> None:
    text = text_of("tlc-text/late.txt")
    excerpt = text[text.index("Error: Invariant") : text.index("61 states generated")]
    assert len(read_one(excerpt).steps) == 5
    assert len(read_one(excerpt.rstrip()).steps) == 5


def test_progress_of_another_thread_between_variables_is_passed_over() -> None:
    text = text_of("tlc-text/late.txt")
    told = (
        "Progress(5) at 2026-11-30 19:52:09: 61 states generated, 50 distinct states found, 31 states left on queue.\n"
    )
    disturbed = read_one(text.replace("/\\ clock = 0\n", told + "/\\ clock = 0\n"))
    assert [step.state for step in disturbed.steps] == [step.state for step in read_one(text).steps]


def test_an_output_without_a_violation_says_so() -> None:
    with pytest.raises(TraceError, match="found no error"):
        sample("tlc-text/no-error.txt")


def test_an_output_that_stopped_on_an_error_of_the_model_gives_its_words() -> None:
    with pytest.raises(TraceError, match='Assert evaluated to FALSE; the second argument was: "boom"'):
        sample("tlc-text/assert-fails.txt")


@pytest.mark.parametrize("name", ["late", "stuttering", "lasso", "initial-state", "every-value"])
def test_a_file_cut_at_any_byte_is_refused_with_its_place(name: str) -> None:
    text = text_of(f"tlc-text/{name}.txt")
    lines = text.count("\n") + 1
    for length in range(text.index("Error:"), len(text) - 1):
        with pytest.raises(TraceError) as caught:
            recognise.read_text(text[:length], "t.txt")
        assert caught.value.file == "t.txt"
        assert 1 <= (caught.value.line or 0) <= lines
        assert "expected" in caught.value.what
        assert caught.value.next


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ("State 3: <", "State 4: <", 46, "expected state 3, found state 4"),
        ("/\\ clock = -1\n", "/\\ clock = -1 1\n", 26, "column 15: expected the end of the value"),
        ("/\\ clock = -1\n", "clock = -1\n", 26, "column 1: expected the end of the value"),
        ("/\\ clock = -1\n", "/\\ clock -1\n", 26, "expected '/\\ variable = value'"),
        ("of module PDLate>\n", "of module\n", 35, "expected an action such as"),
    ],
)
def test_a_torn_output_is_refused_where_it_is_torn(old: str, new: str, line: int, what: str) -> None:
    with pytest.raises(TraceError) as caught:
        tlc_text.read(text_of("tlc-text/late.txt").replace(old, new, 1), "t.txt")
    assert caught.value.line == line
    assert caught.value.what.startswith(what)


def test_a_lasso_to_a_state_that_is_not_there_is_refused() -> None:
    text = text_of("tlc-text/lasso.txt").replace("Back to state 2", "Back to state 7")
    with pytest.raises(TraceError, match="goes back to state 7"):
        tlc_text.read(text, "t.txt")


def test_ten_thousand_states_cost_a_hundred_times_what_a_hundred_do() -> None:
    state = (
        'State {0}: <A line 1, col 1 to line 1, col 9 of module M>\n/\\ x = [a |-> <<{0}, "r{0}">>]\n/\\ y = {{}}\n\n'
    )
    text = "Error: Invariant I is violated.\n" + "".join(state.format(number) for number in range(1, 10_001))
    trace = read_one(text)
    assert len(trace.steps) == 10_000
    assert trace.steps[-1].state["x"] == Function({"a": (10_000, "r10000")})

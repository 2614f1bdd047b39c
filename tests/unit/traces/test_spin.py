"""SPIN's text: the actions that a model prints, and its variables where it prints them."""

from __future__ import annotations

import pytest
from trace_samples import sample, text_of

from racelab.errors import TraceError
from racelab.traces import recognise
from racelab.traces.values import Function, ModelValue


def test_printed_actions_are_the_steps() -> None:
    trace = sample("spin/short.txt")
    assert (trace.format, trace.checker, trace.kind, trace.message) == (
        "spin",
        "SPIN",
        "assertion",
        "assertion violated",
    )
    assert trace.modules == ("pd2",)
    assert [(step.action.name, step.action.args, step.action.parameters) for step in trace.steps if step.action] == [
        ("startTransfer", (1,), {"r": 1}),
        ("timeout", (1,), {"r": 1}),
    ]
    assert all(step.state == {} for step in trace.steps)


def test_variables_printed_along_the_way_are_the_states() -> None:
    text = """\
\t\tst[0] = FREE
\t\tst[1] = FREE
\t\tk = 0
      ACT take p=1
\t\tst[0] = FREE
\t\tst[1] = BUSY
spin: m.pml:3, Error: assertion violated
spin: trail ends after 4 steps
1 process created
"""
    (trace,) = recognise.read_text(text, "t.txt")
    free, busy = ModelValue("FREE"), ModelValue("BUSY")
    assert [dict(step.state) for step in trace.steps] == [
        {"st": Function({0: free, 1: free}), "k": 0},
        {"st": Function({0: free, 1: busy}), "k": 0},
    ]


def test_a_cycle_is_a_lasso() -> None:
    text = text_of("spin/short.txt").replace("      ACT timeout", "  <<<<<START OF CYCLE>>>>>\n      ACT timeout")
    (trace,) = recognise.read_text(text, "t.txt")
    assert trace.loop == 1


def test_a_trail_that_names_no_action_says_how_to_name_one() -> None:
    text = "".join(line for line in text_of("spin/short.txt").splitlines(keepends=True) if "ACT" not in line)
    with pytest.raises(TraceError, match="names no action") as caught:
        recognise.read_text(text, "t.txt")
    assert "printf" in (caught.value.next or "")


def test_a_file_cut_at_any_byte_is_refused_with_its_place() -> None:
    text = text_of("spin/short.txt").rstrip()
    for length in range(len(text)):
        with pytest.raises(TraceError) as caught:
            recognise.read_text(text[:length], "t.txt")
        assert caught.value.line is not None


def test_trails_one_after_another_are_read_one_by_one() -> None:
    text = text_of("spin/short.txt")
    (alone,) = recognise.read_text(text, "t.txt")
    first, second = recognise.read_text(text + text + "make: done\n", "t.txt")
    assert [step.action for step in first.steps] == [step.action for step in alone.steps]
    assert [step.state for step in second.steps] == [step.state for step in alone.steps]
    with pytest.raises(TraceError, match="is cut"):
        recognise.read_text(text + text[: text.index("spin: trail ends")], "t.txt")

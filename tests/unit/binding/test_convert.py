"""From a trace to a schedule: what is held, what is awaited, when time passes, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import traces_by_hand as hand

from racelab import scenario
from racelab.binding.convert import Converted, convert
from racelab.errors import BindingError
from racelab.importing import import_counterexample
from racelab.scenario.steps import read_aloud
from racelab.shipped import shipped


def converted(tmp_path: Path, *story: str, pages: int = 2) -> Converted:
    made = convert(hand.trace(*story, pages=pages), hand.binding(tmp_path))
    text = scenario.dump(made.scenario)
    assert scenario.loads(text) == made.scenario
    return made


def schedule(tmp_path: Path, *story: str, pages: int = 2) -> list[str]:
    return [read_aloud(step).rstrip() for step in converted(tmp_path, *story, pages=pages).scenario.steps]


LATE = ("Take r1 on 1", "TimeOut r1 frees 1", "Take r2 on 1", "Land r1")


def test_a_write_that_lands_later_is_held_from_its_post_to_its_landing(tmp_path: Path) -> None:
    assert schedule(tmp_path, *LATE, pages=1) == [
        "hold r1-write: 2 write(s) with request r1",
        "submit r1",
        "await page-private request r1",
        "await held: everything that r1-write asked for",
        "advance the clock by 10,000 ms",
        "await timed-out request r1",
        "await page-free request r1",
        "hold r2-write: 2 write(s) with request r2",
        "submit r2",
        "await page-private request r2",
        "expect that r2 holds a page that r1 held",
        "await held: everything that r2-write asked for",
        "release r1-write",
        "await landed hold r1-write, count 2",
    ]


def test_the_scenario_says_where_it_came_from_and_what_it_expects(tmp_path: Path) -> None:
    made = converted(tmp_path, *LATE, pages=1).scenario
    assert (made.scenario, made.spec, made.guard, made.victim) == ("made", "isolation", "drain-before-free", "r2")
    assert made.origin == scenario.Origin(trace="made.txt", module="Hand", property="Safe", binding="hand")
    assert made.expected == {"eager": "reproduced", "ledger": "prevented"}
    assert (made.lab.decode_pages, scenario.pages_needed(made.lab, made.requests["r1"])) == (1, 1)


def test_what_happens_at_once_needs_no_hold(tmp_path: Path) -> None:
    assert schedule(tmp_path, "Take r1 on 1", "Land r1", "Deliver r1", "Finish r1 frees 1") == [
        "submit r1",
        "await page-private request r1",
        "await completed request r1",
        "await committed request r1",
        "await finished request r1",
        "await page-free request r1",
    ]


def test_silent_steps_in_between_are_no_delay(tmp_path: Path) -> None:
    with_thoughts = schedule(tmp_path, "Take r1 on 1", "Think", "Land r1", "Think", "Deliver r1")
    assert with_thoughts == schedule(tmp_path, "Take r1 on 1", "Land r1", "Deliver r1")


def test_a_late_notification_is_held_as_a_message(tmp_path: Path) -> None:
    assert schedule(tmp_path, "Take r1 on 1", "Land r1", "TimeOut r1 frees 1", "Deliver r1")[0:5] == [
        "hold r1-written: 1 message(s) with type written, request r1",
        "submit r1",
        "await page-private request r1",
        "await completed request r1",
        "await held: everything that r1-written asked for",
    ]


def test_a_late_notification_to_an_ended_request_is_awaited_as_delivered_alone(tmp_path: Path) -> None:
    assert schedule(tmp_path, "Take r1 on 1", "Land r1", "TimeOut r1 frees 1", "Deliver r1")[-2:] == [
        "release r1-written",
        "await delivered hold r1-written",
    ]


def test_a_notification_that_is_late_and_comes_twice_stops_first_and_then_its_copy(tmp_path: Path) -> None:
    story = ("Take r1 on 1", "Land r1", "TimeOut r1 frees 1", "Copy r1", "Take r2 on 1", "Deliver r1")
    steps = schedule(tmp_path, *story, pages=1)
    assert steps[:2] == [
        "hold r1-written: 1 message(s) with type written, request r1",
        "duplicate r1-written-copy: 1 message(s) with type written, request r1",
    ]
    assert [step for step in steps if "r1-written" in step][2:] == [
        "await held: everything that r1-written asked for",
        "release r1-written",
        "await delivered hold r1-written",
        "await held: everything that r1-written-copy asked for",
        "release r1-written-copy",
        "await delivered hold r1-written-copy",
    ]


def test_a_success_that_is_told_before_the_bytes_are_there(tmp_path: Path) -> None:
    steps = schedule(tmp_path, "Take r1 on 1", "Complete r1", "Deliver r1", "Land r1")
    assert steps[0] == "hold r1-write: 2 write(s) with request r1, as early-success"
    assert steps[-5:] == [
        "await held: everything that r1-write asked for",
        "await completed request r1",
        "await committed request r1",
        "release r1-write",
        "await landed hold r1-write, count 2",
    ]


def test_a_success_that_is_told_in_time_is_no_step(tmp_path: Path) -> None:
    with_it = schedule(tmp_path, "Take r1 on 1", "Land r1", "Complete r1", "Deliver r1")
    assert with_it == schedule(tmp_path, "Take r1 on 1", "Land r1", "Deliver r1")


def test_a_write_that_failed_is_lost_and_one_that_lands_after_that_is_a_ghost(tmp_path: Path) -> None:
    lost = schedule(tmp_path, "Take r1 on 1", "Fail r1", "Vanish r1")
    assert lost[0] == "hold r1-write: 2 write(s) with request r1"
    assert lost[-2:] == ["drop r1-write", "await completed request r1"]
    ghost = schedule(tmp_path, "Take r1 on 1", "Fail r1", "Land r1")
    assert ghost[0] == "hold r1-write: 2 write(s) with request r1, as ghost"
    assert ghost[-3:] == ["await completed request r1", "release r1-write", "await landed hold r1-write, count 2"]


def test_a_process_that_restarts_dies_with_what_it_had_posted(tmp_path: Path) -> None:
    assert schedule(tmp_path, "Take r1 on 1", "Restart")[-4:] == [
        "await held: everything that r1-write asked for",
        "kill prefill",
        "drop r1-write",
        "restart prefill",
    ]
    landing = schedule(tmp_path, "Take r1 on 1", "Restart", "Land r1")
    assert landing[-4:] == [
        "kill prefill",
        "restart prefill",
        "release r1-write",
        "await landed hold r1-write, count 2",
    ]


def test_a_lost_notification_is_held_to_be_dropped(tmp_path: Path) -> None:
    steps = schedule(tmp_path, "Take r1 on 1", "Land r1", "Lose r1")
    assert steps[0] == "hold r1-written: 1 message(s) with type written, request r1"
    assert steps[-1] == "drop r1-written"


def test_what_the_trace_never_ends_is_held_if_anything_follows(tmp_path: Path) -> None:
    assert not any(step.startswith("hold") for step in schedule(tmp_path, "Take r1 on 1"))
    assert schedule(tmp_path, "Take r1 on 1", "Abort r1 frees 1")[0] == "hold r1-write: 2 write(s) with request r1"


def test_one_action_may_be_several_steps(tmp_path: Path) -> None:
    assert schedule(tmp_path, "Take r1 on 1", "Both r1") == schedule(tmp_path, "Take r1 on 1", "Land r1", "Deliver r1")


def test_a_second_attempt_is_told_from_the_first(tmp_path: Path) -> None:
    steps = schedule(tmp_path, "Take r1 on 1", "TimeOut r1 frees 1", "Take r1 on 2", "Land r1")
    assert "hold r1-write: 2 write(s) with request r1, attempt 1" in steps
    assert "hold r1-attempt-2-write: 2 write(s) with request r1, attempt 2" in steps
    assert steps[-2:] == ["release r1-write", "await landed hold r1-write, count 2"]


def test_time_outs_fall_due_one_by_one(tmp_path: Path) -> None:
    story = ("Take r1 on 1", "Take r2 on 2", "TimeOut r1 frees 1", "TimeOut r2 frees 2")
    times = [step for step in schedule(tmp_path, *story) if step.startswith(("advance", "submit", "await timed"))]
    assert times == [
        "submit r1",
        "advance the clock by 1,000 ms",
        "submit r2",
        "advance the clock by 9,000 ms",
        "await timed-out request r1",
        "advance the clock by 1,000 ms",
        "await timed-out request r2",
    ]


def test_no_time_passes_between_requests_that_never_time_out(tmp_path: Path) -> None:
    assert not any("clock" in step for step in schedule(tmp_path, "Take r1 on 1", "Take r2 on 2", "Abort r1 frees 1"))


def test_a_client_that_times_out_after_a_younger_one_is_more_patient(tmp_path: Path) -> None:
    made = converted(tmp_path, "Take r1 on 1", "Take r2 on 2", "TimeOut r2 frees 2", "TimeOut r1 frees 1").scenario
    assert {name: request.timeout_ms for name, request in made.requests.items()} == {"r1": 20_000, "r2": None}
    times = [text for text in map(read_aloud, made.steps) if text.startswith(("advance", "submit", "await timed"))]
    assert [text.rstrip() for text in times] == [
        "submit r1",
        "submit r2",
        "advance the clock by 10,000 ms",
        "await timed-out request r2",
        "advance the clock by 10,000 ms",
        "await timed-out request r1",
    ]


def test_a_drain_before_that_of_an_older_page_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BindingError, match="the drain of r2 cannot come before the drain of r1") as caught:
        schedule(tmp_path, "Take r1 on 1", "Take r2 on 2", "TimeOut r1", "TimeOut r2", "Expire r2 frees 2")
    assert caught.value.line == 60


def test_a_request_that_is_over_has_no_time_out(tmp_path: Path) -> None:
    steps = schedule(tmp_path, "Take r1 on 1", "Abort r1 frees 1", "Take r2 on 1", "TimeOut r2 frees 1")
    assert steps[-3:] == [
        "advance the clock by 10,000 ms",
        "await timed-out request r2",
        "await page-free request r2",
    ]


def test_a_drain_that_expires_is_another_advance(tmp_path: Path) -> None:
    made = converted(tmp_path, "Take r1 on 1", "TimeOut r1", "Expire r1 frees 1", "Land r1")
    steps = [read_aloud(step).rstrip() for step in made.scenario.steps]
    assert steps[4:8] == [
        "advance the clock by 10,000 ms",
        "await timed-out request r1",
        "advance the clock by 10,000 ms",
        "await page-free request r1",
    ]
    assert made.scenario.guard == "quarantine-on-expiry"


def test_a_trace_that_no_guard_touches_is_not_expected_to_be_prevented(tmp_path: Path) -> None:
    made = converted(tmp_path, "Take r1 on 1", "Land r1", "Deliver r1").scenario
    assert (made.guard, made.expected["ledger"]) == (None, "not-reproduced")


def test_the_pool_is_so_small_that_a_lifo_allocator_reuses_what_the_model_reuses(tmp_path: Path) -> None:
    fifo = ("Take r1 on 1", "Abort r1 frees 1", "Take r2 on 2", "Abort r2 frees 2", "Take r3 on 1")
    made = converted(tmp_path, *fifo)
    assert made.scenario.lab.decode_pages == 2  # LIFO gives page 1 to r2 and to r3: r3 holds a page that r1 held
    reuse = ("Take r1 on 1", "Take r2 on 2", "Abort r1 frees 1", "Abort r2 frees 2", "Take r3 on 1")
    with pytest.raises(BindingError, match="LIFO"):
        schedule(tmp_path, *reuse)


@pytest.mark.parametrize(
    ("story", "what", "line"),
    [
        (("Land r1",), "land of r1, which no step has submitted", 20),
        (("Take r1 on 1", "Land r1", "Land r1"), "no write of it is in the network", 40),
        (("Take r1 on 1", "Deliver r1"), "no notification of it is in the network", 30),
        (("Take r1 on 1", "Publish r1"), "there is no cache", 30),
        (("Think",), "no step of the trace does anything", 1),
    ],
)
def test_what_has_no_schedule_is_refused_at_its_step(
    story: tuple[str, ...], what: str, line: int, tmp_path: Path
) -> None:
    with pytest.raises(BindingError, match=what) as caught:
        schedule(tmp_path, *story)
    assert caught.value.line == line
    assert caught.value.file == "made.txt"


def test_a_trace_without_a_violation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BindingError, match="found no violation"):
        convert(hand.trace("Take r1 on 1", kind="none", property_name=None), hand.binding(tmp_path))


def test_a_property_that_the_binding_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BindingError, match=r"'Saef'.*did you mean 'Safe'"):
        convert(hand.trace("Take r1 on 1", property_name="Saef"), hand.binding(tmp_path))


def test_a_format_that_does_not_name_the_property_asks_for_no_specification(tmp_path: Path) -> None:
    made = convert(hand.trace(*LATE, pages=1, kind="unknown", property_name=None), hand.binding(tmp_path)).scenario
    assert (made.spec, made.expected) == (None, {"eager": "moved", "ledger": "prevented"})


def test_every_step_is_explained(tmp_path: Path) -> None:
    explained = converted(tmp_path, *LATE, pages=1).explain
    assert [(step.number, step.action) for step in explained] == [
        (2, "Take(r1)"),
        (3, "TimeOut(r1)"),
        (4, "Take(r2)"),
        (5, "Land(r1)"),
    ]
    assert explained[1].why == "act.name says TimeOut"
    assert str(explained[1]).splitlines()[:2] == [
        "state 3: TimeOut(r1), for act.name says TimeOut",
        "    advance the clock by 10,000 ms",
    ]


def test_the_committed_quint_scenario_is_what_an_import_gives() -> None:
    folder = shipped("scenarios", "counterexamples")
    imported = import_counterexample(folder / "late-write-quint.itf.json").scenario
    assert scenario.dump(imported) == (folder / "late-write-quint.yaml").read_text(encoding="utf-8")
    assert imported.spec == "isolation"
    assert imported.origin is not None
    assert imported.origin.binding == "late-write-quint"

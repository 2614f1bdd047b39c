from __future__ import annotations

import io
from typing import Any

import made_by_hand
import pytest
from rich.console import Console

from racelab.evidence.history import History
from racelab.report.story import Story, progress
from racelab.report.words import told as in_words
from racelab.scenario.steps import read_aloud

BOTH = [made_by_hand.eager, made_by_hand.ledger]


def tell(history: History, verdict: dict[str, Any], **options: Any) -> str:
    """What the story prints for a whole run."""
    file = options.pop("file", io.StringIO())
    story = Story(Console(file=file, **options))
    story.begin(history.header.scenario, history.header.policy, history.header.guards)
    for event in history.events:
        story.see(event)
    story.end(verdict)
    file.flush()
    return file.getvalue() if isinstance(file, io.StringIO) else ""


@pytest.mark.parametrize("made", BOTH)
def test_every_step_is_told_in_order_with_its_number_and_time(made: Any) -> None:
    history, verdict = made()
    lines = tell(history, verdict).splitlines()
    at = 0
    for number, step in enumerate(history.header.scenario.steps, 1):
        start = f"{number:>4}  {read_aloud(step)}"
        at = next(index for index in range(at, len(lines)) if lines[index].startswith(start))
        assert " ms" in lines[at] + lines[at + 1]


def test_a_step_says_which_event_let_it_go() -> None:
    told = tell(*made_by_hand.eager())
    line = next(line for line in told.splitlines() if "await timed-out" in line)
    assert "decode: r1 timed out after 10,000 ms" in line


def test_the_race_is_told_beneath_its_steps() -> None:
    told = tell(*made_by_hand.eager())
    for words in (
        "holds 4 writes of r1 to pages 4 and 5 gen 1, 256 KiB",
        "pages 4 and 5 gen 1 of r1: PRIVATE -> FREE (timed out)",
        "pages 4 and 5 gen 2 go to r2",
        "landed: 4 writes of r1 to pages 4 and 5 gen 1, 256 KiB: r2 owns the page now (gen 2)",
        "r2 answers 31, 87, 12, 4",
    ):
        assert words in told
    assert told.index("go to r2") < told.index("r2 owns the page now") < told.index("r2 answers")


def test_pages_taken_for_the_first_time_are_not_told() -> None:
    assert "go to r1" not in tell(*made_by_hand.eager())


def test_a_refusal_names_guard_and_reason_and_the_rest_goes_on() -> None:
    told = tell(*made_by_hand.ledger())
    step = next(line for line in told.splitlines() if line.startswith("   6  await page-free"))
    assert "REFUSED by the guard drain-before-free" in step
    assert "drain-before-free refuses to free pages 4 and 5 gen 1: 2 writes under this grant" in told
    assert told.index("the steps that are left go on") < told.index("the page is DRAINING")


def test_a_step_that_hangs_is_on_the_screen_while_it_hangs() -> None:
    history, _ = made_by_hand.eager()
    file = io.StringIO()
    story = Story(Console(file=file))
    for event in history.events:
        if event.kind == "step-done" and event.data["n"] == 3:
            break
        story.see(event)
    assert file.getvalue().endswith("   3  await held: everything that w1 asked for")


def test_an_await_that_cannot_be_met_says_why() -> None:
    tape = made_by_hand.Tape()
    tape.step("await landed request r1")
    tape.at("conductor", "gave-up", n=1, why="starved", what="the system is at rest without landed r1")
    file = io.StringIO()
    story = Story(Console(file=file))
    for event in tape.events:
        story.see(event)
    assert "gave up, starved: the system is at rest without landed r1" in file.getvalue()


def test_the_end_shows_verdict_specifications_tokens_label_report_and_replay() -> None:
    told = tell(*made_by_hand.eager())
    end = told[told.index("VERDICT") :]
    assert end.startswith("VERDICT reproduced")
    for name, outcome in made_by_hand.eager()[1]["specs"].items():
        assert any(name in line and outcome in line for line in end.splitlines())
    for words in (
        "r1 attempt 1 gen 1",
        "pages 4 and 5",
        "belonged to r2 attempt 1 gen 2",
        " 31 [87][12][ 4]",
        "default-timers",
        "results/runs/late-write-after-timeout/latest/report.html",
        "racelab run late-write-after-timeout --policy eager --seed 7",
    ):
        assert words in end


def test_a_prevented_run_names_guard_and_step_at_the_end() -> None:
    told = tell(*made_by_hand.ledger())
    assert "guard drain-before-free refused step 6" in told[told.index("VERDICT") :]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"expected": "reproduced"}, "expected reproduced: met"),
        ({"expected": "prevented"}, "expected prevented: MISSED (exit 1)"),
        ({"expected": "prevented", "verdict": "diverged"}, "expected prevented: MISSED (exit 3)"),
        (
            {"expected": "prevented", "verdict": "inconclusive", "lab_failure": "bus died"},
            "expected prevented: MISSED (exit 4)",
        ),
    ],
)
def test_the_end_says_whether_the_expectation_was_met(changed: dict[str, Any], said: str) -> None:
    history, verdict = made_by_hand.eager()
    assert said in tell(history, verdict | changed)


def test_without_an_expectation_nothing_is_said_of_one() -> None:
    history, verdict = made_by_hand.eager()
    assert "expected" not in tell(history, verdict | {"expected": None})


def test_reads_are_told_as_reads() -> None:
    tape = made_by_hand.Tape()
    file = io.StringIO()
    story = Story(Console(file=file))
    for page in (0, 1):
        tape.at("wire", "held", request="r1", page=page, gen=1, hold="x1", what=f"d{page}", bytes=65536, op="read")
    for event in tape.events:
        story.see(event)
    story._tell_pending()
    assert "holds 2 reads of r1 into pages 0 and 1 gen 1, 128 KiB" in file.getvalue()


def test_what_happens_to_processes_is_told_in_plain_words() -> None:
    tape = made_by_hand.Tape()
    gone = {"fault": "kill-decode", "peer": "decode", "pid": 41, "status": None}
    idle = tape.at("process", "killed", **gone, idle=True)
    busy = tape.at("process", "killed", **gone, idle=False)
    assert in_words(idle) == "process: decode (process 41) is dead; it had reported all that it did"
    assert in_words(busy) == "process: decode (process 41) is dead; it was at work: what it did last is not known"


def test_off_a_terminal_there_is_no_colour_and_no_box() -> None:
    told = tell(*made_by_hand.eager())
    assert "\x1b" not in told
    assert "╭" not in told


def test_on_a_terminal_the_verdict_stands_in_a_box_and_nothing_is_wider_than_the_screen() -> None:
    told = tell(*made_by_hand.eager(), force_terminal=True, width=100, color_system=None)
    box = told[told.index("╭") : told.index("╯") + 1].splitlines()
    assert all(len(line) <= 100 for line in box)
    assert "REPRODUCED" in box[0]


@pytest.mark.parametrize("width", [60, 80, 100, 160])
@pytest.mark.parametrize("made", BOTH)
def test_no_line_is_wider_than_the_terminal(made: Any, width: int) -> None:
    told = tell(*made(), force_terminal=True, width=width, color_system=None)
    lines = [line for line in told.splitlines() if not line.startswith(("report", "replay"))]
    assert [line for line in lines if len(line) > width] == []


def test_what_is_copied_from_a_terminal_is_on_one_line() -> None:
    lines = tell(*made_by_hand.eager(), force_terminal=True, width=60, color_system=None).splitlines()
    assert lines[-2:] == [
        "report   results/runs/late-write-after-timeout/latest/report.html",
        "replay   racelab run late-write-after-timeout --policy eager --seed 7",
    ]


def test_a_terminal_that_knows_ascii_only_gets_ascii_only() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii")
    tell(*made_by_hand.eager(), file=file, force_terminal=True, width=110)
    assert b"REPRODUCED" in raw.getvalue() or b"reproduced" in raw.getvalue()


def test_names_that_look_like_markup_are_printed_as_they_are() -> None:
    tape = made_by_hand.Tape()
    tape.step("await finished request [bold]r1[/bold]")
    finished = tape.at("decode", "finished", "[red]r1", tokens=[1])
    tape.done("done", finished)
    file = io.StringIO()
    story = Story(Console(file=file))
    for event in tape.events:
        story.see(event)
    assert "[bold]r1[/bold]" in file.getvalue()
    assert "[red]r1 answers 1" in file.getvalue()


def test_progress_shows_nothing_off_a_terminal() -> None:
    file = io.StringIO()
    with progress(2, Console(file=file)) as advance:
        advance("reproduced")
        advance("reproduced")
    assert file.getvalue().strip() == ""


def test_progress_counts_verdicts_on_a_terminal() -> None:
    file = io.StringIO()
    with progress(3, Console(file=file, force_terminal=True, width=120)) as advance:
        for verdict in ("reproduced", "reproduced", "diverged"):
            advance(verdict)
    assert "reproduced 2" in file.getvalue()
    assert "diverged 1" in file.getvalue()

"""What a matrix concludes from its cells, and that every cell is shown."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
from rich.console import Console

from racelab import scenario
from racelab.campaign.command import Asked
from racelab.campaign.controls import CONTROLS, control
from racelab.campaign.matrix import Cell, as_control, conclude, orders
from racelab.lab import cluster
from racelab.report.grid import page, spoilt_controls, table, unexpected
from racelab.scenario import Request, Scenario
from racelab.scenario.steps import Hold, Pass, Release, Submit
from racelab.shipped import shipped
from racelab.surroundings import Here

HELD = dict.fromkeys(("isolation", "integrity", "finality", "conservation"), "held")


def cell(scenario: str, verdict: str, *without: str, expected: str | None = None, guard: str | None = "g1") -> Cell:
    return Cell(
        scenario=scenario,
        guard=guard,
        policy="ledger",
        without=list(without),
        verdict=verdict,
        why=f"it was {verdict}",
        expected=expected,
        agree=True,
        blocked_by="g1" if verdict == "prevented" else None,
        specs=HELD,
        exit_code=0,
    )


def test_a_guard_that_no_scenario_misses_is_untested() -> None:
    matrix = conclude([cell("a", "prevented"), cell("a", "reproduced", "g1"), cell("a", "prevented", "g2")])
    assert matrix.untested == ["g2"]
    assert matrix.redundant == []


def test_a_scenario_that_no_removal_brings_back_is_redundant() -> None:
    cells = [cell("a", "prevented"), cell("a", "prevented", "g1"), cell("b", "prevented"), cell("b", "moved", "g1")]
    matrix = conclude(cells)
    assert matrix.redundant == ["a"]
    assert matrix.untested == []


def test_clean_scenarios_are_not_redundant() -> None:
    clean = [cell("a", "not-reproduced", guard=None), cell("a", "not-reproduced", "g1", guard=None)]
    assert conclude(clean).redundant == []


def test_a_scenario_that_runs_to_its_end_under_every_guard_must_come_back_as_well() -> None:
    assert conclude([cell("a", "not-reproduced"), cell("a", "not-reproduced", "g1")]).redundant == ["a"]


def test_a_control_in_which_something_breaks_is_told_and_spoils_the_exit_code() -> None:
    sound, spoilt = (as_control(cell("c", verdict), "no-fault") for verdict in ("not-reproduced", "reproduced"))
    matrix = conclude([cell("a", "prevented")], [sound, spoilt])
    assert [each.exit_code for each in matrix.controls] == [0, 1]
    assert matrix.exit_code == 1
    assert "c, no-fault (ledger): reproduced; not as expected" in page(matrix, "m")


def test_a_control_of_which_its_scenario_says_that_it_is_not_clean_is_told_all_the_same() -> None:
    excused = as_control(cell("c", "moved", expected="moved"), "armed-but-passing")
    matrix = conclude([cell("a", "prevented")], [excused])
    assert matrix.exit_code == 0
    assert spoilt_controls(matrix) == ["c, armed-but-passing (ledger): moved; as its scenario says"]


def test_the_controls_keep_the_requests_and_lose_what_makes_the_race() -> None:
    race = scenario.load(shipped("scenarios", "late-write-after-timeout.yaml"))
    bare, passing, held = (control(race, kind) for kind in CONTROLS)
    assert [type(step).__name__ for step in bare.steps] == ["Submit", "Await"] * 2
    assert [step.hold for step in held.steps if isinstance(step, Release)] == ["w1", "n1", "n2"]
    assert [step.request for step in held.steps if isinstance(step, Submit)] == ["r1", "r2"]
    assert [step.id for step in passing.steps if isinstance(step, Pass)] == ["w1", "n1", "n2"]
    assert not [step for step in passing.steps if isinstance(step, Hold | Release)]
    assert bare.spec is passing.spec is held.spec is None
    for each in (bare, passing, held):
        assert scenario.loads(scenario.dump(each)) == each


def test_where_no_hold_of_a_scenario_is_reached_its_control_arms_a_gate_for_every_transfer() -> None:
    for name, op in (("cancel-sweep-conservation", None), ("stale-reference-read", "read")):
        passing = control(scenario.load(shipped("scenarios", f"{name}.yaml")), "armed-but-passing")
        armed = [step for step in passing.steps if isinstance(step, Pass)]
        assert armed
        assert {step.write.op for step in armed if step.write is not None} == {op}
        assert scenario.loads(scenario.dump(passing)) == passing


def test_each_policy_then_each_removal() -> None:
    played = Scenario(scenario="s", about="", requests={"r": Request()}, steps=[Submit(request="r")])
    wanted = list(orders([played], ["eager", "ledger"], ["g1", "g2"], seed=3))
    assert [(order.policy, order.without) for order in wanted] == [
        ("eager", ()),
        ("ledger", ()),
        ("ledger", ("g1",)),
        ("ledger", ("g2",)),
    ]
    assert {order.seed for order in wanted} == {3}
    assert len(list(orders([played], ["eager"], ["g1"], seed=0))) == 1


def test_table_and_page_show_every_cell_and_what_was_not_expected() -> None:
    matrix = conclude([cell("<a>", "prevented"), cell("<a>", "inconclusive", "g1", expected="reproduced")])
    html = page(matrix, "m", specs=True)
    for width in (60, 200):
        console = Console(width=width, file=io.StringIO())
        console.print(table(matrix, width, specs=True))
        assert isinstance(console.file, io.StringIO)
        shown = console.file.getvalue()
        for word in ("prevented", "inconclusive", "by g1", "expected reproduced", "✓ isolation"):
            assert word in shown
            assert word in html
        assert "<a>" in shown
    assert "&lt;a&gt;" in html
    assert "<a>" not in html


def test_a_cell_that_is_not_as_expected_says_why() -> None:
    off = msgspec.structs.replace(cell("a", "diverged", "g1", expected="prevented"), exit_code=3)
    torn = msgspec.structs.replace(cell("b", "moved", expected="prevented"), exit_code=1, agree=False)
    assert unexpected(conclude([cell("a", "prevented", expected="prevented"), off, torn])) == [
        "a, ledger less g1: diverged, expected prevented: it was diverged",
        "b, ledger: moved in some runs, expected prevented: it was moved",
    ]


def test_what_is_off_says_what_to_run_to_look_at_it() -> None:
    again = "racelab run a.yaml --policy ledger --runs 60"
    off = msgspec.structs.replace(cell("a", "moved", expected="prevented"), exit_code=1, replay=again)
    matrix = conclude([off, msgspec.structs.replace(cell("b", "prevented"), replay="racelab run b.yaml")])
    assert unexpected(matrix) == [f"a, ledger: moved, expected prevented: it was moved; look at it: {again}"]


def test_a_control_lets_the_news_of_streams_go_one_by_one_and_what_comes_first_before_what_waits_for_it() -> None:
    torn = scenario.load(shipped("scenarios", "draft-kv-left-behind.yaml"))
    for kind in CONTROLS[1:]:
        freed = [step.hold for step in control(torn, kind).steps if isinstance(step, Release)]
        assert freed == [
            *("draft-of-r0", "kv-of-r0"),
            *(["d1"] if kind == CONTROLS[2] else []),
            "draft-of-r1",
            "kv-of-r1",
        ]
    late = scenario.load(shipped("scenarios", "retracted-under-the-same-name.yaml"))
    freed = [step.hold for step in control(late, CONTROLS[2]).steps if isinstance(step, Release)]
    assert freed == ["w2", "n1"]


def test_without_a_name_all_that_ship_and_name_a_guard_are_played(tmp_path: Path) -> None:
    asked = Asked([], [], "reference", "local", 1, 0, tmp_path)
    read = asked.read(Here(asked.system()[0], cluster.load(asked.cluster)))
    assert len(read) > 30
    assert all(each.guard for _, each in read)

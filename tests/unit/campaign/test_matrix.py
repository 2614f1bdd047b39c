"""What a matrix concludes from its cells, and that every cell is shown."""

from __future__ import annotations

import io

from rich.console import Console

from racelab.campaign.matrix import Cell, conclude, orders
from racelab.report.grid import page, table
from racelab.scenario import Request, Scenario, Submit

HELD = dict.fromkeys(("isolation", "integrity", "finality", "conservation"), "held")


def cell(scenario: str, verdict: str, *without: str, expected: str | None = None) -> Cell:
    return Cell(
        scenario=scenario,
        policy="ledger",
        without=list(without),
        verdict=verdict,
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
    assert conclude([cell("a", "not-reproduced"), cell("a", "not-reproduced", "g1")]).redundant == []


def test_each_policy_then_each_removal() -> None:
    scenario = Scenario(scenario="s", about="", requests={"r": Request()}, steps=[Submit(request="r")])
    wanted = list(orders([scenario], ["eager", "ledger"], ["g1", "g2"], seed=3))
    assert [(order.policy, order.without) for order in wanted] == [
        ("eager", ()),
        ("ledger", ()),
        ("ledger", ("g1",)),
        ("ledger", ("g2",)),
    ]
    assert {order.seed for order in wanted} == {3}
    assert len(list(orders([scenario], ["eager"], ["g1"], seed=0))) == 1


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

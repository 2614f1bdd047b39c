"""One counterexample under every policy: which specifications each keeps, and what it keeps back for that.

Without stop evidence a receiver can only choose: to reuse the page, and risk that a late write lands in
it (isolation), or to wait for ever (finality). Quarantine breaks neither, and costs pages.
"""

from __future__ import annotations

from collections.abc import Callable

from racelab.assembly import Order, Workbench
from racelab.campaign.matrix import Cell, Matrix, conclude, run_once
from racelab.report.dilemma import Row, costs
from racelab.scenario import Scenario

SCENARIO = "dilemma.yaml"
"""What is played if no scenario is named."""


def compare(
    bench: Workbench, scenario: Scenario, policies: list[str], seed: int, note: Callable[[Cell], None]
) -> tuple[Matrix, list[Row]]:
    """One run of the scenario under each policy: the cells, and a row of the picture each."""
    cells, rows = [], []
    for policy in policies:
        cell, played = run_once(bench, Order(scenario, policy, seed=seed))
        cells.append(cell)
        rows.append(Row(policy, played.history, dict(cell.specs), costs(played.history)))
        note(cell)
    return conclude(cells), rows

"""The matrix of everything that ships: each scenario is stopped by its guard, each guard is missed by one."""

from __future__ import annotations

from racelab import scenario
from racelab.assembly import Workbench
from racelab.campaign.matrix import fill, orders
from racelab.shipped import shipped


def test_no_guard_is_untested_and_no_scenario_redundant(bench: Workbench) -> None:
    loaded = [scenario.load(path) for path in sorted(shipped("scenarios").glob("*.yaml"))]
    guarded = [each for each in loaded if each.guard is not None]
    policies = bench.target.policies
    matrix = fill(bench, list(orders(guarded, policies, policies["ledger"], seed=0)), runs=1)
    assert matrix.untested == []
    assert matrix.redundant == []
    assert [cell for cell in matrix.cells if cell.expected not in (None, cell.verdict)] == []
    assert matrix.exit_code == 0
    assert {cell.blocked_by for cell in matrix.cells if cell.verdict == "prevented"} == set(policies["ledger"])

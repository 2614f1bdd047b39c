"""A matrix on a real lab: removals that matter are noticed, others are not, and controls are clean.

Every scenario with its own guard taken away is in test_scenarios.py; the whole matrix is `make soak-matrix`.
"""

from __future__ import annotations

from racelab import scenario
from racelab.assembly import Workbench
from racelab.campaign.matrix import controls, fill, orders, playing
from racelab.shipped import shipped

PLAYED = ("late-write-after-drain", "publish-before-complete", "dropped-completion")
REMOVED = ("quarantine-on-expiry", "publish-after-commit", "receive-watchdog", "renew-lease")


def test_each_scenario_misses_its_guard_and_a_guard_that_none_misses_is_named(bench: Workbench) -> None:
    loaded = [scenario.load(shipped("scenarios", f"{name}.yaml")) for name in PLAYED]
    policies = list(bench.target.policies)
    beside = list(controls(loaded, ["eager", "ledger"], seed=0))
    wanted = list(orders(loaded, policies, REMOVED, seed=0))
    matrix = fill(playing(bench, [], runs=1), wanted, beside=beside)
    assert matrix.untested == ["renew-lease"]
    assert matrix.redundant == []
    assert [cell for cell in matrix.cells + matrix.controls if cell.expected != cell.verdict] == []
    assert matrix.exit_code == 0

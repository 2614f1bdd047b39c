"""Labs side by side: every order is played once, wherever there is room, and a lab that dies is named."""

from __future__ import annotations

import os
import signal
from itertools import islice, repeat
from pathlib import Path

import pytest

from racelab import scenario
from racelab.assembly import Order, Workbench
from racelab.errors import PeerDiedError, UsageError
from racelab.lab.cluster import load
from racelab.shipped import shipped
from racelab.side_by_side import LabBeside, labs_beside, play_each

WANTED = scenario.load(shipped("scenarios", "late-write-after-timeout.yaml"))


def test_runs_are_shared_out_and_none_is_lost(bench: Workbench, tmp_path: Path) -> None:
    orders = [Order(WANTED, "eager" if number % 3 else "ledger", seed=number % 2) for number in range(12)]
    bench.play(orders[0])
    before = bench.lab.incarnation
    with labs_beside(1, bench.cluster, bench.target, tmp_path) as beside:
        played = dict(play_each(bench, beside, orders))
        assert sorted(played) == list(range(12))
        for number, order in enumerate(orders):
            header = played[number].history.header
            assert (header.policy, header.seed) == (order.policy, order.seed)
            assert played[number].verdict.verdict == order.expected
        assert 0 < bench.lab.incarnation - before < len(orders), "both labs played"
        _ends_early_with_nothing_owed(bench, beside)
        _dies(bench, beside[0])


def _ends_early_with_nothing_owed(bench: Workbench, beside: list[LabBeside]) -> None:
    runs = play_each(bench, beside, repeat(Order(WANTED, "eager"), 100))
    assert len(list(islice(runs, 2))) == 2
    runs.close()  # type: ignore[attr-defined]
    assert not any(lab.busy for lab in beside)


def _dies(bench: Workbench, lab: LabBeside) -> None:
    os.kill(lab.pid, signal.SIGKILL)
    with pytest.raises(PeerDiedError, match="lab-2 died during a run"):
        list(play_each(bench, [lab], repeat(Order(WANTED, "eager"), 4)))


def test_a_cluster_with_one_machine_has_one_lab(bench: Workbench, tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="softroce has its machine: one lab at a time"),
        labs_beside(1, load("softroce"), bench.target, tmp_path),
    ):
        raise AssertionError("a second lab was started")

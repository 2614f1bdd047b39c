"""SIGKILL of any process at any step: the run ends at once, says who died and when, and the next one works."""

from __future__ import annotations

import os
import signal

import pytest

from racelab import scenario
from racelab.assembly import Order, Workbench
from racelab.evidence.events import Event
from racelab.shipped import shipped

WANTED = scenario.load(shipped("scenarios", "late-write-after-timeout.yaml"))


class Killer:
    """Kills a process of the lab when a step begins."""

    def __init__(self, bench: Workbench, victim: str, step: int) -> None:
        self._pid = bench.lab.pids[victim]
        self._step = step

    def see(self, event: Event) -> None:
        if event.kind == "step" and event.data["n"] == self._step:
            os.kill(self._pid, signal.SIGKILL)


@pytest.mark.parametrize(("victim", "step"), [("prefill", 3), ("decode", 11), ("wire", 12), ("bus", 8), ("broker", 3)])
def test_a_death_is_told_and_got_over(bench: Workbench, victim: str, step: int) -> None:
    killer = Killer(bench, victim, step)
    played = bench.play(Order(WANTED, "eager"), killer.see)
    assert played.failure is not None
    assert played.verdict.verdict == "inconclusive"
    assert played.verdict.exit_code == 4
    died = played.history.by_kind["died"]
    assert len(died) == 1
    assert died[0].data["peer"] == victim
    begun = [event.data["n"] for event in played.history.by_kind["step"]]
    assert f"step {begun[-1]} " in died[0].data["doing"]
    assert begun[-1] in (step, step + 1)
    again = bench.play(Order(WANTED, "eager"))
    assert again.verdict.verdict == "reproduced"

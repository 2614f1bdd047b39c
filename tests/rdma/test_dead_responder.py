"""Decode is killed under a write: refused where its requester would try for ever, seen to its end where it gives up."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_softroce import steps_of

from racelab.assembly import Order, check_mechanisms, open_workbench
from racelab.errors import UsageError
from racelab.lab.cluster import load
from racelab.registry import injectors
from racelab.targets import target
from racelab.vm.machine import Machine

pytestmark = pytest.mark.timeout(600)


def test_a_killed_decode_takes_no_write_and_its_requester_gives_up(softroce: Machine, tmp_path: Path) -> None:
    """Refused with 7 retries, which are for ever; with 3 the counts of the wire still prove the transport."""
    steps = "{kill: decode}, {release: w1}"
    with pytest.raises(UsageError, match=r"rxe_comp\.c"):
        check_mechanisms(steps_of("gone", steps), load("softroce").gates(injectors()))
    with open_workbench(load("softroce-retry-3"), target("reference"), tmp_path) as bench:
        played = bench.play(Order(steps_of("gone", steps), "ledger"))
    assert played.failure is None
    assert played.verdict.verdict == "not-reproduced", played.verdict.why
    held, killed = played.verdict.injections
    assert (held.state, killed.state, killed.achieved["agent_status"]) == ("confirmed", "confirmed", 9), held.why
    assert held.achieved["transport_proven"]
    assert len(played.history.by_kind["unlanded"]) == 2
    assert not [event for event in played.history.by_kind["landed"] if event.request == "r1"]

"""Packets that outlive their requester's patience, over kernel verbs: on two rails they land, one rail is fenced."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_softroce import steps_of, wanted

from racelab.assembly import Order, open_workbench
from racelab.lab.cluster import load
from racelab.targets import target
from racelab.vm.machine import Machine

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize(
    ("name", "verdict"), [("softroce-two-rails", "reproduced"), ("softroce-packets-retry-3", "not-reproduced")]
)
def test_a_ghost_lands_where_its_responder_lives_on(name: str, verdict: str, softroce: Machine, tmp_path: Path) -> None:
    """Its packets are kept, its requester gives up, Mooncake writes again and says success; then they are let go.
    Over two rails the responder's queue pair is still there; on one, connecting anew has ended it."""
    with open_workbench(load(name), target("reference"), tmp_path) as bench:
        played = bench.play(Order(wanted("ghost-write-after-retry"), "ledger"))
        assert played.failure is None
        assert played.verdict.verdict == verdict, played.verdict.why
        assert played.verdict.to_json()["label"] == "shortened: retry_cnt 7 -> 3"
        completed = [event for event in played.history.by_kind["completed"] if event.request == "r1"]
        assert {event.data["status"] for event in completed} == {"ok"}, "Mooncake says that every write landed"
        ghost = next(each for each in played.verdict.injections if each.id == "g1")
        assert (ghost.state, ghost.payload, ghost.stage) == ("confirmed", "at-hold", "on the wire"), ghost.why
        assert bool(ghost.achieved["landed_ms"]) == (verdict == "reproduced")
        assert bool(ghost.achieved["fenced_ms"]) == (verdict == "not-reproduced")
        if verdict == "not-reproduced":
            steps = "{drop: w1}, {await: {event: finished, request: r1}}"  # by what Mooncake sends anew
            lost = bench.play(Order(steps_of("lost", steps), "ledger"))
            assert lost.verdict.verdict == "not-reproduced", lost.verdict.why
            (dropped,) = [each for each in lost.verdict.injections if each.id == "w1"]
            assert (dropped.state, dropped.action) == ("confirmed", "drop"), dropped.why

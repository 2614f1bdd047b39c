"""Processes that die and come again over Mooncake's real RdmaTransport, on the software device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from test_process_steps import DEAD_WRITER, HELD, states, wanted

from racelab.assembly import Order, Workbench, open_workbench
from racelab.doctor import diagnose
from racelab.lab.cluster import load
from racelab.targets import target


@pytest.fixture(scope="module")
def rdma(bench: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    missing = [finding for finding in diagnose(load("softhca")).findings if finding.needed and not finding.here]
    if missing:
        pytest.skip(f"{missing[0].part}: {missing[0].detail}")
    bench.close()
    with open_workbench(load("softhca"), target("reference"), tmp_path_factory.mktemp("logs")) as opened:
        yield opened


def test_a_request_before_the_doorbell_ends_with_its_process(rdma: Workbench) -> None:
    """It never left. Nothing is shown of what has left: on a wire that may land (docs/what-each-fault-does.md)."""
    played = rdma.play(Order(wanted("dead-writer", HELD + DEAD_WRITER), "ledger"))
    assert played.verdict.verdict == "prevented", played.verdict.why
    assert states(played.verdict) == {"w1": "confirmed", "kill-prefill": "confirmed"}
    assert played.history.by_kind["landed"] == []
    dropped = [event for event in played.history.by_kind["dropped"] if event.data["hold"] == "w1"]
    assert {event.data["fenced"] for event in dropped} == {"prefill has ended, and its queue pair with it"}


def test_a_write_lands_in_a_stopped_process(rdma: Workbench) -> None:
    steps = "\n  - stop: decode\n  - release: w1\n  - continue: decode\n  - await: {event: finished, request: r1}"
    played = rdma.play(Order(wanted("asleep", HELD + steps), "ledger"))
    assert played.verdict.verdict == "not-reproduced", played.verdict.why
    (went_on,) = played.history.by_kind["continued"]
    landed = played.history.by_kind["landed"]
    assert landed
    assert all(event.hlc < went_on.hlc for event in landed), "nobody there has to do anything"

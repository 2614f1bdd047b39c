"""Which gates have a place in a cluster, and what a cluster with a machine says of its results."""

from __future__ import annotations

from contextlib import nullcontext

import msgspec
import pytest

from racelab import scenario
from racelab.abilities import check_mechanisms
from racelab.errors import UsageError
from racelab.lab.cluster import load
from racelab.registry import injectors

GATES_OF_WRITES = {
    "local": "wire",
    "softhca": "verbs",
    "softroce": "verbs",
    "softroce-retry-3": "verbs",
    "softroce-packets": "packets",
    "softroce-packets-retry-3": "packets",
    "softroce-two-rails": "packets",
}


@pytest.mark.parametrize(("cluster", "gate"), GATES_OF_WRITES.items())
def test_one_gate_holds_writes(cluster: str, gate: str) -> None:
    found = [each.name for each in load(cluster).gates(injectors()) if each.subject == "write"]
    assert found == [gate]


def test_a_gate_without_a_place_is_refused() -> None:
    elsewhere = msgspec.structs.replace(load("softhca"), write_gate="packets")
    with pytest.raises(UsageError, match="wants its writes held by 'packets'"):
        elsewhere.gates(injectors())


def test_what_needs_a_simulated_device_is_left_out_elsewhere() -> None:
    actions = {
        name: next(each for each in load(name).gates(injectors()) if each.subject == "write").actions
        for name in ("softhca", "softroce")
    }
    assert "ghost" in actions["softhca"]
    assert "ghost" not in actions["softroce"]


def test_what_takes_a_requester_that_gives_up_is_offered_where_one_does() -> None:
    for name, there in (("softroce-packets-retry-3", True), ("softroce-packets", False)):
        gate = next(each for each in load(name).gates(injectors()) if each.subject == "write")
        assert ("ghost" in gate.actions, "drop" in gate.ends) == (there, there)


def test_a_machine_is_named_and_shortened_retries_are() -> None:
    assert "rdma_rxe" in str(load("softroce").machine_in_words)
    assert load("local").machine_in_words is None
    assert load("softroce-retry-3").shortened == ["retry_cnt 7 -> 3"]
    assert load("softroce").shortened == []


@pytest.mark.parametrize(
    ("transfer", "instance", "refused"),
    [("push", "decode", True), ("push", "prefill", False), ("pull", "prefill", True), ("pull", "decode", False)],
)
def test_nobody_waits_for_a_dead_responder_for_ever(transfer: str, instance: str, refused: bool) -> None:
    """With an endless retry_cnt the requester would; with one that ends it hears of it."""
    wanted = scenario.loads(
        "scenario: dead\nabout: A test.\nspec: isolation\n"
        f"lab: {{transfer: {transfer}}}\nrequests: {{r1: {{prompt-tokens: 13}}}}\nsteps:\n  - kill: {instance}\n"
    )
    check_mechanisms(wanted, load("softroce-retry-3").gates(injectors()))
    with pytest.raises(UsageError, match="as for ever") if refused else nullcontext():
        check_mechanisms(wanted, load("softroce").gates(injectors()))

"""Which gates have a place in a cluster, and what a cluster with a machine says of its results."""

from __future__ import annotations

import msgspec
import pytest

from racelab.errors import UsageError
from racelab.lab.cluster import load
from racelab.registry import injectors

GATES_OF_WRITES = {
    "local": "wire",
    "softhca": "verbs",
    "softroce": "verbs",
    "softroce-retry-3": "verbs",
    "softroce-packets": "packets",
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


def test_a_machine_is_named_and_shortened_retries_are() -> None:
    assert "rdma_rxe" in str(load("softroce").machine_in_words)
    assert load("local").machine_in_words is None
    assert load("softroce-retry-3").shortened == ["retry_cnt 7 -> 3"]
    assert load("softroce").shortened == []

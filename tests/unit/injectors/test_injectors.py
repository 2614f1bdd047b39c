from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from injectors import verbs, wire
from racelab import registry
from racelab.gates import Injector
from racelab.scenario.steps import Hold


@pytest.mark.parametrize("name", ["bus", "process", "verbs", "wire"])
def test_an_injector_is_found_by_name_and_says_what_it_can_claim(name: str) -> None:
    (entry,) = entry_points(group="racelab.injectors", name=name)
    injector = entry.load()
    assert isinstance(injector, Injector)
    assert injector.name == name
    assert injector.module == entry.module
    for mechanism in injector.mechanisms.values():
        assert mechanism.bound_ms > 0
        assert mechanism.source


@pytest.mark.parametrize("injector", [wire.INJECTOR, verbs.INJECTOR], ids=lambda injector: injector.name)
def test_the_default_mechanism_of_a_hold_is_one_of_every_gate_of_writes(injector: Injector) -> None:
    assert Hold(id="h").mechanism in injector.mechanisms


@pytest.mark.parametrize("transport", ["tcp", "rdma"])
def test_each_transport_has_one_gate_of_writes_and_one_of_messages(transport: str) -> None:
    serving = [injector for injector in registry.injectors() if injector.serves(transport)]
    assert sorted(injector.subject for injector in serving) == ["message", "process", "write"]

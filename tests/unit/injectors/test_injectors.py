from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from racelab.gates import Injector


@pytest.mark.parametrize("name", ["bus", "wire"])
def test_an_injector_is_found_by_name_and_says_what_it_can_claim(name: str) -> None:
    (entry,) = entry_points(group="racelab.injectors", name=name)
    injector = entry.load()
    assert isinstance(injector, Injector)
    assert injector.name == name
    assert injector.module == entry.module
    for mechanism in injector.mechanisms.values():
        assert mechanism.bound_ms > 0
        assert mechanism.source


def test_the_default_mechanism_of_a_hold_is_one_of_the_wires() -> None:
    from injectors.wire import INJECTOR
    from racelab.scenario import Hold

    assert Hold(id="h").mechanism in INJECTOR.mechanisms

"""Values and configurations in the words of TLA+."""

from __future__ import annotations

import pytest

from racelab.model import tla
from racelab.model.spec.state import DRAIN_BEFORE_FREE, GUARDS, Config, Shape


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "TRUE"),
        (-3, "-3"),
        (None, "Nobody"),
        ('say "r1"', '"say \\"r1\\""'),
        ((1, ("a",)), '<<1, <<"a">>>>'),
        ({(0, 1), (0, 0)}, "{<<0, 0>>, <<0, 1>>}"),
        ({"name": "Land", "ok": False}, '[name |-> "Land", ok |-> FALSE]'),
    ],
)
def test_values(value: object, text: str) -> None:
    assert tla.text(value) == text


def test_what_has_no_form_is_an_error() -> None:
    with pytest.raises(TypeError, match="no form"):
        tla.text(1.5)


def test_a_configuration_names_every_constant() -> None:
    config = Config(2, 3, {"r-1": Shape(2, 1, ("k",))}, guards=frozenset(GUARDS) - {DRAIN_BEFORE_FREE})
    text = tla.configuration(config, "INVARIANT Isolation")
    assert 'Without = {"drain-before-free"}' in text
    assert 'May = {"abort", "overtake", "time-out"}' in text
    assert 'Requests = {"r-1"}' in text
    assert "Needs <- NeedsHere" in text
    assert 'KeysHere == "r-1" :> <<"k">>' in tla.module("M", config)

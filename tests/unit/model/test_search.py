"""The search: nothing to find with all guards, a shortest counterexample without one."""

from __future__ import annotations

import pytest

from racelab.errors import BoundError
from racelab.model.search import search
from racelab.model.spec.actions import take
from racelab.model.spec.invariants import INVARIANTS
from racelab.model.spec.state import ABORT, COPY, FAIL, GUARDS, LOSE, TIME_OUT, Config, Shape, initial

PLAIN = {"r1": Shape(1, 1), "r2": Shape(1, 1)}
SHARED = {"r1": Shape(1, 1, ("k",)), "r2": Shape(1, 1, ("k",))}

SAFE = {
    "two requests, one page": Config(1, 2, PLAIN, faults=frozenset({TIME_OUT, ABORT})),
    "everything goes wrong": Config(1, 1, {"r1": Shape(1, 1)}, faults=frozenset({TIME_OUT, ABORT, LOSE, COPY, FAIL})),
    "two attempts": Config(2, 2, {"r1": Shape(1, 1)}, attempts_max=2, faults=frozenset({TIME_OUT})),
    "pages are evicted": Config(
        1, 2, {"r1": Shape(1, 1, ("k",)), "r2": Shape(1, 1, ("m",))}, faults=frozenset({TIME_OUT})
    ),
}


@pytest.mark.parametrize("config", SAFE.values(), ids=SAFE)
def test_with_all_guards_every_specification_holds_in_every_state(config: Config) -> None:
    searched = search(config)
    assert (searched.violated, searched.steps) == (None, ())
    assert searched.states > 1_000


SHORTEST = [
    ("drain-before-free", "isolation", PLAIN, 7),
    ("drain-before-free", "conservation", PLAIN, 6),
    ("quarantine-on-expiry", "isolation", PLAIN, 8),
    ("control-carries-generation", "isolation", PLAIN, 9),
    ("publish-after-commit", "integrity", SHARED, 2),
]


@pytest.mark.parametrize(("guard", "spec", "shapes", "length"), SHORTEST)
def test_without_a_guard_its_specification_falls(guard: str, spec: str, shapes: dict[str, Shape], length: int) -> None:
    config = Config(2, 2, shapes, guards=frozenset(GUARDS) - {guard}, faults=frozenset({TIME_OUT}))
    searched = search(config, [spec])
    assert (searched.violated, len(searched.steps)) == (spec, length)
    state = initial(config)
    for action in searched.steps:  # the way leads there, and nowhere earlier
        assert INVARIANTS[spec](config, state)
        step = take(config, state, action)
        assert step is not None
        state = step.state
    assert not INVARIANTS[spec](config, state)


def test_a_search_that_grows_too_large_says_so() -> None:
    with pytest.raises(BoundError, match="more than 100 states"):
        search(SAFE["two requests, one page"], states_max=100)

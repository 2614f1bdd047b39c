"""Distributions of delays: which are refused, and that a seed gives the same again."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racelab import delays


@pytest.mark.parametrize(
    ("distribution", "what"),
    [
        ({}, "one distribution of"),
        ({"normal": [5, 1], "constant": 5}, "one distribution of"),
        ({"lognormal": [5, 1]}, "one distribution of"),
        ({"normal": 5}, "takes 2"),
        ({"constant": [5, 1]}, "takes 1"),
        ({"normal": [5, -1]}, "below 0"),
        ({"uniform": [9, 1]}, "least delay"),
    ],
)
def test_what_is_no_distribution_is_said(distribution: delays.Distribution, what: str) -> None:
    assert what in (delays.problem(distribution) or "")


GOOD = st.sampled_from([{"constant": 5}, {"uniform": [1, 9]}, {"normal": [5, 10]}, {"exponential": 0}])


@given(GOOD, st.integers(0, 99))
def test_a_seed_gives_the_same_delays_and_none_is_negative(distribution: delays.Distribution, seed: int) -> None:
    assert delays.problem(distribution) is None
    first, again = (list(islice(delays.draws(distribution, delays.draws_seed(seed, "d1")), 50)) for _ in range(2))
    assert first == again
    assert min(first) >= 0


def test_other_seeds_and_other_steps_draw_other_delays() -> None:
    drawn = {
        tuple(islice(delays.draws({"normal": [5, 1]}, delays.draws_seed(seed, hold)), 5))
        for seed in (0, 1)
        for hold in ("d1", "d2")
    }
    assert len(drawn) == 4


def test_draws_are_spread_as_asked() -> None:
    drawn = list(islice(delays.draws({"normal": [50, 10]}, "seed"), 2000))
    assert 49 < sum(drawn) / len(drawn) < 51
    assert 0.6 < sum(40 < each < 60 for each in drawn) / len(drawn) < 0.76

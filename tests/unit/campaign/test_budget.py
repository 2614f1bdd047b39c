"""The budget of faults: computed from one run, played at both sides of its edge."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from racelab import scenario
from racelab.assembly import Order
from racelab.campaign.budget import NEXT, Budget, budget, exhausting
from racelab.scenario.steps import Submit
from racelab.shipped import shipped

DILEMMA = scenario.load(shipped("scenarios", "dilemma.yaml"))


def history(*kinds: str, quarantined: int = 0) -> Any:
    rest = SimpleNamespace(
        instance="decode", data={"pool": 6, "states": {"FREE": 6 - quarantined, "QUARANTINED": quarantined}}
    )
    ends = {kind: [SimpleNamespace(request=NEXT)] for kind in kinds}
    return SimpleNamespace(
        by_kind={"quiesced": [rest], **{kind: [] for kind in ("finished", "timed-out", "admitted")}, **ends}
    )


class Bench:
    """A pool of six in which the next request is served as long as a page is left."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.played: list[int] = []

    def play(self, order: Order) -> Any:
        faults = len([step for step in order.scenario.steps if isinstance(step, Submit)]) - 1
        self.played.append(faults)
        kinds = ("admitted", "finished") if faults < self.pages else ("timed-out",)
        specs = {"finality": "held", "conservation": "held"}
        return SimpleNamespace(history=history(*kinds), verdict=SimpleNamespace(specs=specs))


def found(pages: int, quarantined: int) -> tuple[Bench, Budget | None]:
    bench = Bench(pages)
    given: Any = bench
    return bench, budget(given, DILEMMA, "ledger", history(quarantined=quarantined), seed=0)


def test_it_is_played_at_both_sides_of_its_edge() -> None:
    bench, edge = found(6, 1)
    assert edge is not None
    assert bench.played == [5, 6]
    assert (edge.faults, edge.served, edge.starved) == (5, True, True)
    assert "After 5 a request of 1 page(s) is served; after 6 it waits until its own time-out ends it" in edge.in_words


def test_what_is_played_and_is_not_as_computed_is_said() -> None:
    _, edge = found(5, 1)
    assert edge is not None
    assert not edge.served
    assert "is NOT served, other than computed" in edge.in_words


def test_a_policy_that_keeps_nothing_back_has_none() -> None:
    bench, edge = found(6, 0)
    assert edge is None
    assert bench.played == []


@pytest.mark.parametrize("starves", [True, False])
def test_what_is_played_is_a_scenario_like_any_other(starves: bool) -> None:
    made = exhausting(DILEMMA, DILEMMA.requests["r1"], 2, 3, starves=starves)
    assert scenario.loads(scenario.dump(made)) == made

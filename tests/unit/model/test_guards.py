"""Each guard by itself: a small system that holds with it, and violates its specification without."""

from __future__ import annotations

from dataclasses import replace

import pytest

from racelab.model.search import search
from racelab.model.spec import state
from racelab.model.spec.state import GUARDS, Config, Shape

ONE = {"r1": Shape(1, 1)}
TWO = {"r1": Shape(1, 1), "r2": Shape(1, 1)}
PUBLISHED = {"r1": Shape(2, 2, ("k",)), "r2": Shape(2, 2, ("k",))}


def system(decode_pages: int, prefill_pages: int, shapes: dict[str, Shape], *words: str, ranks: int = 1) -> Config:
    """A system with these faults and parts."""
    faults, parts = frozenset(words) - set(state.PARTS), frozenset(words) & set(state.PARTS)
    return Config(decode_pages, prefill_pages, shapes, layers=ranks, ranks=ranks, faults=faults, parts=parts)


CASES = {
    "drain-before-free": ("isolation", system(1, 2, TWO, "time-out")),
    "quarantine-on-expiry": ("isolation", system(2, 2, TWO, "time-out")),
    "control-carries-generation": ("isolation", system(1, 2, TWO, "time-out")),
    "publish-after-commit": ("integrity", system(3, 4, PUBLISHED)),
    "stop-posting-on-abort": ("isolation", system(2, 1, TWO, "abort", "post-at-once")),
    "ack-when-drained": ("isolation", system(1, 2, TWO, "abort")),
    "tell-peer-of-end": ("conservation", system(1, 1, ONE, "abort")),
    "commit-when-whole": ("integrity", system(1, 1, ONE, "fail")),
    "lengths-agree": ("integrity", system(1, 1, {"r1": Shape(1, 1, (), too_long=True)})),
    "receive-watchdog": ("finality", system(1, 1, ONE, "lose", "receive-time-out")),
    "check-incarnation": ("finality", system(1, 1, ONE, "restart")),
    "register-before-send": ("finality", system(1, 1, ONE, "late-register")),
    "every-handle-stopped": ("isolation", system(1, 2, TWO, "fail", ranks=2)),
    "bytes-before-commit": ("integrity", system(1, 1, ONE, "answer-early")),
    "local-work-before-grant": ("integrity", system(1, 1, ONE, "late-fill")),
    "compute-before-post": ("integrity", system(1, 1, ONE, "late-forward")),
}


def test_every_guard_of_the_model_has_its_case() -> None:
    assert set(CASES) == set(GUARDS)


@pytest.mark.parametrize("guard", CASES)
def test_the_guard_alone_matters(guard: str) -> None:
    spec, config = CASES[guard]
    assert search(config, [spec]).violated is None
    off = search(replace(config, guards=config.guards - {guard}), [spec])
    assert off.violated == spec
    assert off.steps


def test_an_abort_that_overtakes_its_reserve_leaks_source_pages_until_prefill_gives_up() -> None:
    config = system(1, 1, ONE, "abort", "overtake", "receive-time-out")
    assert search(config, ["conservation"]).violated is None
    kept_in_order = system(1, 1, ONE, "abort")
    assert search(kept_in_order, ["conservation"]).violated is None

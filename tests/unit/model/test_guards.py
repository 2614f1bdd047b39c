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


SAME_ROOM = {"r1": Shape(1, 1, room="t"), "r2": Shape(1, 1, room="t")}


def system(
    decode_pages: int, prefill_pages: int, shapes: dict[str, Shape], *words: str, ranks: int = 1, slots: int = 0
) -> Config:
    """A system with these faults and parts."""
    faults, parts = frozenset(words) - set(state.PARTS), frozenset(words) & set(state.PARTS)
    pages = (decode_pages, prefill_pages)
    return Config(*pages, shapes, layers=ranks, ranks=ranks, slots=slots, faults=faults, parts=parts)


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
    "reference-names-generation": ("isolation", system(1, 1, TWO, "old-reference", "pull")),
    "renew-lease": ("finality", system(2, 1, TWO, "lease", "pull")),
    "slot-carries-owner": ("isolation", system(2, 2, TWO, "abort", slots=1)),
    "unique-transfer-id": ("isolation", system(2, 2, SAME_ROOM, "abort")),
    "remember-ended": ("finality", system(1, 1, ONE, "bootstrap-time-out", "router")),
    "end-frees-pages": ("conservation", system(2, 2, TWO, "abort", "batch")),
    "commit-together": ("integrity", system(1, 1, ONE, "scales", ranks=2)),
    "retry-takes-other-pages": ("isolation", replace(system(1, 2, TWO, "retry"), attempts_max=2)),
    "retraction-renews-attempt": ("integrity", replace(system(2, 1, ONE, "retract", "time-out"), attempts_max=2)),
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


def test_an_abort_that_overtakes_its_reserve_is_remembered_or_source_pages_are_nobodys() -> None:
    config = system(1, 1, ONE, "abort", "overtake")
    assert search(config, ["conservation"]).violated is None
    forgets = replace(config, guards=config.guards - {"remember-ended"})
    assert search(forgets, ["conservation"]).violated == "conservation"


def test_an_id_that_is_used_again_has_its_last_owners_abort_done_to_the_next_where_messages_overtake() -> None:
    config = system(2, 2, SAME_ROOM, "abort")
    assert search(config, ["isolation"]).violated is None
    assert search(replace(config, faults=config.faults | {"overtake"}), ["isolation"]).violated == "isolation"

"""What is not in a history makes no violation, and makes unknown what depends on it.

A lost event: every right history here, less any one event. And what a target does not report, which is not what did
not happen: every right history, less all events of a kind, numbered as a target would that never has them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import histories
import pytest
from duet import Duet, sharing_and_eviction
from msgspec import structs

from checkers import conservation, finality, integrity, isolation
from checkers.ordinary.events import Unread
from racelab.evidence.events import KINDS
from racelab.evidence.gaps import LOOKED_AT
from racelab.evidence.history import History
from racelab.scenario import Lab, Request

CHECKERS = (isolation, integrity, finality, conservation)


@cache
def sharing() -> History:
    """The real engines: shared prefixes and eviction."""
    return sharing_and_eviction()


@cache
def pulling() -> History:
    """The real engines: decode reads the pages itself, by references."""
    duet = Duet({name: Request(prompt_tokens=25) for name in ("r1", "r2")}, Lab(transfer="pull"))
    duet.submit("r1", "r2")
    return duet.history()


def on_paper(name: str) -> Callable[[], History]:
    return lambda: histories.play(getattr(histories, name), histories.LEDGER)


RIGHT = {
    name: on_paper(name) for name in ("STALE_MESSAGE", "LATE_INTO_QUARANTINE", "ABORTED", "LOST_WRITE", "LATE_WRITE")
} | {"sharing": sharing, "pulling": pulling}


@pytest.mark.parametrize("name", RIGHT)
def test_no_event_makes_a_violation_by_being_lost(name: str) -> None:
    right = RIGHT[name]()
    assert {checker.rules(right).outcome for checker in CHECKERS} == {"held"}
    for missing in right.events:
        history = History(right.header, [event for event in right.events if event is not missing])
        said = {checker.SPEC: checker.rules(history) for checker in CHECKERS}
        shown = [finding.what for result in said.values() for finding in result.findings if finding.grade != "exposed"]
        assert shown == [], f"without {missing.instance}:{missing.seq} {missing.kind}"
        if history.lost:
            assert {result.outcome for result in said.values()} == {"unknown"}


OF_THE_LAB = {"run-started", "phase", "step", "step-done", "counted", "armed"}


@pytest.mark.parametrize("name", RIGHT)
def test_what_a_target_does_not_report_is_not_what_did_not_happen(name: str) -> None:
    right = RIGHT[name]()
    for kind in right.by_kind.keys() - OF_THE_LAB:
        silent = structs.replace(right.header, unreported=[kind])
        history = History(silent, histories.renumbered([event for event in right.events if event.kind != kind]))
        assert not history.lost
        for checker in CHECKERS:
            result = checker.rules(history)
            assert [finding for finding in result.findings if finding.grade != "exposed"] == [], kind
            if kind in LOOKED_AT[checker.SPEC]:
                assert result.outcome == "unknown", (checker.SPEC, kind)
                assert f"does not report '{kind}'" in (result.why or "")


def test_the_kinds_that_rules_look_at_are_kinds_that_there_are() -> None:
    assert set().union(*LOOKED_AT.values()) <= KINDS.keys()


def test_what_the_glance_leaves_unread_is_what_no_rule_looks_at() -> None:
    unread = {kind.__struct_config__.tag for kind in Unread}
    assert unread <= KINDS.keys()
    assert not unread & set().union(*LOOKED_AT.values())

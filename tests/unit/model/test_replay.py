"""Histories of real engines are explained to the last event; wrong ones are refused with a reason."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import histories
import pytest
from duet import Duet
from histories import kind

from racelab.engine.guards import GUARDS
from racelab.evidence.history import History
from racelab.model import boundary
from racelab.model.refusal import Refused
from racelab.model.replay import Replay
from racelab.scenario import Lab, Request

PREFIX = {"prefix": "system", "prefix_tokens": 32}


@cache
def sharing(guards: Iterable[str] = tuple(GUARDS)) -> History:
    requests = {
        "r1": Request(prompt_tokens=40, **PREFIX),
        "r2": Request(prompt_tokens=43, **PREFIX),
        "r3": Request(prompt_tokens=90),
    }
    duet = Duet(requests, Lab(prefix_cache=True, decode_pages=7), guards)
    duet.submit("r1", "r2", "r3")
    duet.play()
    duet.submit("r1")
    return duet.history()


@cache
def aborted(guards: Iterable[str] = tuple(GUARDS), *, expires: bool = False) -> History:
    duet = Duet({"r1": Request(prompt_tokens=25), "r2": Request(prompt_tokens=25)}, Lab(), guards)
    duet.wire.held = True
    duet.submit("r1")
    duet.play()
    duet.decode.abort("r1")
    duet.play()
    if expires:
        duet.clock.advance(duet.lab.drain_timeout_ms)
    duet.submit("r2")
    duet.wire.held = False
    duet.play()
    duet.submit("r1")
    return duet.history()


def refusal(history: History) -> Refused:
    refused = Replay(history).run()
    assert refused is not None
    return refused


@pytest.mark.parametrize("guards", [tuple(GUARDS), *(tuple(set(GUARDS) - {guard}) for guard in GUARDS), ()])
def test_what_the_engines_do_is_explained_whatever_their_guards(guards: tuple[str, ...]) -> None:
    for history in (sharing(guards), aborted(guards), aborted(guards, expires=True)):
        replay = Replay(history)
        assert replay.run() is None
        assert replay.accepted == sum(boundary.is_boundary(event.kind) for event in history.events)


def test_a_missing_event_is_the_harness_at_fault() -> None:
    history = sharing()
    gone = next(event for event in history.events if event.kind == "grant-closed")
    refused = refusal(History(history.header, [event for event in history.events if event is not gone]))
    assert refused.gap == "harness gap"
    assert "missing before it" in refused.why


def test_a_message_that_nobody_sent_is_the_harness_at_fault() -> None:
    history = sharing()
    late = kind("sent", "decode", type="complete", request="r1", attempt=1)
    wrong = histories.changed(history, kind("received", type="complete", request="r1"), data={"id": "decode-0-99"})
    refused = refusal(wrong)
    assert (refused.gap, refused.why) == ("harness gap", "no message decode-0-99 has been sent")
    refused = refusal(histories.without(history, late))
    assert (refused.gap, refused.event and refused.event.kind) == ("engine bug", "received")
    assert refused.expected == ("sent of r1/1 (complete, prefill)",)


def test_an_unknown_event_is_a_gap_of_the_specification(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundary, "OBSERVED", {})
    refused = refusal(sharing())
    assert (refused.gap, refused.why) == ("specification gap", "the specification knows no event 'pool'")


def test_a_page_freed_while_it_drains_is_a_bug_of_the_engine() -> None:
    history = aborted()
    draining = kind("page-draining", "decode", page=0)
    wrong = histories.with_extra(history, draining, kind="page-free", data={"from": "DRAINING", "why": "hope"})
    refused = refusal(wrong)
    assert (refused.gap, refused.event and refused.event.kind) == ("engine bug", "page-free")
    assert refused.expected == ("refused of r1/1 page 1 gen 1 (drain-before-free, page-free)",)
    assert "page 0: specified DRAINING gen 1 of r1/1; seen page-free gen 1 of r1/1" in refused.difference
    assert "a grant of it is outstanding" in refused.difference


def test_the_wrong_evidence_is_refused() -> None:
    wrong = histories.changed(aborted(), kind("grant-closed", "decode"), data={"by": "prefill-0-99"})
    assert refusal(wrong).why.startswith("the evidence is prefill-")


def test_an_end_that_comes_too_early_is_told() -> None:
    history = sharing()
    last = next(place for place, event in enumerate(history.events) if event.kind == "admitted")
    refused = refusal(History(history.header, history.events[: last + 1]))
    assert refused.event is None
    assert refused.why == "the history ends, and decode has not reported granted of r1/1 page 0 gen 1 (prefill)"


def test_an_action_that_is_not_enabled_is_named_with_those_that_are() -> None:
    history = sharing()
    wrong = histories.with_extra(history, kind("submitted", request="r1", attempt=1), kind="timed-out", request="r2")
    refused = refusal(wrong)
    assert refused.why == "TimeOut(r2, 1) is not enabled here"
    assert "TimeOut(r1, 1)" in refused.expected
    assert refused.difference == ("r2/1 has not been submitted",)

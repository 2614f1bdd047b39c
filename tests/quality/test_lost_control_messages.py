"""A stop token at the first token and at a page's last slot, under the loss of each control message in turn.

Clients wait for ever here, so whatever is lost only an engine's own limit can end. With all guards
every request ends and every page is accounted for, on both sides; without the watchdog not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from duet import Duet

from checkers import conservation, finality, integrity, isolation
from racelab.engine.guards import GUARDS
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.scenario import Lab, Request
from racelab.transport.messages import Message

FIRST_TOKEN, LAST_SLOT = 0, 3
"""A prompt of 13 tokens and 3 generated ones fill a page of 16 but for its last slot, which the next one takes."""

REQUESTS = {name: Request(prompt_tokens=13, new_tokens=8) for name in ("r1", "r2")}
LAB = Lab(request_timeout_ms=None)
ROUTED = Lab(request_timeout_ms=None, router=True)
WATCHDOG = "receive-watchdog"

CHECKS = {check.__module__: check for check in (conservation.check, finality.check, integrity.check, isolation.check)}


@cache
def alone() -> dict[str, list[int]]:
    duet = Duet(REQUESTS, LAB)
    duet.submit("r1", "r2")
    duet.play()
    return {event.request or "": event.data["tokens"] for event in duet.events if event.kind == "finished"}


def loses(*types: str) -> Callable[[Message], bool]:
    """Messages of r1 of these types never arrive."""
    return lambda message: message.request == "r1" and message.type in types


def served(duet: Duet) -> None:
    duet.submit("r1", "r2")
    duet.play()


def given_up(duet: Duet) -> None:
    """r1's client gives up while its bytes travel."""
    duet.submit("r1", "r2")
    duet.wire.held = True
    duet.play(until=lambda event: event.kind == "posted" and event.request == "r1")
    duet.decode.abort("r1")
    duet.play()
    duet.wire.held = False
    duet.play()


def given_up_at_prefill(duet: Duet) -> None:
    """A router gives r1 up at prefill, before its pages are filled."""
    duet.submit("r1", "r2")
    duet.play(until=lambda event: event.kind == "accepted" and event.request == "r1")
    duet.prefill.abort("r1")
    duet.play()


CASES: dict[str, tuple[Lab, tuple[str, ...], Callable[[Duet], None], bool]] = {
    "reserve": (LAB, ("reserve",), served, True),
    "reserve, with a router": (ROUTED, ("reserve",), served, True),
    "written": (LAB, ("written",), served, True),
    "complete": (LAB, ("complete",), served, True),
    "abort": (LAB, ("abort",), given_up, True),
    "abort-ack": (LAB, ("abort-ack",), given_up, False),
    "failed": (ROUTED, ("failed",), given_up_at_prefill, True),
    "written, and the abort that follows": (LAB, ("written", "abort"), served, True),
    "written, and the acknowledgement that follows": (LAB, ("written", "abort-ack"), served, True),
}
"""By what is lost: the lab, the message types, what happens, and whether nothing but the watchdog ends it."""


def play(case: str, stop: int, without: tuple[str, ...] = ()) -> tuple[Duet, History]:
    lab, lost, happens, _ = CASES[case]
    duet = Duet(REQUESTS, lab, set(GUARDS) - set(without))
    duet.stop_tokens = {name: tokens[stop] for name, tokens in alone().items()}
    duet.lose = loses(*lost)
    happens(duet)
    duet.pass_time(lab.source_hold_ms + lab.drain_timeout_ms)
    return duet, duet.history()


def finished(duet: Duet) -> list[Event]:
    return [event for event in duet.events if event.kind == "finished"]


@pytest.mark.parametrize("stop", [FIRST_TOKEN, LAST_SLOT])
@pytest.mark.parametrize("case", CASES)
def test_with_all_guards_everything_ends_and_is_accounted_for(case: str, stop: int) -> None:
    duet, history = play(case, stop)
    for spec, check in CHECKS.items():
        result = check(history)
        assert result.outcome == "held", (spec, result.why, [finding.what for finding in result.findings])
    assert "r2" in {event.request for event in finished(duet)}
    for event in finished(duet):
        assert event.data["tokens"] == alone()[event.request or ""][: stop + 1]


@pytest.mark.parametrize("stop", [FIRST_TOKEN, LAST_SLOT])
@pytest.mark.parametrize("case", CASES)
def test_without_the_watchdog_it_does_not(case: str, stop: int) -> None:
    _, history = play(case, stop, (WATCHDOG,))
    violated = {spec for spec, check in CHECKS.items() if check(history).outcome == "violated"}
    assert bool(violated) == CASES[case][3]
    assert violated <= {"checkers.finality", "checkers.conservation"}


def test_the_stop_tokens_come_where_they_should() -> None:
    for tokens in alone().values():
        assert len(set(tokens[: LAST_SLOT + 1])) == LAST_SLOT + 1
    (prompt,) = {request.prompt_tokens for request in REQUESTS.values()}
    assert (prompt - 1 + LAST_SLOT) % LAB.page_tokens == LAB.page_tokens - 1

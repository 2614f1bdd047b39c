"""Control messages that changed another attempt's state.

Receipt alone changes nothing. A message of attempt a is a trespass if

- it is a `written` that the receiver neither ignored nor let a guard refuse while another attempt
  of the request was live and a was not: the chunk is then counted for the other attempt;
- what follows its receipt, before the next message, is the end of another attempt of the request;
- it is named as that on whose word another attempt, of this request or another, was committed or ended;
- it is named as stop evidence for a grant of another attempt.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from checkers.ledger_view import Ledger
from racelab.evidence.events import TERMINAL_KINDS, Event
from racelab.evidence.gaps import gaps
from racelab.evidence.history import History
from racelab.evidence.naming import attempt_name, numbers, when_ms
from racelab.evidence.result import Finding

SPEC = "isolation"

_ON_WHOSE_WORD = {"attempt-ended": "ends", "failed": "ends", "committed": "commits"}

_KINDS = ("admitted", "accepted", "attempt-ended", "received", "refused", "ignored", *TERMINAL_KINDS)


@dataclass(slots=True)
class _Side:
    """What one instance knows of attempts, as its events go by."""

    live: dict[str | None, int | None] = field(default_factory=dict)
    latest: Event | None = None
    suspect: str | None = None


def trespasses(history: History) -> list[Finding]:
    """Findings of grade `reached`, one a message."""
    return [_finding(history, *item) for item in _obeyed(history) + _taken_for(history) + _credited(history)]


def _obeyed(history: History) -> list[tuple[Event, Event | None, str]]:
    found: list[tuple[Event, Event | None, str]] = []
    if gaps(history, SPEC) or not _several_attempts(history):  # what refused or ignored it may be lost
        return found
    sides: dict[str, _Side] = defaultdict(_Side)
    real = history.header.scenario.lab.clock == "real"
    for event in history.of(*_KINDS):
        side = sides[event.instance]
        match event.kind:
            case "received":
                _settle(side, found)
                side.latest = event
                side.suspect = _suspicion(side, event)
            case "admitted" | "accepted":
                side.live[event.request] = event.attempt
            case "refused" | "ignored":
                if side.latest is not None and _same_attempt(side.latest, event):
                    side.suspect = None
            case _:
                if _ends_unnamed(event) and side.latest is not None and _obeys(side.latest, event, real):
                    found.append((side.latest, event, f"ends {attempt_name(event.request, event.attempt)}"))
                if side.live.get(event.request) == event.attempt:
                    del side.live[event.request]
    for side in sides.values():
        _settle(side, found)
    return found


def _several_attempts(history: History) -> bool:
    """Whether any request has two: only then is there another attempt whose state could change."""
    attempts = {(event.request, event.attempt) for kind in _KINDS for event in history.by_kind[kind]}
    return len(attempts) > len({request for request, _ in attempts})


def _obeys(message: Event, ended: Event, real_clock: bool) -> bool:
    """Whether an attempt ends because of a message of another one: not if time has passed in between, and a timer
    has ended it. On a real clock time always passes."""
    return _other_attempt(message, ended) and (real_clock or ended.clock_ms == message.clock_ms)


def _settle(side: _Side, found: list[tuple[Event, Event | None, str]]) -> None:
    """The latest message has had its say: nothing cleared it."""
    if side.suspect is not None and side.latest is not None:
        found.append((side.latest, None, side.suspect))
    side.suspect = None


def _suspicion(side: _Side, event: Event) -> str | None:
    live = side.live.get(event.request)
    if event.data["type"] != "written" or live is None or live == event.attempt:
        return None
    return f"is obeyed while {attempt_name(event.request, live)} is live"


def _ends_unnamed(event: Event) -> bool:
    """Whether prefill is done with an attempt and does not say on whose word."""
    return event.kind == "attempt-ended" and "by" not in event.data


def _received(history: History) -> dict[tuple[str, str], Event]:
    return {(event.instance, event.data["id"]): event for event in history.by_kind["received"]}


def _taken_for(history: History) -> list[tuple[Event, Event | None, str]]:
    """Messages on whose word another attempt was committed or ended."""
    received = history.derived(_received)
    found: list[tuple[Event, Event | None, str]] = []
    for kind, what in _ON_WHOSE_WORD.items():
        for event in history.by_kind[kind]:
            message = received.get((event.instance, event.data.get("by") or ""))
            if message is not None and not _same_attempt(message, event):
                found.append((message, event, f"{what} {attempt_name(event.request, event.attempt)}"))
    return found


def _credited(history: History) -> list[tuple[Event, Event | None, str]]:
    received = history.derived(_received)
    found: list[tuple[Event, Event | None, str]] = []
    for closed in history.by_kind["grant-closed"]:
        message = received.get((closed.instance, closed.data["by"]))
        if message is not None and not _same_attempt(message, closed):
            other = attempt_name(closed.request, closed.attempt, closed.gen)
            found.append((message, closed, f"is counted as stop evidence for a grant of {other}"))
    return found


def _same_attempt(a: Event, b: Event) -> bool:
    return (a.request, a.attempt) == (b.request, b.attempt)


def _other_attempt(a: Event, b: Event) -> bool:
    return a.request == b.request and a.attempt != b.attempt


def _finding(history: History, message: Event, effect: Event | None, what: str) -> Finding:
    life = None
    if effect is not None:
        life = history.derived(Ledger).life(effect.instance, effect.page, effect.gen)
    sender = attempt_name(message.request, message.attempt)
    return Finding(
        spec=SPEC,
        grade="reached",
        instance=message.instance,
        page=effect.page if effect is not None else None,
        gen=effect.gen if effect is not None else None,
        owner=life.owner if life is not None else None,
        writer=sender,
        when=when_ms(history, message),
        what=f"message {message.data['type']!r} of {sender} {what}",
        events=numbers(message, effect),
    )

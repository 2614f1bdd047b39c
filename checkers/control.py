"""Control messages that changed another attempt's state.

A message had an effect unless the receiver said that it ignored it or that a guard refused it.
That is a trespass if another attempt of the same request was live by then and nothing of its own
attempt was left, or if it was counted as stop evidence for a grant of another attempt.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from checkers.ledger_view import Ledger
from racelab.evidence.events import TERMINAL_KINDS, Event
from racelab.evidence.history import History
from racelab.evidence.naming import attempt_name, numbers, when_ms
from racelab.evidence.result import Finding

SPEC = "isolation"


@dataclass(slots=True)
class _Side:
    """What one instance knows of attempts, as its events go by."""

    live: dict[str | None, int | None] = field(default_factory=dict)
    ended: set[tuple[str | None, int | None]] = field(default_factory=set)
    pages: dict[tuple[str | None, int | None], int] = field(default_factory=lambda: defaultdict(int))
    latest: Event | None = None


def trespasses(history: History) -> list[Finding]:
    """Findings of grade `reached`, one a message."""
    found = [_finding(history, event, None, what) for event, what in _obeyed(history)]
    received = {(event.instance, event.data["id"]): event for event in history.by_kind["received"]}
    for closed in history.by_kind["grant-closed"]:
        message = received.get((closed.instance, closed.data["by"]))
        if message is not None and (message.request, message.attempt) != (closed.request, closed.attempt):
            other = attempt_name(closed.request, closed.attempt, closed.gen)
            found.append(_finding(history, message, closed, f"is counted as stop evidence for a grant of {other}"))
    return found


def _obeyed(history: History) -> list[tuple[Event, str]]:
    """Messages of an attempt that is over, obeyed while another is live, with what happened."""
    sides: dict[str, _Side] = defaultdict(_Side)
    suspects: dict[tuple[str, int], tuple[Event, str]] = {}
    cleared = _cleared(history)
    kinds = ("admitted", "accepted", "attempt-ended", "page-private", "page-free", "received", "refused")
    for event in history.of(*kinds, *TERMINAL_KINDS):
        side = sides[event.instance]
        attempt = (event.request, event.attempt)
        match event.kind:
            case "admitted" | "accepted":
                side.live[event.request] = event.attempt
            case "page-private":
                side.pages[attempt] += 1
            case "page-free":
                side.pages[attempt] -= 1
            case "received":
                side.latest = event
                what = _trespass(side, event)
                if what is not None and (event.instance, event.data["id"]) not in cleared:
                    suspects[event.instance, event.seq] = (event, what)
            case "refused":
                latest = side.latest
                if latest is not None and (latest.request, latest.attempt) == attempt:
                    suspects.pop((latest.instance, latest.seq), None)
            case _:
                side.ended.add(attempt)
    return list(suspects.values())


def _trespass(side: _Side, event: Event) -> str | None:
    live = side.live.get(event.request)
    if live is None or live == event.attempt or (event.request, live) in side.ended:
        return None
    if side.pages[event.request, event.attempt] > 0:
        return None  # its own pages still drain
    if event.attempt is not None and event.attempt > live:
        return None  # the next attempt announces itself
    return f"is obeyed while {attempt_name(event.request, live)} is live"


def _cleared(history: History) -> set[tuple[str, str]]:
    """Messages that the receiver ignored, or counted for their own attempt's grants."""
    cleared = {(event.instance, event.data["id"]) for event in history.by_kind["ignored"]}
    cleared |= {(event.instance, event.data["by"]) for event in history.by_kind["grant-closed"]}
    return cleared


def _finding(history: History, message: Event, effect: Event | None, what: str) -> Finding:
    ledger = history.derived(Ledger)
    life = ledger.life(effect.instance, effect.page, effect.gen) if effect is not None else None
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

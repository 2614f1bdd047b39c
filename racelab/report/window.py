"""Which events a diagram draws: those that people follow, around the evidence when there are many."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.report.form import Form
from racelab.report.words import CLIENT

_EVERYWHERE = frozenset(
    {"step", "step-done", "blocked", "gave-up", "died", "phase"}
    | {"submitted", "queued", "accepted", "attempt-ended", "sent", "received", "ignored"}
    | {"posted", "completed", "held", "released", "landed", "torn", "delivered", "dropped", "unlanded"}
    | {"withheld", "told"}
    | {"refused", "committed", "read", "finished", "timed-out", "aborted", "failed", "retracted", "requeued"}
)
_RECEIVER_ONLY = frozenset(
    {
        "page-private",
        "page-shared",
        "page-dup",
        "cache-hit",
        "page-draining",
        "page-quarantined",
        "page-free",
        "grant-closed",
    }
)
_TURNING = frozenset({"refused", "blocked", "gave-up", "died"})


class Window(NamedTuple):
    """The drawn events in causal order; `note` says what was left out, None if nothing was."""

    events: list[Event]
    receiver: str | None
    evidence: frozenset[str]
    note: str | None


def name(event: Event) -> str:
    """`decode:17`: how evidence names an event."""
    return f"{event.instance}:{event.seq}"


def evidence_names(verdict: dict[str, Any]) -> frozenset[str]:
    """Every event that the verdict's findings name."""
    return frozenset(str(place) for finding in verdict.get("evidence", []) for place in finding.get("events") or [])


def choose(history: History, verdict: dict[str, Any], form: Form) -> Window:
    """The events to draw. What comes after the drain, and what is far from the evidence, is left out and said."""
    receiver = next((event.instance for event in history.of("granted", "admitted", "submitted")), None)
    evidence = evidence_names(verdict)
    blocked = {event.data["n"] for event in history.of("blocked")}
    all_drawn = [
        event
        for event in history.events
        if _followed(event, receiver, form) and not (event.kind == "step-done" and event.data["n"] in blocked)
    ]
    drawn = _before_phase(all_drawn, evidence, form.until)
    if form.ends_with_victim:
        drawn = _until_answer(drawn, history.header.scenario.victim)
    notes = []
    if len(drawn) < len(all_drawn):
        notes.append(f"Drawn until the drain: the probe request that follows it ({len(all_drawn) - len(drawn)} events)")
    if len(drawn) > form.events_max:
        start, end = _around(drawn, evidence, form.events_max)
        notes = [f"Drawn: {end - start} of {len(all_drawn):,} events, those around the evidence; the rest"]
        drawn = drawn[start:end]
    note = f"{notes[0]} is in the list of events below." if notes else None
    return Window(drawn, receiver, evidence, note)


def _followed(event: Event, receiver: str | None, form: Form) -> bool:
    if event.kind in form.skip:
        return False
    if event.kind in _RECEIVER_ONLY:
        return event.instance == receiver
    return event.kind in _EVERYWHERE and event.data.get("phase") != "schedule"


def _before_phase(drawn: list[Event], evidence: Iterable[str], phase: str) -> list[Event]:
    wanted = set(evidence)
    for index, event in enumerate(drawn):
        if event.kind == "phase" and event.data.get("phase") == phase:
            rest = drawn[index:]
            told = any(name(other) in wanted or other.kind in ("gave-up", "died") for other in rest)
            return drawn if told else drawn[:index]
    return drawn


def _until_answer(drawn: list[Event], victim: str | None) -> list[Event]:
    """Until the victim has answered and the client has heard it."""
    answered = [index for index, event in enumerate(drawn) if event.kind == "finished" and event.request == victim]
    if not answered:
        return drawn
    heard = (index for index in range(answered[-1], len(drawn)) if drawn[index].instance == CLIENT)
    return drawn[: next(heard, answered[-1]) + 1]


def _around(drawn: list[Event], evidence: frozenset[str], drawn_max: int) -> tuple[int, int]:
    """A slice of at most `drawn_max` events around the first piece of evidence, or at the end."""
    told = [index for index, event in enumerate(drawn) if name(event) in evidence]
    told = told or [index for index, event in enumerate(drawn) if event.kind in _TURNING]
    if not told:
        return len(drawn) - drawn_max, len(drawn)
    last = next((index for index in reversed(told) if index - told[0] < drawn_max), told[0])
    spare = drawn_max - (last - told[0] + 1)
    start = min(max(told[0] - spare * 2 // 3, 0), len(drawn) - drawn_max)
    return start, start + drawn_max

"""Metadata slots that held another attempt's word: isolation of what is written beside the KV.

A slot is an attempt's from `slot-taken` to `slot-freed`, and what it holds carries the name of its owner. An attempt
that takes its first token from what was written for another has consumed it. A write that lands after its attempt gave
the slot back could have that effect and has it only if somebody believes it: by itself it is `exposed`.
"""

from __future__ import annotations

from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.naming import attempt_name, numbers, when_ms
from racelab.evidence.result import Finding
from racelab.evidence.writes import Write, Writes

SPEC = "isolation"


def slot_trespasses(history: History) -> list[Finding]:
    """Reads of what is another's, then landings after the end."""
    if not history.by_kind["slot-region"]:
        return []
    late = [(write, freed) for write in history.derived(Writes).slots if (freed := _ended_before(history, write))]
    return [_read(history, event, late) for event in history.by_kind["slot-read"] if _is_foreign(event)] + [
        _landing(history, write, freed) for write, freed in late
    ]


def _is_foreign(event: Event) -> bool:
    return (event.data["owner"], event.data["owner_attempt"]) != (event.request, event.attempt)


def _ended_before(history: History, write: Write) -> Event | None:
    """Where the attempt gave the slot back, if the write landed after that."""
    posted = write.posted
    if write.fate != "landed":
        return None
    for freed in history.by_kind["slot-freed"]:
        same = (freed.request, freed.attempt, freed.data["slot"]) == (
            posted.request,
            posted.attempt,
            posted.data["slot"],
        )
        if same and write.landing_after(freed, history.causality):
            return freed
    return None


def _read(history: History, event: Event, late: list[tuple[Write, Event]]) -> Finding:
    owner, attempt = event.data["owner"], event.data["owner_attempt"]
    held = f"what was written for {attempt_name(owner, attempt)}" if owner is not None else "nothing"
    by = next(
        (write for write, _ in late if (write.posted.request, write.posted.attempt) == (owner, attempt)),
        None,
    )
    reader, slot = attempt_name(event.request, event.attempt), event.data["slot"]
    return Finding(
        spec=SPEC,
        grade="consumed",
        instance=event.instance,
        owner=reader,
        writer=attempt_name(owner, attempt) if owner is not None else None,
        when=when_ms(history, event),
        what=f"{reader} takes its first token from slot {slot}, which holds {held}",
        events=numbers(by.posted if by is not None else None, event),
    )


def _landing(history: History, write: Write, freed: Event) -> Finding:
    posted = write.posted
    writer = attempt_name(posted.request, posted.attempt)
    taken = [
        event
        for event in history.by_kind["slot-taken"]
        if event.data["slot"] == posted.data["slot"] and not write.landing_before(event, history.causality)
    ]
    whose = f"; it belongs to {attempt_name(taken[-1].request, taken[-1].attempt)}" if taken else ""
    return Finding(
        spec=SPEC,
        grade="exposed",
        instance=freed.instance,
        owner=attempt_name(taken[-1].request, taken[-1].attempt) if taken else None,
        writer=writer,
        when=when_ms(history, (write.uppers or [write.lower])[0]),
        what=f"metadata of {writer} landed in slot {posted.data['slot']} after it had been given back{whose}",
        events=numbers(posted, freed, write.released, *write.uppers[:1]),
    )

"""What is said of the first event that no action explains: where, why, what was possible, what differs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from racelab.evidence.events import Event
from racelab.model.spec.state import DECODE, PREFILL, Config, Effect, State, Ticket

Gap = Literal["specification gap", "harness gap", "engine bug"]
"""What a refusal means: the specification does not know of it, the record is at fault, or the engine is."""

TOLD_ELSEWHERE = ("tickets", "pages", "sources")


@dataclass(frozen=True)
class Refused:
    """The first event that no action explains; `event` is None at the end of the history.

    `expected` is what would have been accepted: the effect that is due, or the enabled actions.
    `difference` is the part of the state that contradicts the event.
    """

    event: Event | None
    gap: Gap
    why: str
    expected: tuple[str, ...]
    difference: tuple[str, ...]


class Refusal(Exception):
    """Raised where an event is looked at; a replay makes a Refused of it."""

    def __init__(self, gap: Gap, why: str) -> None:
        super().__init__(why)
        self.gap: Gap = gap
        self.why = why


def say(effect: Effect) -> str:
    """An effect in one line."""
    page = f" page {effect.page} gen {effect.gen}" if effect.page is not None else ""
    detail = f" ({', '.join(_plain(part) for part in effect.detail)})" if effect.detail else ""
    return f"{effect.kind} of {effect.request}/{effect.attempt}{page}{detail}"


def difference_of(config: Config, state: State, event: Event) -> tuple[str, ...]:
    """What the state says of the page and the attempt that the event is about."""
    return (*_of_page(state, event), *_of_attempt(config, state, event))


def _of_page(state: State, event: Event) -> list[str]:
    if event.page is None or event.instance not in (DECODE, PREFILL) or event.kind == "posted":
        return []
    side = state.decode if event.instance == DECODE else state.prefill
    if not 0 <= event.page < len(side.pages):
        return [f"there is no page {event.page}: the pool has {len(side.pages)}"]
    page = side.pages[event.page]
    holder = f" of {page.request}/{page.attempt}" if page.request else ""
    seen = f"gen {event.gen} of {event.request}/{event.attempt}"
    lines = [f"page {event.page}: specified {page.state} gen {page.gen}{holder}; seen {event.kind} {seen}"]
    seen_as = Ticket(event.page, event.gen or 0, event.request or "", event.attempt or 0)
    if any(ticket == seen_as for ticket, _ in side.grants):
        lines.append("a grant of it is outstanding")
    return lines


def _of_attempt(config: Config, state: State, event: Event) -> list[str]:
    place = config.place.get(event.request or "")
    if place is None:
        return [f"no request {event.request} was ever submitted"] if event.request else []
    number = event.attempt or 0
    lines = []
    for where, row in ((DECODE, state.attempts[place]), (PREFILL, state.jobs[place])):
        if not 0 < number <= len(row):
            return [f"{event.request}/{number} has not been submitted"]
        known = {key: value for key, value in row[number - 1]._asdict().items() if key not in TOLD_ELSEWHERE}
        told = ", ".join(f"{key} {_plain(value)}" for key, value in known.items())
        lines.append(f"{event.request}/{number} on {where}: {told}")
    return lines


def _plain(value: object) -> str:
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(map(str, value))) + "}"
    return str(value)


__all__ = ["Gap", "Refusal", "Refused", "difference_of", "say"]

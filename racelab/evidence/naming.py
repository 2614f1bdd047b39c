"""How findings and certificates name an event, an owner and a moment."""

from __future__ import annotations

from racelab.evidence.clock import wall_us
from racelab.evidence.events import Event
from racelab.evidence.history import History


def number(event: Event) -> str:
    """`decode:12`: where the event stands in the history."""
    return f"{event.instance}:{event.seq}"


def numbers(*events: Event | None) -> list[str]:
    """The numbers of those that are there."""
    return [number(event) for event in events if event is not None]


def attempt_name(request: str | None, attempt: int | None, gen: int | None = None) -> str:
    """`r2 attempt 1 gen 2`, as the `owner` and `writer` of the evidence list read."""
    name = request if request is not None else "nobody"
    if attempt is not None:
        name += f" attempt {attempt}"
    return f"{name} gen {gen}" if gen is not None else name


def start_us(history: History) -> int:
    """Wall-clock microseconds at `run-started`, or at the first event of a history without one."""
    started = history.by_kind["run-started"] or history.events[:1]
    return wall_us(started[0].hlc) if started else 0


def when_ms(history: History, event: Event | None) -> float | None:
    """Milliseconds from the start of the run to this event."""
    if event is None:
        return None
    return round((wall_us(event.hlc) - history.derived(start_us)) / 1000, 3)

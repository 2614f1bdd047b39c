"""Whether the record itself is whole: numbers without gaps, and causes before their effects."""

from __future__ import annotations

from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.model.refusal import Refusal


class Numbers:
    """Each instance's events are numbered without gaps, and nobody has heard of what is yet to come."""

    def __init__(self, history: History) -> None:
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}
        for event in history.events:
            known = self._first.get(event.instance)
            if known is None or event.seq < known:
                self._first[event.instance] = event.seq

    def check(self, event: Event) -> None:
        """Look at the next event.

        Raises:
            Refusal: its number, or what it had heard of, does not fit those before it.
        """
        last = self._last.get(event.instance)
        if last is None:
            last = self._first[event.instance] - 1
        if event.seq != last + 1:
            what = "repeated or out of order" if event.seq <= last else f"{event.seq - last - 1} missing before it"
            raise Refusal("harness gap", f"event {event.seq} of {event.instance}: {what}")
        self._last[event.instance] = event.seq
        for other, seq in event.after.items():
            if seq > self._last.get(other, seq) or (
                other in self._first and other not in self._last and seq >= self._first[other]
            ):
                raise Refusal("harness gap", f"it had heard of event {seq} of {other}, which comes later or is missing")


__all__ = ["Numbers"]

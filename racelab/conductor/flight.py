"""What is on its way: messages and writes that will still cause something without any help.

A thing that a gate holds is not on its way until it is released. When nothing is on its way and no
instance has work of its own, the system is at rest: nothing will ever happen again unasked. That is
how a wait learns, without a clock, that its event cannot come. Events of different processes reach
the conductor in any order, so each thing keeps what is known of it rather than a state.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from racelab.evidence.events import Event

_STARTS = frozenset({"sent", "posted"})
_ENDS = frozenset({"received", "completed"})
_STOPS = frozenset({"held"})
_GOES_ON = frozenset({"released"})
_ARRIVES = frozenset({"landed", "torn", "unlanded", "dropped", "delivered"})
_NEWS = frozenset({"withheld", "told"})
_WATCHED = _STARTS | _ENDS | _STOPS | _GOES_ON | _ARRIVES | _NEWS


class Flight:
    """Feed it every event; `under_way` is what is still moving."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = defaultdict(set)
        self._received: Counter[str] = Counter()
        self._copies: Counter[str] = Counter()
        self.under_way: set[str] = set()

    def see(self, event: Event) -> None:
        """Take note of an event."""
        if event.kind not in _WATCHED or _goes_on_in_the_transport(event):
            return
        if event.kind == "delivered" and "of" in event.data:
            self._copies[event.data["of"]] += 1
        for thing in _things(event):
            known = self._known[thing]
            known.add(event.kind)
            self._received[thing] += event.kind == "received"
            if _moves(known) or self._copy_moves(thing):
                self.under_way.add(thing)
            else:
                self.under_way.discard(thing)

    def _copy_moves(self, thing: str) -> bool:
        """Whether a copy of a message has left its gate and has not been received beside the message itself."""
        copies = self._copies[thing]
        return bool(copies) and self._received[thing] <= copies


def _goes_on_in_the_transport(event: Event) -> bool:
    """A ghost, say: its sender has been told something, and acts on it, while the thing itself is held."""
    return event.kind == "held" and "action" in event.data


def _things(event: Event) -> list[str]:
    match event.kind:
        case "posted":
            return [event.data["write"]]
        case "completed":
            return list(event.data["writes"])
        case "sent" | "received":
            return [event.data["id"]]
        case "delivered" if "of" in event.data:
            return [event.data["what"], event.data["of"]]
        case _:
            return [event.data["what"]]


def _moves(known: set[str]) -> bool:
    if "withheld" in known and "told" not in known:
        return False
    if known & _STOPS and not known & (_GOES_ON | _ARRIVES):
        return False
    if known & _GOES_ON and not known & _ARRIVES:
        return True
    if "sent" in known:
        return "received" not in known and "dropped" not in known
    return "posted" in known and "completed" not in known

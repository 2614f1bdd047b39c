"""What is on its way: messages and writes that will still cause something without any help.

A thing that a gate holds is not on its way until it is released, nor is one that a stopped process
would have to take or to send. When nothing is on its way and no instance has work of its own, the
system is at rest: nothing will ever happen again unasked. That is how a wait learns, without a
clock, that its event cannot come. Events of different processes reach the conductor in any order,
so each thing keeps what is known of it rather than a state.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from racelab.evidence.events import Event

_STARTS = frozenset({"sent", "posted"})
_ENDS = frozenset({"received", "completed"})
_STOPS = frozenset({"held", "work-held"})
_GOES_ON = frozenset({"released", "work-released"})
_ARRIVES = frozenset({"landed", "torn", "unlanded", "dropped", "delivered", "work-done"})
_TELLS_NOBODY = "half-open"
_NEWS = frozenset({"withheld", "told"})
_WATCHED = _STARTS | _ENDS | _STOPS | _GOES_ON | _ARRIVES | _NEWS


class Way(NamedTuple):
    """From where to where a thing goes; a write's landing needs nobody there where access is one-sided."""

    sender: str
    to: str
    is_write: bool


class Flight:
    """Feed it every event; `under_way` is what is still moving."""

    def __init__(self, *, one_sided: bool = False) -> None:
        self.one_sided = one_sided
        self._known: dict[str, set[str]] = defaultdict(set)
        self._received: Counter[str] = Counter()
        self._copies: Counter[str] = Counter()
        self._ways: dict[str, Way] = {}
        self._moving: set[str] = set()
        self._stopped: dict[str, set[str]] = {}
        """by stopped process, what was moving before it stopped: that may have reached it"""
        self._dead: set[str] = set()

    @property
    def under_way(self) -> set[str]:
        """What moves by itself."""
        if not self._stopped and not self._dead:
            return self._moving
        return {thing for thing in self._moving if not self._waits(thing)}

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
            if event.kind in _STARTS:
                self._ways[thing] = _way(event)
            if _moves(known) or self._copy_moves(thing):
                self._moving.add(thing)
            else:
                self._moving.discard(thing)

    def about(self, instance: str) -> bool:
        """Whether anything is under way that an instance is to take, or is to hear the end of."""
        ways = (self._ways.get(thing) for thing in self.under_way)
        return any(way is None or (way.sender if way.is_write else way.to) == instance for way in ways)

    # -- processes that are not there

    def stop(self, instance: str) -> None:
        """A process stands still. What moves now may have reached it already, and counts as moving."""
        self._stopped[instance] = set(self._moving)

    def go_on(self, instance: str) -> None:
        """It takes and sends again."""
        self._stopped.pop(instance, None)

    def end(self, instance: str) -> None:
        """It is dead. Writes to it still fail; what it was to take or to finish ends with it."""
        self.go_on(instance)
        self._dead.add(instance)
        self._forget(instance)

    def replace(self, instance: str) -> None:
        """Another has taken its place, and will not hear of what was sent to the dead one."""
        self._forget(instance)
        self._dead.discard(instance)

    def _forget(self, instance: str) -> None:
        for thing, way in self._ways.items():
            if way.sender == instance if way.is_write else way.to == instance:
                known = self._known[thing]
                known |= _ENDS
                if not _moves(known):
                    self._moving.discard(thing)

    def _waits(self, thing: str) -> bool:
        """Whether it needs a process that is not there."""
        way = self._ways.get(thing)
        if way is None:
            return False
        if way.to in self._stopped and thing not in self._stopped[way.to] and not (way.is_write and self.one_sided):
            return True
        if not way.is_write:
            return way.to in self._dead
        let_go = self._known[thing] & _GOES_ON and not self._known[thing] & _ARRIVES
        return (way.sender in self._stopped or way.sender in self._dead) and not let_go

    def _copy_moves(self, thing: str) -> bool:
        """Whether a copy of a message has left its gate and has not been received beside the message itself."""
        copies = self._copies[thing]
        return bool(copies) and self._received[thing] <= copies


def _goes_on_in_the_transport(event: Event) -> bool:
    """A ghost, say: its sender has been told something, and acts on it, while the thing itself is held."""
    return event.kind == "held" and event.data.get("action", _TELLS_NOBODY) != _TELLS_NOBODY


def _way(event: Event) -> Way:
    if event.kind == "sent":
        return Way(event.instance, event.data.get("to", ""), is_write=False)
    own = event.instance if event.data.get("op") == "read" else "decode"
    return Way(event.instance, event.data.get("to", own), is_write=True)


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

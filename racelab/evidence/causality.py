"""Who could have known what: happened-before, from the causal edges that events carry."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from racelab.evidence.events import Event


class _Heard:
    """What one instance had heard of another, itself: up to which of its events, from when on."""

    __slots__ = ("known", "since")

    def __init__(self) -> None:
        self.since: list[int] = []
        self.known: list[int] = []

    def learn(self, at: int, seq: int) -> None:
        if not self.known or seq > self.known[-1]:
            self.since.append(at)
            self.known.append(seq)

    def by(self, at: int) -> int:
        """The last event of the other that it had heard of when it recorded its event `at`; 0 if of none."""
        index = bisect_right(self.since, at)
        return self.known[index - 1] if index else 0


class Causality:
    """Answers from what an instance was told directly and, where that does not tell, from all it could know."""

    def __init__(self, edges: Iterable[Event]) -> None:
        self._edges = list(edges)
        self._told: dict[tuple[str, str], _Heard] = defaultdict(_Heard)
        for event in self._edges:
            for other, seq in event.after.items():
                self._told[event.instance, other].learn(event.seq, seq)

    def before(self, a: Event, b: Event) -> bool:
        """Whether `a` happened before `b`: b's process had heard of it, or did it earlier itself."""
        if a.instance == b.instance:
            return a.seq < b.seq
        told = self._told.get((b.instance, a.instance))
        if told is not None and told.by(b.seq) >= a.seq:
            return True
        return self._clocks.before(a, b)

    @cached_property
    def _clocks(self) -> VectorClocks:
        return VectorClocks(self._edges)


class VectorClocks:
    """All that each instance could know, also from hearsay; kept only where it changes.

    Between two events with an `after`, an instance learns nothing, so its clock need not be
    stored. Cost: one vector an edge; a query is one bisection.
    """

    def __init__(self, edges: Iterable[Event]) -> None:
        self._places: dict[str, int] = {}
        self._marks: dict[str, list[int]] = defaultdict(list)
        self._clocks: dict[str, list[list[int]]] = defaultdict(list)
        for event in edges:
            self._learn(event)

    def _learn(self, event: Event) -> None:
        places, clocks = self._places, self._clocks[event.instance]
        mine = clocks[-1] if clocks else []
        mine = mine + [0] * (len(places) - len(mine))
        for instance, seq in event.after.items():
            theirs = self._at(instance, seq)
            if theirs:
                mine[: len(theirs)] = map(max, mine, theirs)
            place = places.get(instance)
            if place is None:
                place = places[instance] = len(places)
                mine.append(0)
            if seq > mine[place]:
                mine[place] = seq
        self._marks[event.instance].append(event.seq)
        clocks.append(mine)

    def _at(self, instance: str, seq: int) -> list[int]:
        index = bisect_right(self._marks[instance], seq) - 1
        return self._clocks[instance][index] if index >= 0 else []

    def before(self, a: Event, b: Event) -> bool:
        """Whether the process of `b`, another than that of `a`, had heard of it in any way."""
        place = self._places.get(a.instance)
        clock = self._at(b.instance, b.seq)
        return place is not None and place < len(clock) and clock[place] >= a.seq

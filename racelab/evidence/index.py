"""One pass over a history's events: those of each kind, their order, and what their numbers say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from racelab.evidence.events import Event


class Index:
    """Made in a single pass, while what was just decoded is still in the processor's cache.

    `lost` counts the events that are missing: gaps in the numbers of an instance, or others had heard of
    later ones. `disorder` is the first event whose number or causal edge contradicts the clocks; no
    recorder makes such a thing.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.events: list[Event] = []
        self.by_kind: dict[str, list[Event]] = defaultdict(list)
        self.edges: list[Event] = []
        """the events by which an instance heard of others"""
        self.in_order = True
        self.lost = 0
        self.disorder: Event | None = None
        self._first: dict[str, int] = {}
        self._unreported: list[tuple[str, int, int]] = []
        self._last: dict[str, int] = {}
        self._ahead: list[tuple[Event, str, int]] = []
        self._take(events)
        self._settle()

    def _take(self, events: Iterable[Event]) -> None:
        append, by_kind, last = self.events.append, self.by_kind, self._last
        reading = -1
        for event in events:
            append(event)
            by_kind[event.kind].append(event)
            if event.hlc <= reading:
                self.in_order = False
            reading = event.hlc
            instance, seq = event.instance, event.seq
            if last.get(instance) != seq - 1:
                self._jump(event)
            else:
                last[instance] = seq
            if event.after:
                self._hear(event)

    def _jump(self, event: Event) -> None:
        """An instance's first event, or one that does not follow its last."""
        before = self._last.get(event.instance)
        if before is None:
            self._first[event.instance] = event.seq
        elif event.kind == "pool" and event.seq > before:
            self._unreported.append((event.instance, before, event.seq))  # another process, which counts on
        elif event.seq > before:
            self.lost += event.seq - before - 1
        else:
            self.disorder = self.disorder or event
            return
        self._last[event.instance] = event.seq

    def _hear(self, event: Event) -> None:
        self.edges.append(event)
        for other, known in event.after.items():
            if known > self._last.get(other, 0):
                self._ahead.append((event, other, known))

    def _settle(self) -> None:
        """Events that were heard of before they stand in the history: missing at its end, or out of order."""
        for event, other, known in self._ahead:
            if any(name == other and low < known < high for name, low, high in self._unreported):
                self.lost += 1
            elif known > self._last.get(other, known):
                self.lost += known - self._last[other]
                self._last[other] = known
            elif known >= self._first.get(other, known + 1):
                self.disorder = self.disorder or event

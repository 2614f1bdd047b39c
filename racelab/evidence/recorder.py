"""The recorder: numbers events, stamps them, and never blocks the engine.

Events leave through `sink` at once or wait in a bounded buffer until `drain`. A full buffer
loses the newest and counts the loss; the gap in `seq` makes what depends on it unknown.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from racelab.evidence.clock import HybridClock
from racelab.evidence.events import Event

BUFFER_EVENTS = 100_000


class Recorder:
    """One per process. `record` is safe from several threads."""

    def __init__(
        self, instance: str, sink: Callable[[Event], None] | None = None, *, buffer_events: int = BUFFER_EVENTS
    ) -> None:
        self.instance = instance
        self.incarnation = 0
        self.clock = HybridClock()
        self.virtual_ms: Callable[[], int] = lambda: 0
        self.seq = 0
        self.sink = sink
        self._buffer: list[Event] = []
        self._buffer_events = buffer_events
        self._lost = 0
        self._learned: dict[str, int] = {}
        self._lock = threading.Lock()

    def learned(self, instance: str, seq: int, hlc: int) -> None:
        """A message arrived that `instance` sent after its event `seq`, at its reading `hlc`."""
        self.clock.observe(hlc)
        with self._lock:
            if seq > self._learned.get(instance, 0):
                self._learned[instance] = seq

    def forget(self, instance: str) -> None:
        """`instance` has been replaced by another process of that name, which numbers its events anew."""
        with self._lock:
            self._learned.pop(instance, None)

    def record(
        self,
        kind: str,
        request: str | None = None,
        attempt: int | None = None,
        page: int | None = None,
        gen: int | None = None,
        **data: Any,
    ) -> Event:
        """Record one event and return it; its number is final even if the buffer is full."""
        with self._lock:
            self.seq += 1
            learned, self._learned = self._learned, {}
            event = Event(
                kind=kind,
                instance=self.instance,
                seq=self.seq,
                incarnation=self.incarnation,
                mono_ns=time.monotonic_ns(),
                hlc=self.clock.tick(),
                clock_ms=self.virtual_ms(),
                request=request,
                attempt=attempt,
                page=page,
                gen=gen,
                after=learned,
                data=data,
            )
            if self.sink is not None:
                self.sink(event)
            elif len(self._buffer) < self._buffer_events:
                self._buffer.append(event)
            else:
                self._lost += 1
        return event

    def drain(self) -> list[Event]:
        """Take the buffered events; a loss since the last call is reported as an event of its own."""
        with self._lock:
            events, self._buffer = self._buffer, []
            lost, self._lost = self._lost, 0
        if lost:
            self.record("lost", count=lost)
            events += self.drain()
        return events

"""Engine time: timers on a clock that only moves when it is told to.

A scenario advances it, so a time-out fires after exactly the events that it should follow, and
never because a machine was slow.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(order=True)
class Timer:
    """A callback due at `due_ms`; a cancelled one never fires."""

    due_ms: int
    order: int
    fire: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """Forget it; harmless if it has fired."""
        self.cancelled = True


class VirtualClock:
    """Milliseconds since the incarnation began."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._timers: list[Timer] = []
        self._count = 0

    def after(self, delay_ms: int, fire: Callable[[], None]) -> Timer:
        """Call `fire` once, `delay_ms` from now."""
        self._count += 1
        timer = Timer(self.now_ms + delay_ms, self._count, fire)
        heapq.heappush(self._timers, timer)
        return timer

    def advance(self, ms: int) -> int:
        """Let time pass; timers fire in the order in which they fall due. Returns how many did."""
        target_ms = self.now_ms + ms
        fired = 0
        while self._timers and self._timers[0].due_ms <= target_ms:
            timer = heapq.heappop(self._timers)
            if timer.cancelled:
                continue
            self.now_ms = timer.due_ms
            timer.fire()
            fired += 1
        self.now_ms = target_ms
        return fired

    def next_due_ms(self) -> int | None:
        """How long until the next timer falls due; None if there is none."""
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0].due_ms - self.now_ms if self._timers else None

    def pending(self) -> int:
        """Timers that would still fire."""
        return sum(not timer.cancelled for timer in self._timers)

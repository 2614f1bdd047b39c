"""Engine time: timers on a clock that only moves when it is told to, or on a real one.

A scenario advances the virtual one, so a time-out fires after exactly the events that it should follow,
and never because a machine was slow. The real one is asyncio's: its timers fire by themselves.
"""

from __future__ import annotations

import asyncio
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
        self.fired = 0
        self._timers: list[Timer] = []
        self._count = 0

    def after(self, delay_ms: int, fire: Callable[[], None]) -> Timer:
        """Call `fire` once, `delay_ms` from now."""
        return self.at(self.now_ms + delay_ms, fire)

    def at(self, due_ms: int, fire: Callable[[], None]) -> Timer:
        """Call `fire` once, at this time or now if it has passed."""
        self._count += 1
        timer = Timer(max(due_ms, self.now_ms), self._count, fire)
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
            self.fired += 1
        self.now_ms = target_ms
        return fired

    def next_due_ms(self) -> int | None:
        """How long until the next timer falls due; None if there is none."""
        while self._timers and self._timers[0].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0].due_ms - self.now_ms if self._timers else None

    def due_by(self, time_ms: int) -> list[int]:
        """When the timers fall due that do so until then."""
        return [timer.due_ms for timer in self._timers if not timer.cancelled and timer.due_ms <= time_ms]

    def close(self) -> None:
        """Forget every timer."""
        self._timers.clear()

    def pending(self) -> int:
        """Timers that would still fire."""
        return sum(not timer.cancelled for timer in self._timers)


class RealClock(VirtualClock):
    """The same on the machine's monotonic clock. While a timer fires, the time is that at which it fell due,
    so that what a slow machine adds does not add up; `after_firing` is called once those that were due have fired."""

    def __init__(self, loop: asyncio.AbstractEventLoop, after_firing: Callable[[], None]) -> None:
        self._loop = loop
        self._origin = loop.time()
        self._nominal_ms: int | None = None
        self._after_firing = after_firing
        self._wake_up: asyncio.TimerHandle | None = None
        super().__init__()
        self._nominal_ms = None

    @property
    def now_ms(self) -> int:
        """Milliseconds since the incarnation began."""
        if self._nominal_ms is not None:
            return self._nominal_ms
        return int((self._loop.time() - self._origin) * 1000)

    @now_ms.setter
    def now_ms(self, value: int) -> None:
        self._nominal_ms = value

    def at(self, due_ms: int, fire: Callable[[], None]) -> Timer:
        """Call `fire` once, at this time or now if it has passed."""
        timer = super().at(due_ms, fire)
        self._set_alarm()
        return timer

    def advance(self, ms: int) -> int:
        """Nobody moves a real clock.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("a real clock is not advanced")

    def close(self) -> None:
        """Forget every timer."""
        super().close()
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
        due_ms = self.next_due_ms()
        self._wake_up = self._loop.call_later(max(due_ms, 0) / 1000, self._ring) if due_ms is not None else None

    def _ring(self) -> None:
        fired = super().advance(0)
        self._nominal_ms = None
        self._set_alarm()
        if fired:
            self._after_firing()

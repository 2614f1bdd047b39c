"""Hybrid logical clock: close to wall time, never against causality.

Kulkarni et al., "Logical Physical Clocks" (OPODIS 2014). One 64-bit integer: microseconds
since the epoch in the high 53 bits (enough until 2255), a counter in the low 10. A message
carries the sender's reading and the receiver moves past it, so `a happened before b` implies
`hlc(a) < hlc(b)`.
"""

from __future__ import annotations

import threading
import time

_COUNTER_BITS = 10


class HybridClock:
    """One per process; safe to use from several threads."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def tick(self) -> int:
        """A reading later than every reading given or observed so far."""
        wall = (time.time_ns() // 1000) << _COUNTER_BITS
        with self._lock:
            self._last = max(wall, self._last + 1)
            return self._last

    def observe(self, reading: int) -> None:
        """Move past a reading that came with a message."""
        with self._lock:
            self._last = max(self._last, reading)


def wall_us(reading: int) -> int:
    """The wall-clock part of a reading, in microseconds since the epoch."""
    return reading >> _COUNTER_BITS

"""What decode has heard of one attempt's writes: a handle is the writes of one share of one chunk.

A chunk has arrived once that is so of every share. One share's failure says nothing of the others.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

Handle = tuple[int, int]
"""A chunk, and the number of a share (racelab.engine.shares)."""


@dataclass
class Handles:
    """`due` are all that the attempt has."""

    shares: int = 1
    due: set[Handle] = field(default_factory=set)
    failed: set[Handle] = field(default_factory=set)
    _arrived: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def note(self, chunk: int, share: int, *, ok: bool) -> bool:
        """News of a handle; whether its chunk has now arrived whole."""
        if not ok:
            self.failed.add((chunk, share))
            return False
        arrived = self._arrived[chunk]
        arrived.add(share)
        return len(arrived) == self.shares

    @property
    def outstanding(self) -> int:
        """Handles of which there is no news."""
        return len(self.due) - len(self.failed) - sum(map(len, self._arrived.values()))

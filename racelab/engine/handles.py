"""What decode has heard of one attempt's writes: a handle is one rank's writes of one chunk.

A chunk has arrived once every rank has said so of its share. One rank's failure says nothing of the others.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

Handle = tuple[int, int]
"""A chunk and a rank."""


@dataclass
class Handles:
    """`due` are all that the attempt has."""

    ranks: int = 1
    due: set[Handle] = field(default_factory=set)
    failed: set[Handle] = field(default_factory=set)
    _arrived: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))

    def note(self, chunk: int, rank: int, *, ok: bool) -> bool:
        """News of a handle; whether its chunk has now arrived whole."""
        if not ok:
            self.failed.add((chunk, rank))
            return False
        arrived = self._arrived[chunk]
        arrived.add(rank)
        return len(arrived) == self.ranks

    @property
    def outstanding(self) -> int:
        """Handles of which there is no news."""
        return len(self.due) - len(self.failed) - sum(map(len, self._arrived.values()))

"""The virtual clock of a schedule: by how much to advance it so that just one timer falls due.

Timers of one kind run equally long, but a client may wait longer than others: where a trace has a later
request time out first, the earlier one gets a time-out of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from racelab.binding.moves import Attempt, Course, Move

GAP_MS = 1_000


class Impatient(Exception):
    """A client must wait longer than another that came later."""

    def __init__(self, request: str) -> None:
        super().__init__(request)
        self.request = request


class TooEarly(Exception):
    """A timer cannot fall due before others; `others` are (attempt, kind) of those."""

    def __init__(self, others: list[tuple[Attempt, str]]) -> None:
        self.others = others
        super().__init__(" and ".join(f"the {kind} of {attempt}" for attempt, kind in others))


@dataclass
class Timeline:
    """Timers of the engine as the schedule goes; `patience` has the requests that wait longer than the others."""

    course: Course
    request_timeout_ms: int
    drain_timeout_ms: int
    patience: Mapping[str, int] = field(default_factory=dict)
    now_ms: int = 0
    due: dict[tuple[Attempt, str], int] = field(default_factory=dict)

    def start(self, attempt: Attempt, kind: str, at: Move) -> int:
        """Start a timer; returns how long to wait first, so that it will fall due by itself."""
        length_ms = self.drain_timeout_ms
        if kind == "time-out":
            length_ms = self.patience.get(attempt.request, self.request_timeout_ms)
        gap_ms = 0
        if kind == "time-out" and self._matters(attempt, kind, self.now_ms + length_ms, at):
            gap_ms = min(GAP_MS, length_ms // (len(self.course.pages) + 1))
        self.now_ms += gap_ms
        self.due[attempt, kind] = self.now_ms + length_ms
        return gap_ms

    def stop(self, attempt: Attempt, kind: str) -> None:
        """The timer will not fall due."""
        self.due.pop((attempt, kind), None)

    def fire(self, attempt: Attempt, kind: str) -> int:
        """How far to advance until the timer falls due.

        Raises:
            TooEarly: others would fall due as well.
        """
        due_ms = self.due.pop((attempt, kind))
        others = [timer for timer, at_ms in self.due.items() if at_ms <= due_ms]
        if others:
            raise TooEarly(others)
        advance_ms = due_ms - self.now_ms
        self.now_ms = due_ms
        return advance_ms

    def _matters(self, attempt: Attempt, kind: str, due_ms: int, at: Move) -> bool:
        """Whether another timer would fall due at the same time, and the trace tells them apart."""
        rivals = {key for key, other_ms in self.due.items() if other_ms == due_ms}
        rivals_and_self = rivals | {(attempt, kind)} if rivals else rivals
        later = {(move.attempt, str(move.means).replace("expire", "drain")) for move in self.course.moves[at.at + 1 :]}
        return bool(rivals_and_self & later)


__all__ = ["GAP_MS", "Timeline", "TooEarly"]

"""The virtual clock of a schedule: by how much to advance it so that just one timer falls due."""

from __future__ import annotations

from dataclasses import dataclass, field

from racelab.binding.moves import Attempt, Course, Move

GAP_MS = 1_000


@dataclass
class Timeline:
    """Timers of the engine as the schedule goes; all of one kind run equally long."""

    course: Course
    request_timeout_ms: int
    drain_timeout_ms: int
    now_ms: int = 0
    due: dict[tuple[Attempt, str], int] = field(default_factory=dict)

    def start(self, attempt: Attempt, kind: str, at: Move) -> int:
        """Start a timer; returns how long to wait first, so that it will fall due by itself."""
        length_ms = self.request_timeout_ms if kind == "time-out" else self.drain_timeout_ms
        gap_ms = 0
        if kind == "time-out" and self._matters(attempt, kind, self.now_ms + length_ms, at):
            gap_ms = min(GAP_MS, length_ms // (len(self.course.pages) + 1))
        self.now_ms += gap_ms
        self.due[attempt, kind] = self.now_ms + length_ms
        return gap_ms

    def stop(self, attempt: Attempt, kind: str) -> None:
        """The timer will not fall due."""
        self.due.pop((attempt, kind), None)

    def fire(self, attempt: Attempt, kind: str) -> int | list[str]:
        """How far to advance until the timer falls due, or what would fall due as well."""
        due_ms = self.due.pop((attempt, kind))
        others = [f"the {what} of {other}" for (other, what), at_ms in self.due.items() if at_ms <= due_ms]
        if others:
            return others
        advance_ms = due_ms - self.now_ms
        self.now_ms = due_ms
        return advance_ms

    def _matters(self, attempt: Attempt, kind: str, due_ms: int, at: Move) -> bool:
        """Whether another timer would fall due at the same time, and the trace tells them apart."""
        rivals = {key for key, other_ms in self.due.items() if other_ms == due_ms}
        rivals_and_self = rivals | {(attempt, kind)} if rivals else rivals
        later = {(move.attempt, str(move.means).replace("expire", "drain")) for move in self.course.moves[at.at + 1 :]}
        return bool(rivals_and_self & later)


__all__ = ["GAP_MS", "Timeline"]

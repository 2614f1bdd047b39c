"""Processes that the schedule killed: their events end there, and their memory with them.

An unintended death is a failure of the lab; one that a step asked for is part of the scenario's fault budget.
"""

from __future__ import annotations

from collections import defaultdict

from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.naming import number


class Deaths:
    """`history.derived(Deaths)` gives the shared one."""

    def __init__(self, history: History) -> None:
        self._of: dict[str, list[Event]] = defaultdict(list)
        for event in history.by_kind["killed"]:
            self._of[event.data["peer"]].append(event)

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    def after(self, event: Event, instance: str | None = None) -> Event | None:
        """The death of the process that recorded `event` (or of `instance` as it was then), if it was killed later."""
        deaths = self._of.get(instance or event.instance, ())
        return next((death for death in deaths if death.hlc > event.hlc), None)

    def of_another(self, instance: str) -> bool:
        """Whether any other process than this one was killed."""
        return any(peer != instance for peer in self._of)

    @property
    def doubts(self) -> list[str]:
        """Deaths of processes that had work: what they did last, nobody has reported."""
        return [
            f"{peer} was killed at work ({number(death)}), and what it did last is not reported"
            for peer, deaths in self._of.items()
            for death in deaths
            if not death.data["idle"]
        ]

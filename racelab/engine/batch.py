"""Who is in decode's next step: everybody whose KV is complete, or so many of them as a batch has room for (lab
`max-batch`). Who comes while a step is under way, or finds it full, is in a later one.
"""

from __future__ import annotations

from racelab.engine.live import Live
from racelab.evidence.recorder import Recorder


class Batch:
    """A request joins it, is in the steps that follow, and leaves it."""

    def __init__(self, recorder: Recorder, size_max: int | None) -> None:
        self.running: list[Live] = []
        self._ready: list[Live] = []
        self._recorder = recorder
        self._size_max = size_max
        self._closed = 0

    def join(self, request: Live) -> None:
        """Its KV is complete."""
        (self._ready if self._size_max is not None else self.running).append(request)

    def close(self) -> None:
        """A step begins, with those who are here."""
        if self._size_max is None:
            return
        self._closed += 1
        joining = self._ready[: self._size_max - len(self.running)]
        self._ready = self._ready[len(joining) :]
        for request in joining:
            self.running.append(request)
            self._recorder.record("batched", request.name, request.attempt, step=self._closed, size=len(self.running))

    def leave(self, request: Live) -> bool:
        """It has ended; whether it waited for a step that has room."""
        if request in self.running:
            self.running.remove(request)
        waited = request in self._ready
        if waited:
            self._ready.remove(request)
        return waited

    @property
    def due(self) -> bool:
        """Whether there is anything for a step to do."""
        return bool(self.running or self._ready)

    @property
    def count(self) -> int:
        """All that run or wait to."""
        return len(self.running) + len(self._ready)

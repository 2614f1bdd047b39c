"""The attempts that prefill knows, each in a room: under the transfer id that its messages carry.

A client may give its requests ids; else an attempt goes by its own name. Whoever takes an id that is
in use overwrites what it stood for, and a reserve for a room that has ended opens it again, unless
guards are against it.
"""

from __future__ import annotations

from collections.abc import Iterator

from racelab.engine.guards import Guards, RegisterTransfer, ReviveTransfer
from racelab.engine.job import Job
from racelab.transport.messages import Message


def room_of(request: str, attempt: int, transfer: str | None) -> str:
    """The id under which prefill knows an attempt."""
    return transfer if transfer is not None else f"{request}#{attempt}"


class Rooms:
    """A table of jobs. What has ended stays in it, for whoever remembers to look."""

    def __init__(self, guards: Guards) -> None:
        self._guards = guards
        self._jobs: dict[str, Job] = {}
        self._closed: dict[str, str] = {}
        """rooms that ended before there was a job, and why"""
        self.turned_down: dict[tuple[str, int], list[list[int]]] = {}
        """attempts for which nothing was or will be posted, and decode's pages for them"""

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    def find(self, request: str, attempt: int, transfer: str | None) -> Job | None:
        """Whoever is in a room, which may be another attempt than the one asked for."""
        return self._jobs.get(room_of(request, attempt, transfer))

    def enter(self, job: Job) -> None:
        """A job takes its room."""
        self._jobs[room_of(job.request, job.attempt, job.transfer)] = job

    def close(self, request: str, attempt: int, transfer: str | None, why: str) -> None:
        """An attempt has ended before prefill heard of it."""
        self._closed[room_of(request, attempt, transfer)] = why

    def closed(self, request: str, attempt: int, transfer: str | None) -> str | None:
        """Why an attempt had ended before prefill heard of it, if it had."""
        return self._closed.get(room_of(request, attempt, transfer))

    def refusal(self, message: Message) -> str | None:
        """Why a reserve gets no room, if a guard is against it."""
        about = (message.request, message.attempt, None, None, "accepted")
        room = room_of(message.request, message.attempt, message.transfer)
        job = self._jobs.get(room)
        over = self._closed.get(room)
        if job is not None and job.is_of(message.request, message.attempt):
            over = job.over or over
        elif job is not None and job.over is None:
            held_by = f"{job.request} attempt {job.attempt}"
            if self._guards.refuse(RegisterTransfer(*about, transfer=room, held_by=held_by)):
                return f"its transfer id {room} is in use"
        if over is not None and self._guards.refuse(ReviveTransfer(*about, over=over)):
            return f"it has ended: {over}"
        return None

"""Clearing the pages that a request is given, as engines do whose attention may see what was there before."""

from __future__ import annotations

from racelab.engine.guards import AdvertisePages, Guards
from racelab.engine.live import Live
from racelab.engine.local_work import LocalWork
from racelab.engine.pool import PagePool


class ZeroFill:
    """Local work of decode (lab `zero-fill`): it runs in the order of the stream, and transfers do not."""

    def __init__(self, work: LocalWork, guards: Guards, pool: PagePool) -> None:
        self._work = work
        self._guards = guards
        self._pool = pool

    def must_wait(self, request: Live) -> bool:
        """Queue the clearing of a request's fresh pages; whether a guard wants it done before they are advertised."""
        fresh = [ticket.page for ticket in request.tickets[request.hits :]]
        self._work.add(
            "zero-fill",
            lambda: self._pool.zero(fresh),
            of=[(request.name, request.attempt)],
            pages=fresh,
            left_behind=lambda: {"pages": fresh, "chunks": self._pool.zero_chunks},
        )
        queued = self._work.queued("zero-fill", fresh)
        if queued == 0:
            return False
        question = AdvertisePages(request.name, request.attempt, None, None, "granted", queued=queued)
        return self._guards.refuse(question) is not None

"""Retraction: the scheduler takes a request's pages back for others, and the request waits for pages again.

As upstream schedulers do it, whether a transfer is under way is not asked: the pages go the way of every other
release, and what was sent for them may still come. What has been answered stays, as a part of the prompt.
"""

from __future__ import annotations

from racelab.engine.arrivals import Arrivals
from racelab.engine.guards import KeepAttempt


class Retracting(Arrivals):
    """A base of `Decode`, whose books it uses."""

    def retract(self, name: str) -> bool:
        """Give the pages of a request back, and queue it again behind those that wait; False if it has none."""
        was = self._requests[name]
        if was.ended is not None or not was.tickets:
            return False
        renews = self._guards.refuse(KeepAttempt(was.name, was.attempt, None, None, "admitted")) is not None
        again = was.next_attempt()
        again.attempt = was.attempt + renews
        self._end(was, "retracted" if renews else "requeued", again=again.attempt)
        self._take_in(again, "submitted" if renews else None)
        return True

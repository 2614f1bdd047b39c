"""Pages on demand (lab `preemption`): a request is admitted with its prompt's pages, and takes one more for its answer
when a token needs it.

Where none is free the youngest that has any gives its pages up, be they still being filled, and comes again ahead of
all that wait, with what it has answered so far as a part of its prompt.
"""

from __future__ import annotations

from collections.abc import Callable

from racelab.engine.live import Live
from racelab.engine.prefix_cache import PrefixCache
from racelab.evidence.recorder import Recorder
from racelab.scenario import Lab


class Growth:
    """`preempt` ends an attempt for the sake of another one, and has its request come again."""

    def __init__(
        self, shape: Lab, recorder: Recorder, cache: PrefixCache, preempt: Callable[[Live, Live], None]
    ) -> None:
        self._shape = shape
        self._recorder = recorder
        self._cache = cache
        self._preempt = preempt
        self.holders: list[Live] = []
        """the requests that have pages, the youngest last"""
        self.takes_first = False
        """whether somebody who runs is looking for pages, and nobody is admitted"""

    def pages_at_first(self, prompt: int, new_tokens: int) -> int:
        """With how many pages a request is admitted."""
        tokens = prompt if self._shape.preemption else prompt + new_tokens
        return -(-tokens // self._shape.page_tokens)

    def make_room(self, running: list[Live]) -> None:
        """See that each has the page to which its next token goes, the oldest first, or has none at all any more."""
        self.takes_first = True
        for request in [one for one in self.holders if one in running]:
            while request.ended is None and not self._has_room(request):
                self._grow(request)
        self.takes_first = False

    def _has_room(self, request: Live) -> bool:
        position = len(request.prompt) - 1 + len(request.tokens)
        return position // self._shape.page_tokens < len(request.tickets)

    def _grow(self, request: Live) -> None:
        taken = self._cache.take([], 1, request.name, request.attempt)
        if taken is None:
            self._preempt(self.holders[-1], request)
            return
        (ticket,), _ = taken
        request.tickets.append(ticket)
        self._recorder.record(
            "grown", request.name, request.attempt, ticket.page, ticket.gen, token=len(request.tokens)
        )

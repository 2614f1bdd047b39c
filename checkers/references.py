"""Who may read a page that is SHARED or DUP, and from when to when."""

from __future__ import annotations

from racelab.evidence.events import Event

Reader = tuple[str | None, int | None]
"""A request and its attempt."""


class References:
    """The references to one generation of one page, from the moment at which it was published.

    Its owner holds the first. Another attempt takes one by a `cache-hit`; a `reference-dropped` ends
    either. `holders` are those who have one now.
    """

    def __init__(self, published: Event, born: Event) -> None:
        owner = (born.request, born.attempt)
        self.published = published
        self.holders: set[Reader] = {owner}
        self._from: dict[Reader, int] = {owner: born.seq}
        self._until: dict[Reader, int] = {}

    def take(self, hit: Event) -> None:
        """An attempt finds the page in the prefix cache."""
        reader = (hit.request, hit.attempt)
        self.holders.add(reader)
        self._from.setdefault(reader, hit.seq)
        self._until.pop(reader, None)

    def drop(self, dropped: Event) -> bool:
        """An attempt is done with it; False if it held no reference."""
        reader = (dropped.request, dropped.attempt)
        if reader not in self.holders:
            return False
        self.holders.discard(reader)
        self._until[reader] = dropped.seq
        return True

    def held_at(self, event: Event) -> bool:
        """Whether the attempt of an event of the same instance held a reference when it was recorded."""
        reader = (event.request, event.attempt)
        since, until = self._from.get(reader), self._until.get(reader)
        return since is not None and since <= event.seq and (until is None or event.seq < until)

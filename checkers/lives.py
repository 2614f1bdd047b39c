"""One generation of one page: its owner, its state, who may write to it, who may read it."""

from __future__ import annotations

import msgspec

from checkers.references import References
from racelab.evidence.events import Event
from racelab.evidence.naming import attempt_name


class Grant(msgspec.Struct, eq=False, gc=False):
    """A peer's right to a generation, from its advertisement to stop evidence, if that came."""

    opened: Event
    closed: Event | None = None
    excuse: Event | None = None

    @property
    def writer(self) -> str:
        """Who may write under it."""
        return attempt_name(self.opened.request, self.opened.attempt, self.opened.gen)


class Life(msgspec.Struct, eq=False, gc=False):
    """One generation of one page: from PRIVATE to FREE."""

    instance: str
    page: int
    gen: int
    born: Event
    state: str = "PRIVATE"
    changed: Event | None = None
    ended: Event | None = None
    grants: list[Grant] = []
    shared: References | None = None

    @property
    def owner(self) -> str:
        """`r2 attempt 1 gen 2`."""
        return attempt_name(self.born.request, self.born.attempt, self.gen)

    def owned_by(self, event: Event) -> bool:
        """Whether the event is of the attempt that the page was given to."""
        return self.born.request == event.request and self.born.attempt == event.attempt

    def held_by(self, event: Event) -> bool:
        """Whether the event is of an attempt that may read the page then: its owner, or one with a reference."""
        if self.shared is None:
            return self.owned_by(event)
        return self.shared.held_at(event)

    def grants_of(self, event: Event) -> list[Grant]:
        """The grants to the attempt of `event`."""
        return [
            grant
            for grant in self.grants
            if grant.opened.request == event.request and grant.opened.attempt == event.attempt
        ]

    def granted_bytes(self, event: Event) -> int:
        """How much of each layer the attempt of `event` was granted; 0 if it was granted nothing."""
        size = 0
        for grant in self.grants:
            opened = grant.opened
            if opened.request == event.request and opened.attempt == event.attempt:
                size = max(size, opened.data["bytes"])
        return size

    def open_at_end(self) -> list[Grant]:
        """Grants without stop evidence when the generation ended."""
        end = self.ended.seq if self.ended is not None else None
        return [grant for grant in self.grants if end is not None and (grant.closed is None or grant.closed.seq > end)]


class Fault(msgspec.Struct, eq=False, gc=False):
    """A transition that the ledger's rules do not allow. `may_lack`: a lost event could have made it right."""

    event: Event
    life: Life | None
    what: str
    may_lack: bool = True

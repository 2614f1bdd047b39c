"""The page ledger: every physical page, its state, its generation, and who may still reach it.

State and exposure are apart: a page is FREE, PRIVATE, SHARED, DRAINING, QUARANTINED or DUP, and
beside that it has outstanding grants. A generation begins when a page is taken and ends when it
returns to FREE. The guards decide whether a release may skip the drain; the ledger only keeps the
books, and each transition is an event. A drain that outlasts its time-out expires on the engine's
clock. (SHARED and DUP await the prefix cache.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from racelab.engine.clock import VirtualClock
from racelab.engine.guards import FreeExpired, FreePage, Guards, Ticket
from racelab.evidence.recorder import Recorder


class Ledger:
    """The books of one pool. Allocation is LIFO: what was freed last is taken first."""

    def __init__(
        self,
        pages: int,
        recorder: Recorder,
        guards: Guards,
        clock: VirtualClock,
        drain_timeout_ms: int,
        expired: Callable[[], None],
    ) -> None:
        self.state = ["FREE"] * pages
        self.gen = [0] * pages
        self.free = list(reversed(range(pages)))
        self.ever_taken: set[int] = set()
        self._grants: set[Ticket] = set()
        self._recorder = recorder
        self._guards = guards
        self._clock = clock
        self._drain_timeout_ms = drain_timeout_ms
        self._expired = expired

    def take(self, count: int, request: str, attempt: int) -> list[Ticket] | None:
        """`count` FREE pages under fresh generations, or None if there are not enough."""
        if len(self.free) < count:
            return None
        tickets = []
        for _ in range(count):
            page = self.free.pop()
            before = self.state[page]
            self.state[page] = "PRIVATE"
            self.gen[page] += 1
            self.ever_taken.add(page)
            tickets.append(Ticket(page, self.gen[page], request, attempt))
            self._record("page-private", tickets[-1], before)
        return tickets

    def grant(self, ticket: Ticket, to: str, size_bytes: int) -> None:
        """A peer is about to learn the page's addresses."""
        self._grants.add(ticket)
        self._recorder.record("granted", *_subject(ticket), to=to, bytes=size_bytes)

    def close(self, ticket: Ticket, evidence: str, by: str) -> None:
        """Stop evidence for a grant; a draining page with no other grant becomes FREE."""
        if ticket not in self._grants:
            return
        self._grants.remove(ticket)
        self._recorder.record("grant-closed", *_subject(ticket), evidence=evidence, by=by)
        if self._is_live(ticket) and self.state[ticket.page] == "DRAINING":
            self._free(ticket, "stop evidence")

    def release(self, ticket: Ticket, why: str) -> None:
        """The owner is done with the page: FREE, or DRAINING if a guard says so."""
        question = FreePage(
            ticket.request,
            ticket.attempt,
            ticket.page,
            ticket.gen,
            "page-free",
            outstanding_grants=int(ticket in self._grants),
            live_gen=self.gen[ticket.page],
            is_free=self.state[ticket.page] == "FREE",
        )
        if not self._guards.refuse(question):
            self._free(ticket, why)
        elif self._is_live(ticket) and self.state[ticket.page] == "PRIVATE":
            before, self.state[ticket.page] = self.state[ticket.page], "DRAINING"
            self._record("page-draining", ticket, before, why=why)
            self._clock.after(self._drain_timeout_ms, lambda: self._expire(ticket))

    def _expire(self, ticket: Ticket) -> None:
        """The drain of a page has run out: QUARANTINED, or FREE where no guard objects."""
        if not (self._is_live(ticket) and self.state[ticket.page] == "DRAINING"):
            return
        outstanding = int(ticket in self._grants)
        question = FreeExpired(*_subject(ticket), "page-free", outstanding_grants=outstanding)
        if self._guards.refuse(question):
            self.state[ticket.page] = "QUARANTINED"
            self._record("page-quarantined", ticket, "DRAINING", why="drain expired")
        else:
            self._free(ticket, "drain expired")
        self._expired()

    def counts(self) -> dict[str, int]:
        """Pages by state; FREE is what the allocator could hand out."""
        counts = Counter(state for state in self.state if state != "FREE")
        counts["FREE"] = len(self.free)
        return dict(counts)

    @property
    def outstanding(self) -> int:
        """Grants without stop evidence on pages that are not quarantined."""
        return sum(self.state[ticket.page] != "QUARANTINED" for ticket in self._grants)

    def _is_live(self, ticket: Ticket) -> bool:
        return self.gen[ticket.page] == ticket.gen and self.state[ticket.page] != "FREE"

    def _free(self, ticket: Ticket, why: str) -> None:
        before, self.state[ticket.page] = self.state[ticket.page], "FREE"
        self.free.append(ticket.page)
        self._record("page-free", ticket, before, why=why)

    def _record(self, kind: str, ticket: Ticket, before: str, **data: Any) -> None:
        data["from"] = before
        self._recorder.record(kind, *_subject(ticket), **data)


def _subject(ticket: Ticket) -> tuple[str, int, int, int]:
    """A ticket in the order of an event's fields."""
    return ticket.request, ticket.attempt, ticket.page, ticket.gen

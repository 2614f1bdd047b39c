"""The page ledger: every physical page, its state, its generation, and who may still reach it.

    FREE -> PRIVATE                a request takes it under a fresh generation
    PRIVATE -> SHARED              published in the prefix cache: any number of references
    PRIVATE -> DUP                 its content is SHARED under another page: its owner's reference alone
    -> DRAINING -> FREE            released while grants are outstanding, until stop evidence
    DRAINING -> QUARANTINED        the drain ran out

State and exposure are apart: beside its state a page has outstanding grants, whatever the state is.
The guards decide whether a release may skip the drain; the ledger only keeps the books, and each
transition is an event. Before each it looks at what has to be so; what is not is recorded as
`ledger-violation`, and the transition goes on, as it does in an engine that does not look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from racelab.engine.clock import Timer, VirtualClock
from racelab.engine.guards import EndDrain, FreeExpired, FreePage, Guards, Ticket
from racelab.engine.preconditions import Preconditions
from racelab.evidence.recorder import Recorder

Reader = tuple[str, int]
"""A request and its attempt."""


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
        self.unread: dict[int, Ticket] = {}
        """SHARED pages without a reference, by their publisher's ticket, longest unread first"""
        self._references: dict[int, set[Reader]] = {}
        self._publishers: dict[int, Ticket] = {}
        self._grants: set[Ticket] = set()
        self._granted: set[Ticket] = set()
        self._drains: dict[int, Timer] = {}
        self._recorder = recorder
        self._require = Preconditions(recorder).require
        self._guards = guards
        self._clock = clock
        self._drain_timeout_ms = drain_timeout_ms
        self._expired = expired

    # -- a page's life

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
            self._require(before == "FREE", "take", tickets[-1], f"only a FREE page is taken, this one is {before}")
            self._record("page-private", tickets[-1], before)
        return tickets

    def release(self, ticket: Ticket, why: str) -> None:
        """A holder is done with the page: a reference less, or, if it was the only holder, the page's end."""
        if self.is_shared(ticket):
            self._drop_reference(ticket)
            if self.state[ticket.page] == "SHARED" or self._references[ticket.page]:
                return
        self._retire(ticket, why)

    def evict(self, page: int) -> None:
        """A SHARED page that nobody reads makes room."""
        ticket = self.unread.pop(page)
        state, readers = self.state[page], self._references[page]
        rule = f"only a SHARED page without references is evicted, this one is {state} with {len(readers)}"
        self._require(state == "SHARED" and not readers, "evict", ticket, rule)
        self._retire(ticket, "evicted")

    def _retire(self, ticket: Ticket, why: str) -> None:
        """The page goes back: FREE, or DRAINING if a guard says so."""
        state = self.state[ticket.page]
        question = FreePage(
            ticket.request,
            ticket.attempt,
            ticket.page,
            ticket.gen,
            "page-free",
            outstanding_grants=int(ticket in self._grants),
            live_gen=self.gen[ticket.page],
            is_free=state == "FREE",
        )
        if not self._guards.refuse(question):
            self._free(ticket, why)
        elif self._is_live(ticket) and state in ("PRIVATE", "SHARED", "DUP"):
            self.state[ticket.page] = "DRAINING"
            self._record("page-draining", ticket, state, why=why)
            self._drains[ticket.page] = self._clock.after(self._drain_timeout_ms, lambda: self._expire(ticket))

    def _expire(self, ticket: Ticket) -> None:
        """The drain of a page has run out: QUARANTINED, or FREE where no guard objects. A guard may hold it on."""
        if not (self._is_live(ticket) and self.state[ticket.page] == "DRAINING"):
            return
        if self._guards.refuse(EndDrain(*_subject(ticket), "page-free")):
            return
        outstanding = int(ticket in self._grants)
        question = FreeExpired(*_subject(ticket), "page-free", outstanding_grants=outstanding)
        if self._guards.refuse(question):
            self.state[ticket.page] = "QUARANTINED"
            self._record("page-quarantined", ticket, "DRAINING", why="drain expired")
        else:
            self._free(ticket, "drain expired")
        self._expired()

    def _free(self, ticket: Ticket, why: str) -> None:
        before, self.state[ticket.page] = self.state[ticket.page], "FREE"
        live = before not in ("FREE", "QUARANTINED") and self.gen[ticket.page] == ticket.gen
        self._require(live, "free", ticket, f"only a live page returns; gen {self.gen[ticket.page]} is {before}")
        self._require(ticket not in self._grants, "free", ticket, "a grant is outstanding")
        self.free.append(ticket.page)
        drain = self._drains.pop(ticket.page, None)
        if drain is not None:
            drain.cancel()
        self._record("page-free", ticket, before, why=why)

    # -- grants

    def grant(self, ticket: Ticket, to: str, size_bytes: int) -> None:
        """A peer is about to learn the page's addresses."""
        self._require(self._is_live(ticket), "grant", ticket, "its generation has ended")
        self._grants.add(ticket)
        self._granted.add(ticket)
        self._recorder.record("granted", *_subject(ticket), to=to, bytes=size_bytes)

    def granted_to(self, request: str, attempt: int) -> list[Ticket]:
        """What an attempt has grants of, without stop evidence."""
        return sorted(ticket for ticket in self._grants if (ticket.request, ticket.attempt) == (request, attempt))

    def close(self, ticket: Ticket, evidence: str, by: str) -> None:
        """Stop evidence for a grant; a draining page with no other grant becomes FREE."""
        if ticket in self._granted and ticket not in self._grants:
            return  # a second proof changes nothing
        self._require(ticket in self._grants, "close", ticket, "nothing was granted under this generation")
        self._grants.discard(ticket)
        self._recorder.record("grant-closed", *_subject(ticket), evidence=evidence, by=by)
        if self._is_live(ticket) and self.state[ticket.page] == "DRAINING":
            self._free(ticket, "stop evidence")

    # -- sharing

    def share(self, ticket: Ticket, key: str) -> None:
        """Others may find the page from now on; its owner keeps a reference."""
        self._publish(ticket, "SHARED")
        self._publishers[ticket.page] = ticket
        self._record("page-shared", ticket, "PRIVATE", key=key)

    def duplicate(self, ticket: Ticket, key: str, of: Ticket) -> None:
        """The content is SHARED already: the owner reads its own page to the end, and nobody else finds it."""
        self._publish(ticket, "DUP")
        self._record("page-dup", ticket, "PRIVATE", key=key, of=[of.page, of.gen])

    def _publish(self, ticket: Ticket, state: str) -> None:
        before, self.state[ticket.page] = self.state[ticket.page], state
        self._references[ticket.page] = {(ticket.request, ticket.attempt)}
        live = before == "PRIVATE" and self.gen[ticket.page] == ticket.gen
        self._require(live, "publish", ticket, f"gen {self.gen[ticket.page]} is {before}, not PRIVATE")
        self._require(ticket not in self._grants, "publish", ticket, "a grant is outstanding: it is not complete")

    def join(self, published: Ticket, request: str, attempt: int, key: str, size_bytes: int) -> Ticket:
        """A request takes a reference to a SHARED page: its own ticket to the page's generation."""
        page, readers = published.page, self._references[published.page]
        ticket = Ticket(page, published.gen, request, attempt)
        shared = self.state[page] == "SHARED" and self.gen[page] == published.gen
        self._require(shared, "join", ticket, f"only a SHARED page is read by others, this one is {self.state[page]}")
        readers.add((request, attempt))
        self.unread.pop(page, None)
        self._recorder.record("cache-hit", *_subject(ticket), key=key, bytes=size_bytes, references=len(readers))
        return ticket

    def is_shared(self, ticket: Ticket) -> bool:
        """Whether the ticket's generation is alive and was published or found to be a duplicate."""
        return self.state[ticket.page] in ("SHARED", "DUP") and self.gen[ticket.page] == ticket.gen

    def _drop_reference(self, ticket: Ticket) -> None:
        readers, reader = self._references[ticket.page], (ticket.request, ticket.attempt)
        self._require(reader in readers, "drop", ticket, "it holds no reference")
        readers.discard(reader)
        self._recorder.record("reference-dropped", *_subject(ticket), references=len(readers))
        if self.state[ticket.page] == "SHARED" and not readers:
            self.unread[ticket.page] = self._publishers[ticket.page]

    # -- the books

    def counts(self) -> dict[str, int]:
        """Pages by state; FREE is what the allocator could hand out."""
        counts = Counter(state for state in self.state if state != "FREE")
        counts["FREE"] = len(self.free)
        return dict(counts)

    @property
    def outstanding(self) -> int:
        """Grants without stop evidence on pages that are not quarantined."""
        return sum(self.state[ticket.page] != "QUARANTINED" for ticket in self._grants)

    @property
    def referenced(self) -> int:
        """References to SHARED and DUP pages."""
        return sum(len(self._references[page]) for page, state in enumerate(self.state) if state in ("SHARED", "DUP"))

    def _is_live(self, ticket: Ticket) -> bool:
        return self.gen[ticket.page] == ticket.gen and self.state[ticket.page] != "FREE"

    def _record(self, kind: str, ticket: Ticket, before: str, **data: Any) -> None:
        data["from"] = before
        self._recorder.record(kind, *_subject(ticket), **data)


def _subject(ticket: Ticket) -> tuple[str, int, int, int]:
    """A ticket in the order of an event's fields."""
    return ticket.request, ticket.attempt, ticket.page, ticket.gen

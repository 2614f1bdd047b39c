"""One step in the making: a copy of the state's variables, changed one by one, and what is reported of it.

The rules of the ledger are here, for they are the same on both sides: a page that is released goes
back to the allocator, or drains while a grant is outstanding; stop evidence or the end of the drain
decides what becomes of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from racelab.model.spec.state import (
    CONTROL_CARRIES_GENERATION,
    DECODE,
    DRAIN_BEFORE_FREE,
    QUARANTINE_ON_EXPIRY,
    Attempt,
    Config,
    Content,
    Effect,
    Job,
    Message,
    Owner,
    Page,
    Side,
    State,
    Stray,
    Ticket,
    Write,
)


class Draft:
    """Starts as a state; `state` is the next one when the step is over."""

    def __init__(self, config: Config, state: State) -> None:
        self.config = config
        self.effects: list[Effect] = []
        self._sides = {"decode": state.decode, "prefill": state.prefill}
        self.attempts = state.attempts
        self.jobs = state.jobs
        self.cache = state.cache
        self.queue = state.queue
        self.waiting = state.waiting
        self.wire: frozenset[Write] = state.wire
        self.net: frozenset[Message] = state.net
        self.strays = state.strays

    @property
    def state(self) -> State:
        """The state after everything that was done to this draft."""
        return State(
            self._sides["decode"],
            self._sides["prefill"],
            self.attempts,
            self.jobs,
            self.cache,
            self.queue,
            self.waiting,
            self.wire,
            self.net,
            self.strays,
        )

    def report(self, kind: str, instance: str, subject: tuple[str, int] | Ticket, *detail: Any) -> None:
        """An event that the step means; a ticket says which page it is about."""
        if isinstance(subject, Ticket):
            page, gen, request, attempt = subject
            self.effects.append(Effect(kind, instance, request, attempt, page, gen, detail))
        else:
            self.effects.append(Effect(kind, instance, *subject, None, None, detail))

    def refuse(self, guard: str, instance: str, subject: tuple[str, int] | Ticket, leads_to: str) -> bool:
        """Whether a guard that has something against a deed is there; if it is, it says so."""
        if not self.config.guarded(guard):
            return False
        if guard in self.config.reported:
            self.report("refused", instance, subject, guard, leads_to)
        return True

    # -- requests and jobs

    def side(self, name: str) -> Side:
        """A pool."""
        return self._sides[name]

    def attempt(self, request: str, number: int) -> Attempt:
        """An attempt as decode knows it."""
        return self.attempts[self.config.place[request]][number - 1]

    def set_attempt(self, request: str, number: int, value: Attempt) -> None:
        """Change an attempt."""
        self.attempts = _put2(self.attempts, self.config.place[request], number - 1, value)

    def job(self, request: str, number: int) -> Job:
        """An attempt as prefill knows it."""
        return self.jobs[self.config.place[request]][number - 1]

    def set_job(self, request: str, number: int, value: Job) -> None:
        """Change a job."""
        self.jobs = _put2(self.jobs, self.config.place[request], number - 1, value)

    def newest(self, request: str) -> int:
        """The number of a request's newest attempt; 0 if it was never submitted."""
        return len(self.attempts[self.config.place[request]])

    def send(self, message: Message, *about: Any) -> None:
        """A message enters the network; one of the same content is there at most once."""
        self.net |= {message}
        sender = "prefill" if message.to == DECODE else "decode"
        self.report("sent", sender, (message.request, message.attempt), message.type, message.to, *about)

    def stray(self, what: str, request: str, attempt: int, owner: str | None) -> None:
        """Remember that something took effect too late."""
        self.strays |= {Stray(what, request, attempt, owner)}

    def enter(self, where: str, room: str, request: str, attempt: int) -> None:
        """An attempt goes by a transfer id from now on."""
        side = self._sides[where]
        others = frozenset(entry for entry in side.rooms if entry[0] != room)
        self._sides[where] = side._replace(rooms=others | {(room, request, attempt)})

    def in_room(self, where: str, request: str) -> tuple[str, int] | None:
        """Whoever goes by the transfer id of a request, if that has one."""
        room = self.config.shapes[request].room
        return next(((of, number) for name, of, number in self._sides[where].rooms if name == room), None)

    def live(self, message: Message) -> tuple[str, int]:
        """Whom decode knows by the transfer id of a message: by itself a request's newest attempt."""
        return self.in_room(DECODE, message.request) or (message.request, self.newest(message.request))

    def take_slot(self, request: str, attempt: int) -> int:
        """The slot on top."""
        side = self._sides[DECODE]
        slot, *spare = side.spare
        self._sides[DECODE] = side._replace(spare=tuple(spare))
        self.report("slot-taken", DECODE, (request, attempt), slot)
        return slot

    def vacate(self, slot: int, request: str, attempt: int) -> None:
        """A slot goes to whoever comes next, with what is in it."""
        side = self._sides[DECODE]
        self._sides[DECODE] = side._replace(spare=(slot, *side.spare))
        self.report("slot-freed", DECODE, (request, attempt), slot)

    def put(self, slot: int, owner: Owner) -> None:
        """A slot is written."""
        side = self._sides[DECODE]
        self._sides[DECODE] = side._replace(slots=_put(side.slots, slot, owner))

    def know(self, where: str, epoch: int) -> None:
        """A side knows prefill's incarnation."""
        self._sides[where] = self._sides[where]._replace(epoch=epoch)

    def renew(self, where: str, side: Side) -> None:
        """Another process takes the place of a side."""
        self._sides[where] = side

    # -- the ledger

    def take(self, where: str, count: int, request: str, attempt: int) -> tuple[Ticket, ...]:
        """The top `count` pages of the allocator, each under a fresh generation."""
        side = self._sides[where]
        tickets = []
        for page in side.free[:count]:
            before = side.pages[page].state  # another than FREE where a page was freed twice
            ticket = Ticket(page, side.pages[page].gen + 1, request, attempt)
            side = _with_page(side, page, Page("PRIVATE", ticket.gen, request, attempt))
            tickets.append(ticket)
            self.report("page-private", where, ticket, before)
        self._sides[where] = side._replace(free=side.free[count:])
        return tuple(tickets)

    def grant(self, where: str, tickets: Iterable[Ticket], to: str, handles: Iterable[int] = (0,)) -> None:
        """A peer may learn the pages' addresses from now on, on each of its handles."""
        handles = tuple(handles)
        side = self._sides[where]
        for ticket in tickets:
            side = side._replace(grants=side.grants.union((ticket, handle) for handle in handles))
            self.report("granted", where, ticket, to)
        self._sides[where] = side

    def close(self, where: str, ticket: Ticket, evidence: str, handles: Iterable[int] = (0,)) -> None:
        """Stop evidence for what some handles were granted; a page that only waited for it is free."""
        side = self._sides[where]
        if not self.is_granted(where, ticket):
            return
        closed = side._replace(grants=side.grants.difference((ticket, handle) for handle in handles))
        self._sides[where] = closed
        if self.is_granted(where, ticket):
            return
        self.report("grant-closed", where, ticket, evidence)
        if self._is_live(where, ticket) and side.pages[ticket.page].state == "DRAINING":
            self._free(where, ticket)

    def is_granted(self, where: str, ticket: Ticket) -> bool:
        """Whether a peer may still reach the page under this ticket."""
        return any(granted == ticket for granted, _ in self._sides[where].grants)

    def release(self, where: str, ticket: Ticket) -> None:
        """A holder is done with the page: a reference less, or, if there was no other, the page's end."""
        if self.is_shared(where, ticket):
            page = self._sides[where].pages[ticket.page]
            page = page._replace(readers=page.readers - {(ticket.request, ticket.attempt)})
            self._sides[where] = _with_page(self._sides[where], ticket.page, page)
            self.report("reference-dropped", where, ticket, len(page.readers))
            if page.state == "SHARED" or page.readers:
                return
        self.retire(where, ticket)

    def retire(self, where: str, ticket: Ticket) -> None:
        """The page goes back to the allocator, or drains, as the guards say."""
        side = self._sides[where]
        page = side.pages[ticket.page]
        stale = page.gen != ticket.gen or page.state == "FREE"
        if self.is_granted(where, ticket) and self.refuse(DRAIN_BEFORE_FREE, where, ticket, "page-free"):
            if not stale and page.state in ("PRIVATE", "SHARED", "DUP"):
                self._move(where, ticket, "DRAINING", "page-draining")
        elif not (stale and self.refuse(CONTROL_CARRIES_GENERATION, where, ticket, "page-free")):
            if stale and page.state != "FREE":
                self.stray("release", ticket.request, ticket.attempt, page.request)
            self._free(where, ticket)

    def expire(self, where: str, number: int) -> None:
        """A drain has run out with no evidence that the writer stopped."""
        page = self._sides[where].pages[number]
        assert page.request is not None
        ticket = Ticket(number, page.gen, page.request, page.attempt)
        if self.refuse(QUARANTINE_ON_EXPIRY, where, ticket, "page-free"):
            self._move(where, ticket, "QUARANTINED", "page-quarantined")
        else:
            self._free(where, ticket)

    def is_shared(self, where: str, ticket: Ticket) -> bool:
        """Whether the ticket's page is published, or holds what is published elsewhere."""
        page = self._sides[where].pages[ticket.page]
        return page.gen == ticket.gen and page.state in ("SHARED", "DUP")

    def share(self, where: str, ticket: Ticket, state: str, *detail: Any) -> None:
        """A page becomes SHARED or DUP; its owner keeps a reference."""
        page = self._sides[where].pages[ticket.page]
        self.report("page-shared" if state == "SHARED" else "page-dup", where, ticket, "PRIVATE", *detail)
        page = page._replace(state=state, readers=frozenset({(ticket.request, ticket.attempt)}))
        self._sides[where] = _with_page(self._sides[where], ticket.page, page)

    def join(self, where: str, ticket: Ticket, key: str) -> None:
        """A request takes a reference to a SHARED page."""
        page = self._sides[where].pages[ticket.page]
        page = page._replace(readers=page.readers | {(ticket.request, ticket.attempt)})
        self._sides[where] = _with_page(self._sides[where], ticket.page, page)
        self.report("cache-hit", where, ticket, key, len(page.readers))

    def fill(self, where: str, page: int, layers: Iterable[int], content: Content | None) -> None:
        """Somebody's KV is written into layers of a page, whoever holds it."""
        side = self._sides[where]
        row = list(side.content[page])
        for layer in layers:
            row[layer] = content
        self._sides[where] = side._replace(content=_put(side.content, page, tuple(row)))

    def _is_live(self, where: str, ticket: Ticket) -> bool:
        page = self._sides[where].pages[ticket.page]
        return page.gen == ticket.gen and page.state != "FREE"

    def _move(self, where: str, ticket: Ticket, to: str, kind: str) -> None:
        side = self._sides[where]
        page = side.pages[ticket.page]
        self.report(kind, where, ticket, page.state)
        self._sides[where] = _with_page(side, ticket.page, page._replace(state=to))

    def _free(self, where: str, ticket: Ticket) -> None:
        side = self._sides[where]
        page = side.pages[ticket.page]
        self.report("page-free", where, ticket, page.state)
        side = _with_page(side, ticket.page, Page("FREE", page.gen))
        self._sides[where] = side._replace(free=(ticket.page, *side.free))


def _with_page(side: Side, number: int, page: Page) -> Side:
    return side._replace(pages=_put(side.pages, number, page))


def _put(items: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*items[:place], value, *items[place + 1 :])


def _put2(items: tuple[Any, ...], row: int, place: int, value: Any) -> tuple[Any, ...]:
    return _put(items, row, _put(items[row], place, value))

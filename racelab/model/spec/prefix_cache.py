"""The prefix cache of decode: which pages a request finds there, what it publishes, and what makes room."""

from __future__ import annotations

from collections.abc import Sequence

from racelab.model.spec.draft import Draft
from racelab.model.spec.state import DECODE, PUBLISH_AFTER_COMMIT, Ticket


def find(draft: Draft, request: str) -> list[tuple[str, Ticket]]:
    """The published pages of the longest known prefix of a request's prompt, with their keys."""
    published = dict(draft.cache)
    found = []
    for key in draft.config.shapes[request].keys:
        if key not in published:
            break
        found.append((key, published[key]))
    return found


def unread(draft: Draft) -> list[int]:
    """SHARED pages without a reference: those that may be evicted."""
    return [
        number for number, page in enumerate(draft.side(DECODE).pages) if page.state == "SHARED" and not page.readers
    ]


def join(draft: Draft, request: str, number: int) -> bool:
    """The first in the queue takes references to what the cache has of its prompt, if there is room for the rest."""
    found = find(draft, request)
    if draft.queue[:1] != ((request, number),) or draft.attempt(request, number).tickets or not found:
        return False
    spare = set(unread(draft)) - {ticket.page for _, ticket in found}
    if len(draft.side(DECODE).free) + len(spare) < draft.config.shapes[request].pages - len(found):
        return False
    hits = []
    for key, published in found:
        hits.append(Ticket(published.page, published.gen, request, number))
        draft.join(DECODE, hits[-1], key)
    draft.set_attempt(request, number, draft.attempt(request, number)._replace(tickets=tuple(hits)))
    return True


def unjoin(draft: Draft, request: str, number: int) -> bool:
    """What was evicted for the request drains, so there is no room after all: it waits without its references."""
    attempt = draft.attempt(request, number)
    if draft.queue[:1] != ((request, number),) or not attempt.tickets or unread(draft):
        return False
    if _missing(draft) <= 0:
        return False
    for ticket in reversed(attempt.tickets):
        draft.release(DECODE, ticket)
    draft.set_attempt(request, number, attempt._replace(tickets=()))
    return True


def evict(draft: Draft, page: int) -> bool:
    """A page that nobody reads makes room for the first in the queue."""
    if page not in unread(draft) or _missing(draft) <= 0:
        return False
    request, number = draft.queue[0]
    if not draft.attempt(request, number).tickets and find(draft, request):
        return False  # it takes its references first
    entry = next(((key, ticket) for key, ticket in draft.cache if ticket.page == page), None)
    if entry is None:
        return False
    draft.cache -= {entry}
    draft.retire(DECODE, entry[1])
    return True


def _missing(draft: Draft) -> int:
    """How many more pages than are free the first in the queue needs."""
    if not draft.queue:
        return 0
    request, number = draft.queue[0]
    held = len(draft.attempt(request, number).tickets)
    return draft.config.shapes[request].pages - held - len(draft.side(DECODE).free)


def publish(draft: Draft, request: str, number: int, *, committed: bool) -> None:
    """Others may find the attempt's full pages from now on; what is known already becomes DUP."""
    tickets = draft.attempt(request, number).tickets
    keyed = zip(draft.config.shapes[request].keys, tickets, strict=False)
    fresh = [(key, ticket) for key, ticket in keyed if not draft.is_shared(DECODE, ticket)]
    if not fresh:
        return
    if not committed and PUBLISH_AFTER_COMMIT in draft.config.guards:
        draft.report("refused", DECODE, (request, number), PUBLISH_AFTER_COMMIT, "page-shared")
        return
    published = dict(draft.cache)
    new = [(ticket.page, ticket.gen, key) for key, ticket in fresh if key not in published]
    if new:
        draft.report("published", DECODE, (request, number), tuple(new), tuple((page, gen) for page, gen, _ in new))
    for key, ticket in fresh:
        if key in published:
            of = published[key]
            draft.share(DECODE, ticket, "DUP", key, (of.page, of.gen))
        else:
            draft.cache |= {(key, ticket)}
            draft.share(DECODE, ticket, "SHARED", key)


def release(draft: Draft, tickets: Sequence[Ticket]) -> None:
    """An attempt is done with its pages: shared ones from the back, then the others as they were taken."""
    shared = [ticket for ticket in tickets if draft.is_shared(DECODE, ticket)]
    for ticket in reversed(shared):
        draft.release(DECODE, ticket)
    for ticket in tickets:
        if ticket not in shared:
            draft.release(DECODE, ticket)

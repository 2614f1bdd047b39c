"""What decode does: admit a request, act on what prefill says of it, answer it, give it up.

Each function is one action: it changes a draft and says whether it could be taken at all. An
action that a guard stops in part is taken, and the refusal is one of its effects.
"""

from __future__ import annotations

from racelab.model.spec import prefix_cache
from racelab.model.spec.draft import Draft
from racelab.model.spec.state import (
    CONTROL_CARRIES_GENERATION,
    DECODE,
    PREFILL,
    Attempt,
    Job,
    Message,
)


def submit(draft: Draft, request: str) -> bool:
    """The client submits a request, or one that has ended once more; it waits for pages."""
    newest = draft.newest(request)
    if newest >= draft.config.attempts_max:
        return False
    if newest and draft.attempt(request, newest).ended is None:
        return False
    place = draft.config.place[request]
    draft.attempts = (*draft.attempts[:place], (*draft.attempts[place], Attempt()), *draft.attempts[place + 1 :])
    draft.jobs = (*draft.jobs[:place], (*draft.jobs[place], Job()), *draft.jobs[place + 1 :])
    draft.queue = (*draft.queue, (request, newest + 1))
    draft.report("submitted", DECODE, (request, newest + 1))
    return True


def admit(draft: Draft, request: str, number: int) -> bool:
    """The first in the queue takes its pages, grants prefill those that it shall fill, and says so."""
    shape = draft.config.shapes[request]
    if draft.queue[:1] != ((request, number),):
        return False
    hits = draft.attempt(request, number).tickets
    if len(draft.side(DECODE).free) < shape.pages - len(hits) or (not hits and prefix_cache.find(draft, request)):
        return False
    draft.queue = draft.queue[1:]
    tickets = hits + draft.take(DECODE, shape.pages - len(hits), request, number)
    attempt = Attempt(tickets, len(hits))
    draft.set_attempt(request, number, attempt)
    pages = ((ticket.page, ticket.gen) for ticket in tickets)
    draft.report("admitted", DECODE, (request, number), len(hits), *pages)
    granted = tickets[len(hits) : shape.granted]
    draft.grant(DECODE, granted, PREFILL)
    prefix_cache.publish(draft, request, number, committed=False)
    if not granted:
        _commit(draft, request, number)
        return True
    first = len(hits) // draft.config.chunk_pages
    missing = frozenset(range(first, draft.config.chunks(request)))
    draft.set_attempt(request, number, attempt._replace(missing=missing, reserved=True))
    draft.send(Message("reserve", request, number, pages=granted))
    return True


def receive_written(draft: Draft, message: Message) -> bool:
    """News of a chunk: stop evidence for its pages if it is written, and progress of its attempt."""
    draft.report("received", DECODE, (message.request, message.attempt), message.type, message.chunk, message.ok)
    if message.ok:
        for ticket in message.pages:
            draft.close(DECODE, ticket, "completions")
    number = draft.newest(message.request)
    attempt = draft.attempt(message.request, number)
    own = number == message.attempt and attempt.ended is None
    if not own:
        if CONTROL_CARRIES_GENERATION in draft.config.guards:
            subject = (message.request, message.attempt)
            draft.report("refused", DECODE, subject, CONTROL_CARRIES_GENERATION, "committed")
            return True
        if not attempt.reserved:
            return True
        draft.stray("message", message.request, message.attempt, message.request)
    if not message.ok:
        _end(draft, message.request, number, "failed")
        return True
    draft.set_attempt(message.request, number, attempt._replace(missing=attempt.missing - {message.chunk}))
    if attempt.missing <= {message.chunk} and not attempt.committed:
        _commit(draft, message.request, number)
    return True


def _commit(draft: Draft, request: str, number: int) -> None:
    """Decode takes the KV as complete: others may find it, and attention reads it."""
    attempt = draft.attempt(request, number)._replace(committed=True, running=True)
    draft.set_attempt(request, number, attempt)
    draft.report("committed", DECODE, (request, number), *_granted(draft, request, attempt))
    prefix_cache.publish(draft, request, number, committed=True)
    if attempt.reserved:
        draft.send(Message("complete", request, number))


def receive_ack(draft: Draft, message: Message) -> bool:
    """Prefill posts no more; if every write of it succeeded, that is stop evidence for all its pages."""
    draft.report("received", DECODE, (message.request, message.attempt), message.type, message.chunk, message.ok)
    if message.ok:
        for ticket in message.pages:
            draft.close(DECODE, ticket, "acknowledged")
    return True


def read(draft: Draft, request: str, number: int) -> bool:
    """Attention reads the attempt's pages."""
    attempt = draft.attempt(request, number)
    draft.report("read", DECODE, (request, number), *_granted(draft, request, attempt))
    return attempt.running


def finish(draft: Draft, request: str, number: int) -> bool:
    """The answer is complete."""
    if not draft.attempt(request, number).running:
        return False
    _end(draft, request, number, "finished")
    return True


def time_out(draft: Draft, request: str, number: int) -> bool:
    """The request's time runs out."""
    return _give_up(draft, request, number, "timed-out")


def abort(draft: Draft, request: str, number: int) -> bool:
    """The client gives up."""
    return _give_up(draft, request, number, "aborted")


def _granted(draft: Draft, request: str, attempt: Attempt) -> list[tuple[int, int]]:
    """The pages that hold the prompt's KV, with their generations."""
    return [(ticket.page, ticket.gen) for ticket in attempt.tickets[: draft.config.shapes[request].granted]]


def _give_up(draft: Draft, request: str, number: int, how: str) -> bool:
    if number != draft.newest(request) or draft.attempt(request, number).ended is not None:
        return False
    _end(draft, request, number, how)
    return True


def _end(draft: Draft, request: str, number: int, how: str) -> None:
    """The request ends now; its pages go the way that the guards allow."""
    attempt = draft.attempt(request, number)
    draft.set_attempt(request, number, attempt._replace(ended=how, running=False))
    draft.queue = tuple(entry for entry in draft.queue if entry != (request, number))
    draft.report(how, DECODE, (request, number))
    if attempt.reserved and not attempt.committed and draft.config.tells:
        draft.send(Message("abort", request, number))
    prefix_cache.release(draft, attempt.tickets)

"""What decode does: admit a request, act on what prefill says of it, answer it, give it up.

Each function is one action: it changes a draft and says whether it could be taken at all. An
action that a guard stops in part is taken, and the refusal is one of its effects.
"""

from __future__ import annotations

from racelab.model.spec import prefix_cache
from racelab.model.spec.draft import Draft
from racelab.model.spec.state import (
    ABORT,
    ANSWER_EARLY,
    BYTES_BEFORE_COMMIT,
    CHECK_INCARNATION,
    COMMIT_WHEN_WHOLE,
    CONTROL_CARRIES_GENERATION,
    DECODE,
    EVERY_HANDLE_STOPPED,
    LATE_FILL,
    LATE_REGISTER,
    LENGTHS_AGREE,
    LOCAL_WORK_BEFORE_GRANT,
    PREFILL,
    RECEIVE_TIME_OUT,
    RECEIVE_WATCHDOG,
    REGISTER_BEFORE_SEND,
    TELL_PEER_OF_END,
    TIME_OUT,
    Attempt,
    Content,
    Job,
    Message,
    Ticket,
)

SILENCE = "silence"
"""What a duty that is left out leads to."""


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
    """The first in the queue takes its pages, grants prefill those that it shall fill, and says so.

    Where pages are to be zeroed first, the guard has the addresses wait for that.
    """
    shape, config = draft.config.shapes[request], draft.config
    if draft.queue[:1] != ((request, number),):
        return False
    hits = draft.attempt(request, number).tickets
    if len(draft.side(DECODE).free) < shape.pages - len(hits) or (not hits and prefix_cache.find(draft, request)):
        return False
    draft.queue = draft.queue[1:]
    tickets = hits + draft.take(DECODE, shape.pages - len(hits), request, number)
    attempt = Attempt(tickets, len(hits), peer=draft.side(DECODE).epoch)
    draft.set_attempt(request, number, attempt)
    pages = ((ticket.page, ticket.gen) for ticket in tickets)
    draft.report("admitted", DECODE, (request, number), len(hits), *pages)
    if len(hits) == shape.granted:
        prefix_cache.publish(draft, request, number, committed=False)
        _commit(draft, request, number)
        return True
    first = len(hits) // config.chunk_pages
    missing = frozenset((chunk, rank) for chunk in range(first, config.chunks(request)) for rank in config.handles)
    attempt = attempt._replace(
        missing=missing,
        due=len(missing),
        filled=LATE_FILL not in config.parts,
        registered=LATE_REGISTER not in config.parts or config.guarded(REGISTER_BEFORE_SEND),
    )
    draft.set_attempt(request, number, attempt)
    told = attempt.filled or not config.guarded(LOCAL_WORK_BEFORE_GRANT)
    if told:
        _advertise(draft, request, number)
    return True


def fresh(draft: Draft, request: str, attempt: Attempt) -> tuple[Ticket, ...]:
    """The pages that prefill is asked to fill."""
    return attempt.tickets[attempt.hits : draft.config.shapes[request].granted]


def _advertise(draft: Draft, request: str, number: int) -> None:
    """Prefill learns the addresses of the pages that it is asked to fill."""
    attempt = draft.attempt(request, number)._replace(reserved=True)
    draft.set_attempt(request, number, attempt)
    draft.grant(DECODE, fresh(draft, request, attempt), PREFILL, draft.config.handles)
    prefix_cache.publish(draft, request, number, committed=False)
    draft.send(Message("reserve", request, number, pages=fresh(draft, request, attempt)))


def fill(draft: Draft, request: str, number: int) -> bool:
    """The queued zeros are written, whatever is there by now."""
    attempt = draft.attempt(request, number)
    if attempt.filled or attempt.ended is not None:
        return False
    for ticket in fresh(draft, request, attempt):
        draft.fill(DECODE, ticket.page, range(draft.config.layers), None)
    draft.set_attempt(request, number, attempt._replace(filled=True))
    if not attempt.reserved:
        _advertise(draft, request, number)
    return True


def register(draft: Draft, request: str, number: int) -> bool:
    """From now on messages about this transfer find it."""
    attempt = draft.attempt(request, number)
    draft.set_attempt(request, number, attempt._replace(registered=True))
    return not attempt.registered


def receive_written(draft: Draft, message: Message) -> bool:
    """News of a rank's part of a chunk: stop evidence for its pages if it is written, and progress of its attempt."""
    subject = (message.request, message.attempt)
    draft.report("received", DECODE, subject, message.type, message.chunk, message.ok)
    if not draft.attempt(*subject).registered:
        draft.report("ignored", DECODE, subject, message.type)
        return True
    if message.ok:
        for ticket in message.pages:
            draft.close(DECODE, ticket, "completions", (message.rank,))
    number = draft.newest(message.request)
    attempt = draft.attempt(message.request, number)
    if number != message.attempt or attempt.ended is not None:
        if _refuses(draft, message, "committed") or not attempt.reserved:
            return True
        draft.stray("message", message.request, message.attempt, message.request)
    assert message.chunk is not None
    short = draft.config.shapes[message.request].too_long
    part = frozenset({(message.chunk, message.rank)})
    attempt = attempt._replace(
        missing=frozenset() if short else attempt.missing - part,
        failed=attempt.failed if message.ok else attempt.failed | part,
        due=max(0, attempt.due - 1),
    )
    draft.set_attempt(message.request, number, attempt)
    last = attempt.due == 0 or short
    if not attempt.committed and (last or not message.ok):
        _conclude(draft, message.request, number, last)
    return True


def _refuses(draft: Draft, message: Message, leads_to: str) -> bool:
    """Whether a guard refuses what a message of an attempt that is not live would do."""
    return draft.refuse(CONTROL_CARRIES_GENERATION, DECODE, (message.request, message.attempt), leads_to)


def _conclude(draft: Draft, request: str, number: int, last: bool) -> None:
    """With the last news that is due, or the first of a failure, it is decided whether the transfer is complete."""
    config, attempt = draft.config, draft.attempt(request, number)
    short = config.shapes[request].too_long
    objections = (
        (COMMIT_WHEN_WHOLE, bool(attempt.failed or attempt.missing)),
        (LENGTHS_AGREE, short),
        (BYTES_BEFORE_COMMIT, ANSWER_EARLY in config.faults and not _all_there(draft, request, number, attempt)),
    )
    refused = any(wrong and draft.refuse(guard, DECODE, (request, number), "committed") for guard, wrong in objections)
    if refused and (attempt.failed or short or not attempt.missing):
        if not config.guarded(EVERY_HANDLE_STOPPED):
            for ticket in fresh(draft, request, attempt):
                draft.close(DECODE, ticket, "completions", config.handles)
        _end(draft, request, number, "failed")
    elif last and not refused:
        _commit(draft, request, number)


def _all_there(draft: Draft, request: str, number: int, attempt: Attempt) -> bool:
    """Whether an attempt's pages hold what prefill was asked for."""
    granted = attempt.tickets[: draft.config.shapes[request].granted]
    return all(
        content == Content(request, number, index)
        for index, ticket in enumerate(granted)
        if index >= attempt.hits
        for content in draft.side(DECODE).content[ticket.page]
    )


def receive_failed(draft: Draft, message: Message) -> bool:
    """Prefill has ended the attempt: so does decode."""
    subject = (message.request, message.attempt)
    draft.report("received", DECODE, subject, message.type, message.chunk, message.ok)
    number = draft.newest(message.request)
    attempt = draft.attempt(message.request, number)
    live = number == message.attempt and attempt.ended is None
    if not live and _refuses(draft, message, "failed"):
        return True
    if attempt.committed or attempt.ended is not None:
        draft.report("ignored", DECODE, subject, message.type)
        return True
    if not live:
        draft.stray("message", message.request, message.attempt, message.request)
    _end(draft, message.request, number, "failed")
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
            draft.close(DECODE, ticket, "acknowledged", draft.config.handles)
    return True


def receive_hello(draft: Draft, message: Message) -> bool:
    """Another prefill has come: whoever was with the old one has nobody."""
    if draft.config.guarded(CHECK_INCARNATION):
        draft.know(DECODE, message.attempt)
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
    return TIME_OUT in draft.config.faults and _give_up(draft, request, number, "timed-out")


def abort(draft: Draft, request: str, number: int) -> bool:
    """The client gives up."""
    return ABORT in draft.config.faults and _give_up(draft, request, number, "aborted")


def give_up(draft: Draft, request: str, number: int) -> bool:
    """The watchdog: nothing has come from prefill for too long."""
    if RECEIVE_TIME_OUT not in draft.config.faults:
        return False
    if not _waits(draft, request, number) or not draft.refuse(RECEIVE_WATCHDOG, DECODE, (request, number), SILENCE):
        return False
    return _give_up(draft, request, number, "failed")


def orphan(draft: Draft, request: str, number: int) -> bool:
    """The prefill that the attempt was with is no more."""
    if draft.attempt(request, number).peer == draft.side(DECODE).epoch:
        return False
    return _waits(draft, request, number) and _give_up(draft, request, number, "failed")


def _waits(draft: Draft, request: str, number: int) -> bool:
    """Whether an attempt waits for prefill."""
    attempt = draft.attempt(request, number)
    return attempt.reserved and not attempt.committed


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
    waited = attempt.reserved and not attempt.committed
    if waited and draft.refuse(TELL_PEER_OF_END, DECODE, (request, number), SILENCE):
        draft.send(Message("abort", request, number))
    prefix_cache.release(draft, attempt.tickets)

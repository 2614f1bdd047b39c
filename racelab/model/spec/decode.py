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
    BATCH,
    BYTES_BEFORE_COMMIT,
    CHECK_INCARNATION,
    COMMIT_TOGETHER,
    COMMIT_WHEN_WHOLE,
    CONTROL_CARRIES_GENERATION,
    DECODE,
    END_FREES_PAGES,
    EVERY_HANDLE_STOPPED,
    LATE_FILL,
    LATE_REGISTER,
    LENGTHS_AGREE,
    LOCAL_WORK_BEFORE_GRANT,
    NIC,
    NO_SLOT,
    PREFILL,
    RECEIVE_TIME_OUT,
    RECEIVE_WATCHDOG,
    REGISTER_BEFORE_SEND,
    RETRACT,
    RETRACTION_RENEWS_ATTEMPT,
    RETRY,
    RETRY_TAKES_OTHER_PAGES,
    ROUTER,
    SLOT_CARRIES_OWNER,
    TELL_PEER_OF_END,
    TIME_OUT,
    UNIQUE_TRANSFER_ID,
    Attempt,
    Content,
    Job,
    Message,
    Owner,
    Ticket,
    Write,
)

SILENCE = "silence"
"""What a duty that is left out leads to."""


def submit(draft: Draft, request: str) -> bool:
    """The client submits a request, or one that has ended once more; it waits for pages."""
    if draft.config.pulls or not can_submit(draft, request):
        return False
    number = add(draft, request, Attempt(), Job())
    draft.report("submitted", DECODE, (request, number))
    room, holder = draft.config.shapes[request].room, draft.in_room(DECODE, request)
    in_use = holder is not None and draft.attempt(*holder).ended is None
    if in_use and draft.refuse(UNIQUE_TRANSFER_ID, DECODE, (request, number), "admitted"):
        draft.set_attempt(request, number, Attempt(ended="failed"))
        draft.report("failed", DECODE, (request, number))
        return True
    if room is not None:
        draft.enter(DECODE, room, request, number)
    draft.queue = (*draft.queue, (request, number))
    return True


def can_submit(draft: Draft, request: str) -> bool:
    """Whether a request is new, or has ended and may be submitted again."""
    newest = draft.newest(request)
    over = not newest or draft.attempt(request, newest).ended is not None
    return newest < draft.config.attempts_max and over


def add(draft: Draft, request: str, attempt: Attempt, job: Job) -> int:
    """Another attempt of a request; returns its number."""
    place = draft.config.place[request]
    draft.attempts = (*draft.attempts[:place], (*draft.attempts[place], attempt), *draft.attempts[place + 1 :])
    draft.jobs = (*draft.jobs[:place], (*draft.jobs[place], job), *draft.jobs[place + 1 :])
    return draft.newest(request)


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
    if config.slots and not draft.side(DECODE).spare:
        return False
    draft.queue = draft.queue[1:]
    tickets = hits + draft.take(DECODE, shape.pages - len(hits), request, number)
    slot = draft.take_slot(request, number) if config.slots else NO_SLOT
    attempt = draft.attempt(request, number)._replace(
        tickets=tickets, hits=len(hits), peer=draft.side(DECODE).epoch, slot=slot
    )
    draft.set_attempt(request, number, attempt)
    pages = ((ticket.page, ticket.gen) for ticket in tickets)
    draft.report("admitted", DECODE, (request, number), len(hits), *pages)
    if len(hits) == shape.granted:
        prefix_cache.publish(draft, request, number, committed=False)
        commit(draft, request, number)
        return True
    missing, due = _news_due(draft, request, len(hits))
    attempt = attempt._replace(
        missing=frozenset() if config.pulls else missing,
        due=0 if config.pulls else due,
        filled=LATE_FILL not in config.parts,
        registered=LATE_REGISTER not in config.parts or config.guarded(REGISTER_BEFORE_SEND),
    )
    draft.set_attempt(request, number, attempt)
    told = attempt.filled or not config.guarded(LOCAL_WORK_BEFORE_GRANT)
    if told:
        _advertise(draft, request, number)
    return True


def _news_due(draft: Draft, request: str, hits: int) -> tuple[frozenset[tuple[int, int]], int]:
    """The chunks and ranks of which prefill owes news, and how much of it is of KV."""
    config = draft.config
    chunks = range(hits // config.chunk_pages, config.chunks(request))
    missing = frozenset((chunk, rank) for chunk in chunks for rank in config.handles)
    return missing, sum(config.is_kv(rank) for _, rank in missing)


def fresh(draft: Draft, request: str, attempt: Attempt) -> tuple[Ticket, ...]:
    """The pages that prefill is asked to fill."""
    return attempt.tickets[attempt.hits : draft.config.shapes[request].granted]


def _advertise(draft: Draft, request: str, number: int) -> None:
    """Prefill learns the addresses of the pages that it is asked to fill, or decode reads into them itself."""
    pulls = draft.config.pulls
    attempt = draft.attempt(request, number)._replace(reserved=not pulls)
    draft.set_attempt(request, number, attempt)
    granted = fresh(draft, request, attempt)
    draft.grant(DECODE, granted, NIC if pulls else PREFILL, (0,) if pulls else draft.config.handles)
    prefix_cache.publish(draft, request, number, committed=False)
    if pulls:
        post_reads(draft, request, number)
        return
    draft.send(Message("reserve", request, number, pages=fresh(draft, request, attempt)))


def post_reads(draft: Draft, request: str, number: int) -> None:
    """Decode posts the reads of the pages that its cache does not have."""
    attempt, layers = draft.attempt(request, number), range(draft.config.layers)
    epoch = draft.side(PREFILL).epoch
    indices = range(attempt.hits, draft.config.shapes[request].granted)
    for index in indices:
        target, source = attempt.tickets[index], attempt.ref[index]
        for layer in layers:
            draft.wire |= {
                Write(request, number, index, layer, target.page, target.gen, source.page, source.gen, epoch),
            }
            draft.report("posted", DECODE, target, index // draft.config.chunk_pages, layer, source.page)
    reading = frozenset((index, layer) for index in indices for layer in layers)
    draft.set_attempt(request, number, attempt._replace(reading=reading))


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
    draft.report("received", DECODE, subject, message.type, message.chunk, message.ok, message.rank)
    request, number = draft.live(message)
    attempt = draft.attempt(request, number)
    if not attempt.registered:
        draft.report("ignored", DECODE, subject, message.type)
        return True
    if message.ok:
        for ticket in message.pages:
            draft.close(DECODE, ticket, "completions", (message.rank,))
    elif not draft.config.guarded(EVERY_HANDLE_STOPPED):  # one rank's failure is taken for the end of all writes
        for ticket in fresh(draft, message.request, draft.attempt(*subject)):
            draft.close(DECODE, ticket, "failure-report", draft.config.handles)
    if (request, number) != subject or attempt.ended is not None:
        if _refuses(draft, message, "committed") or not attempt.reserved:
            return True
        draft.stray("message", message.request, message.attempt, request)
    elif not attempt.reserved:  # it waits again, for other pages
        return True
    assert message.chunk is not None
    short = draft.config.shapes[message.request].too_long
    part = frozenset({(message.chunk, message.rank)})
    attempt = attempt._replace(
        missing=frozenset() if short else attempt.missing - part,
        failed=attempt.failed if message.ok else attempt.failed | part,
        due=max(0, attempt.due - draft.config.is_kv(message.rank)),
    )
    draft.set_attempt(request, number, attempt)
    last = attempt.due == 0 or short
    if not attempt.committed and (last or not message.ok):
        _conclude(draft, request, number, last, short)
    return True


def _refuses(draft: Draft, message: Message, leads_to: str) -> bool:
    """Whether a guard refuses what a message of an attempt that is not live would do."""
    return draft.refuse(CONTROL_CARRIES_GENERATION, DECODE, (message.request, message.attempt), leads_to)


def _conclude(draft: Draft, request: str, number: int, last: bool, short: bool) -> None:
    """With the last news of KV that is due, or the first of a failure, it is decided whether the transfer is complete:
    scales count for it if the guard is there."""
    config, attempt = draft.config, draft.attempt(request, number)
    failed, missing = (any(config.is_kv(rank) for _, rank in news) for news in (attempt.failed, attempt.missing))
    bad, lacking = (any(not config.is_kv(rank) for _, rank in news) for news in (attempt.failed, attempt.missing))
    objections = (
        (COMMIT_WHEN_WHOLE, failed or missing),
        (LENGTHS_AGREE, short),
        (BYTES_BEFORE_COMMIT, ANSWER_EARLY in config.faults and not _all_there(draft, request, number, attempt)),
    )
    refused = any(wrong and draft.refuse(guard, DECODE, (request, number), "committed") for guard, wrong in objections)
    if refused:
        if failed or short or not missing:
            end(draft, request, number, "failed")
    elif last and (bad or lacking) and draft.refuse(COMMIT_TOGETHER, DECODE, (request, number), "committed"):
        if bad:
            end(draft, request, number, "failed")
    elif last:
        commit(draft, request, number)


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
    request, number = draft.live(message)
    attempt = draft.attempt(request, number)
    if not attempt.registered:
        draft.report("ignored", DECODE, subject, message.type)
        return True
    live = (request, number) == subject and attempt.ended is None
    if not live and _refuses(draft, message, "failed"):
        return True
    if attempt.committed or attempt.ended is not None:
        draft.report("ignored", DECODE, subject, message.type)
        return True
    if not live:
        draft.stray("message", message.request, message.attempt, request)
    end(draft, request, number, "failed")
    return True


def commit(draft: Draft, request: str, number: int) -> None:
    """Decode takes the KV as complete: others may find it, and attention reads it, unless the batch is full.

    Its first token is the word that is in its slot.
    """
    running = BATCH not in draft.config.parts or not (_answering(draft) or _waiting(draft))
    attempt = draft.attempt(request, number)._replace(committed=True, running=running)
    draft.set_attempt(request, number, attempt)
    draft.report("committed", DECODE, (request, number), *_granted(draft, request, attempt))
    prefix_cache.publish(draft, request, number, committed=True)
    if attempt.reserved and attempt.slot != NO_SLOT and attempt.ended is None:
        _look_into_slot(draft, request, number, attempt.slot)
    if draft.config.pulls:
        draft.send(Message("complete", request, number, pages=attempt.ref))
    elif attempt.reserved:
        draft.send(Message("complete", request, number))


def _look_into_slot(draft: Draft, request: str, number: int, slot: int) -> None:
    word = draft.side(DECODE).slots[slot]
    if word != (request, number):
        if draft.refuse(SLOT_CARRIES_OWNER, DECODE, (request, number), "slot-read"):
            return
        draft.stray("slot", request, number, word.request if word else None)
    owner = word or Owner("", 0)
    draft.report("slot-read", DECODE, (request, number), slot, owner.request or None, owner.attempt)


def receive_ack(draft: Draft, message: Message) -> bool:
    """Prefill posts no more; if every write of it succeeded, that is stop evidence for all its pages."""
    draft.report("received", DECODE, (message.request, message.attempt), message.type, message.chunk, message.ok)
    if not draft.attempt(*draft.live(message)).registered:
        draft.report("ignored", DECODE, (message.request, message.attempt), message.type)
    elif message.ok:
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


def enter(draft: Draft, request: str, number: int) -> bool:
    """Its turn in the batch has come."""
    attempt = draft.attempt(request, number)
    if not attempt.waits_its_turn or _answering(draft):
        return False
    draft.set_attempt(request, number, attempt._replace(running=True))
    return True


def _waiting(draft: Draft) -> bool:
    """Whether somebody waits for the batch."""
    return any(attempt.waits_its_turn for row in draft.attempts for attempt in row)


def _answering(draft: Draft) -> bool:
    """Whether somebody is in the batch."""
    return any(attempt.running for row in draft.attempts for attempt in row)


def finish(draft: Draft, request: str, number: int) -> bool:
    """The answer is complete."""
    if not draft.attempt(request, number).running:
        return False
    end(draft, request, number, "finished")
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
    attempt = draft.attempt(request, number)
    if number != draft.newest(request) or attempt.ended is not None or attempt.stage == "away":
        return False
    end(draft, request, number, how)
    return True


def end(draft: Draft, request: str, number: int, how: str) -> None:
    """The request ends now; its pages go the way that the guards allow."""
    attempt = draft.attempt(request, number)
    draft.set_attempt(request, number, attempt._replace(ended=how, running=False))
    draft.queue = tuple(entry for entry in draft.queue if entry != (request, number))
    draft.report(how, DECODE, (request, number))
    waited = attempt.reserved and not attempt.committed
    if waited and draft.refuse(TELL_PEER_OF_END, DECODE, (request, number), SILENCE):
        draft.send(Message("abort", request, number))
    if draft.config.pulls and not attempt.committed:
        leave_sources(draft, request, number)
    forgotten = attempt.waits_its_turn and _answering(draft)
    if not forgotten or draft.refuse(END_FREES_PAGES, DECODE, (request, number), SILENCE):
        prefix_cache.release(draft, attempt.tickets)
    if attempt.slot != NO_SLOT and attempt.ended is None:
        draft.vacate(attempt.slot, request, number)


def retract(draft: Draft, request: str, number: int) -> bool:
    """Decode's scheduler takes an attempt's pages back, and nobody asks what is under way to them. The request waits
    for others: as another attempt, or, if no guard minds, as the one that it was."""
    config, attempt = draft.config, draft.attempt(request, number)
    seated = bool(attempt.tickets) and (request, number) not in draft.queue
    if RETRACT not in config.faults or config.pulls or not seated or attempt.again or attempt.ended is not None:
        return False
    if number != draft.newest(request) or number >= config.attempts_max:
        return False
    if draft.refuse(RETRACTION_RENEWS_ATTEMPT, DECODE, (request, number), "admitted"):
        end(draft, request, number, "retracted")
        number = add(draft, request, Attempt(), Job())
        draft.report("submitted", DECODE, (request, number))
    else:
        end(draft, request, number, "requeued")
        draft.set_attempt(request, number, Attempt(again=True))
    room = config.shapes[request].room
    if room is not None:
        draft.enter(DECODE, room, request, number)
    draft.queue = (*draft.queue, (request, number))
    return True


def retry(draft: Draft, request: str, number: int) -> bool:
    """A router has another prefill serve a request. It begins anew, or, if no guard minds, the other one is given the
    same pages: what it says is taken for both. Here each has an attempt; in a system they are one."""
    config, attempt = draft.config, draft.attempt(request, number)
    if RETRY not in config.faults or config.pulls or ROUTER in config.parts or config.slots:
        return False
    if config.shapes[request].room is not None or attempt.ended is not None or not _waits(draft, request, number):
        return False
    if number != draft.newest(request) or number >= config.attempts_max:
        return False
    if draft.refuse(RETRY_TAKES_OTHER_PAGES, DECODE, (request, number), "retried"):
        end(draft, request, number, "retried")
        number = add(draft, request, Attempt(), Job())
        draft.report("submitted", DECODE, (request, number))
        draft.queue = (*draft.queue, (request, number))
        return True
    draft.report("retried", DECODE, (request, number))
    draft.set_attempt(request, number, attempt._replace(ended="retried", tickets=()))
    if draft.refuse(TELL_PEER_OF_END, DECODE, (request, number), SILENCE):
        draft.send(Message("abort", request, number))
    missing, due = _news_due(draft, request, attempt.hits)
    number = add(draft, request, attempt._replace(missing=missing, due=due, failed=frozenset()), Job())
    pages = fresh(draft, request, attempt)
    draft.grant(DECODE, pages, PREFILL, config.handles)
    draft.send(Message("reserve", request, number, pages=pages))
    return True


def leave_sources(draft: Draft, request: str, number: int) -> None:
    """Decode reads no more of what its reference names: prefill hears of it once no read is outstanding."""
    attempt = draft.attempt(request, number)
    if attempt.reading or attempt.stage == "stale":
        return
    if draft.refuse(TELL_PEER_OF_END, DECODE, (request, number), SILENCE):
        draft.send(
            Message("release-source", request, number, None, not attempt.broken, attempt.ref), None, not attempt.broken
        )

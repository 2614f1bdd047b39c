"""What prefill does: take up an attempt, write its chunks into decode's pages, and let its own pages go."""

from __future__ import annotations

from collections.abc import Iterable

from racelab.model.spec.draft import Draft
from racelab.model.spec.state import (
    ACK_WHEN_DRAINED,
    ANSWER_EARLY,
    BOOTSTRAP_TIME_OUT,
    COMPUTE_BEFORE_POST,
    DECODE,
    FAIL,
    LATE_FORWARD,
    NIC,
    OVERTAKE,
    POST_AT_ONCE,
    PREFILL,
    RECEIVE_TIME_OUT,
    RECEIVE_WATCHDOG,
    REMEMBER_ENDED,
    RESTART,
    ROUTER,
    STOP_POSTING_ON_ABORT,
    TELL_PEER_OF_END,
    UNIQUE_TRANSFER_ID,
    Config,
    Content,
    Job,
    Message,
    Page,
    State,
    Write,
    initial,
)

SUCCESSOR_GEN = 100
"""The generation with which a prefill begins that takes another one's place: none comes twice."""
SILENCE = "silence"
"""What a duty that is left out leads to."""


def receive_reserve(draft: Draft, message: Message) -> bool:
    """Decode has pages for an attempt: it waits for source pages.

    A second copy changes nothing, unless the attempt has ended since: that opens it again, if no guard minds; so
    does a reserve that comes after the abort that follows it.
    """
    subject = (message.request, message.attempt)
    if not _in_order(draft, message):
        return False
    job, holder = draft.job(*subject), in_room(draft, *subject)
    draft.report("received", PREFILL, subject, message.type, message.chunk, message.ok)
    if holder == subject and not job.released and job.stage != "offered":
        draft.report("ignored", PREFILL, subject, message.type)
        return True
    in_use = holder not in (None, subject) and not draft.job(*holder).released if holder else False
    over = job.closed or (holder == subject and job.released)
    if (in_use and draft.refuse(UNIQUE_TRANSFER_ID, PREFILL, subject, "accepted")) or (
        over and draft.refuse(REMEMBER_ENDED, PREFILL, subject, "accepted")
    ):
        if job.closed:
            draft.send(Message("abort-ack", *subject, None, True, message.pages), None, True)
        else:
            draft.send(Message("failed", *subject))
        if holder == subject:  # what is said of its pages later is said of these
            draft.set_job(*subject, job._replace(pages=message.pages))
        return True
    begins = ROUTER not in draft.config.parts or (job.stage == "offered" and not job.released)
    shape = draft.config.shapes[message.request]
    first = 0 if shape.too_long else shape.granted - len(message.pages)
    start = first // draft.config.chunk_pages
    stage = "waiting" if begins else "reserved"
    job = Job(stage, first, message.pages, computed=start, posted=start, offered=job.offered, closed=job.closed)
    draft.set_job(*subject, job)
    if begins:
        draft.waiting = (*draft.waiting, subject)
    if shape.room is not None:
        draft.enter(PREFILL, shape.room, *subject)
    return True


def in_room(draft: Draft, request: str, number: int) -> tuple[str, int] | None:
    """Whom prefill knows by the transfer id of an attempt."""
    if draft.config.shapes[request].room is not None:
        return draft.in_room(PREFILL, request)
    return (request, number) if draft.job(request, number).stage != "none" else None


def _in_order(draft: Draft, message: Message) -> bool:
    """Where a transfer id is used again, what was said of its last owner before comes before."""
    room = draft.config.shapes[message.request].room
    if OVERTAKE in draft.config.faults or room is None:
        return True
    current = draft.side(DECODE).rooms
    for other in draft.net:
        if other.type not in ("reserve", "abort", "complete") or other[1:3] == message[1:3]:
            continue
        if draft.config.shapes[other.request].room == room and (room, other.request, other.attempt) not in current:
            return False
    return True


def offer(draft: Draft, request: str, number: int) -> bool:
    """A router has the request for prefill too."""
    job = draft.job(request, number)
    if ROUTER not in draft.config.parts or job.offered:
        return False
    draft.report("offered", PREFILL, (request, number))
    if job.stage == "reserved" and not job.released:
        job = job._replace(stage="waiting")
        draft.waiting = (*draft.waiting, (request, number))
    elif job.stage == "none":
        job = job._replace(stage="offered")
    ends = job.stage == "offered" and job.closed and not job.released
    draft.set_job(request, number, job._replace(offered=True, released=job.released or ends))
    if ends:
        draft.report("attempt-ended", PREFILL, (request, number))
    return True


def give_up_offer(draft: Draft, request: str, number: int) -> bool:
    """No pages have come from decode."""
    job = draft.job(request, number)
    if BOOTSTRAP_TIME_OUT not in draft.config.faults or job.stage != "offered" or job.released:
        return False
    let_go(draft, request, number)
    return True


def can_accept(config: Config, state: State) -> bool:
    """Whether there are source pages for the first that waits."""
    return bool(state.waiting) and len(state.prefill.free) >= config.posted_pages(state.waiting[0][0])


def accept(draft: Draft, request: str, number: int) -> bool:
    """The first that waits takes source pages."""
    if draft.waiting[:1] != ((request, number),) or not can_accept(draft.config, draft.state):
        return False
    draft.waiting = draft.waiting[1:]
    sources = draft.take(PREFILL, draft.config.posted_pages(request), request, number)
    draft.set_job(request, number, draft.job(request, number)._replace(stage="accepted", sources=sources))
    draft.report("accepted", PREFILL, (request, number), *((source.page, source.gen) for source in sources))
    return True


def compute(draft: Draft, request: str, number: int, chunk: int) -> bool:
    """Where the forward of a chunk is queued it is a step of its own."""
    job = draft.job(request, number)
    if LATE_FORWARD not in draft.config.parts or job.stage != "accepted" or job.released:
        return False
    if job.computed != chunk or chunk >= draft.config.posted_chunks(request):
        return False
    _fill_sources(draft, request, number, chunk)
    draft.set_job(request, number, job._replace(computed=chunk + 1))
    return True


def _fill_sources(draft: Draft, request: str, number: int, chunk: int) -> None:
    job = draft.job(request, number)
    for index in draft.config.posted(request, chunk, job.first):
        nth = -1 if draft.config.shapes[request].too_long else index
        draft.fill(PREFILL, job.sources[index].page, range(draft.config.layers), Content(request, number, nth))


def post(draft: Draft, request: str, number: int, chunk: int) -> bool:
    """Post the writes of the next chunk, computed by now; from now on they cannot be called back."""
    config, job = draft.config, draft.job(request, number)
    if job.stage != "accepted" or job.released or job.posted != chunk or chunk >= config.posted_chunks(request):
        return False
    if config.pulls:
        return False
    now = LATE_FORWARD not in config.parts
    if not now and chunk >= job.computed and config.guarded(COMPUTE_BEFORE_POST):
        return False
    indices = config.posted(request, chunk, job.first)
    layers = range(config.layers)
    draft.grant(PREFILL, [job.sources[index] for index in indices], NIC)
    if now:
        _fill_sources(draft, request, number, chunk)
    epoch = draft.side(PREFILL).epoch
    for index in indices:
        source, target = job.sources[index], job.pages[index - job.first]
        for layer in layers:
            draft.wire |= {
                Write(request, number, index, layer, target.page, target.gen, source.page, source.gen, epoch),
            }
            draft.report("posted", PREFILL, target, chunk, layer, source.page)
    outstanding = job.outstanding | {(index, layer) for index in indices for layer in layers}
    if config.slots and chunk + 1 == config.posted_chunks(request):  # the first token is a part of the last chunk
        last, slot = indices[-1], draft.attempt(request, number).slot
        metadata = Write(request, number, last, config.layers, slot, 0, job.sources[last].page, 0, epoch)
        draft.wire |= {metadata}
        draft.report("posted", PREFILL, (request, number), chunk, None, None)
        outstanding |= {metadata[2:4]}
    draft.set_job(request, number, job._replace(posted=chunk + 1, outstanding=outstanding))
    if job.aborted and chunk + 1 == config.posted_chunks(request):  # it has gone on to the end
        let_go(draft, request, number)
    return True


def complete(draft: Draft, request: str, number: int, writes: Iterable[tuple[int, int]], ok: bool) -> bool:
    """The transport is done with some writes of a rank's part of a chunk. Only success says that they have landed."""
    config, job = draft.config, draft.job(request, number)
    done = frozenset(writes)
    parts = {_part(draft, write) for write in done}
    if len(parts) != 1 or not done <= job.outstanding or not (ok or FAIL in config.faults):
        return False
    flying = any(_is_of(draft, write, request, number, done) for write in draft.wire)
    if ok and flying and ANSWER_EARLY not in config.faults:
        return False
    (part,) = parts
    draft.report("completed", PREFILL, (request, number), done, ok)
    job = job._replace(
        outstanding=job.outstanding - done,
        done=job.done | done if ok else job.done,
        failed=job.failed if ok else job.failed | {part},
    )
    draft.set_job(request, number, job)
    for index in sorted({index for index, _ in done}):
        if all((index, layer) in job.done for layer in range(config.layers)):
            draft.close(PREFILL, job.sources[index], "completions")
    if all(_part(draft, write) != part for write in job.outstanding):
        _tell_written(draft, request, number, job, part)
    if job.owes and not job.outstanding:
        _acknowledge(draft, request, number)
    return True


def _part(draft: Draft, write: tuple[int, int]) -> tuple[int, int]:
    """The chunk and the rank that a write is of."""
    index, layer = write
    return index // draft.config.chunk_pages, draft.config.rank_of(layer)


def _is_of(draft: Draft, write: Write, request: str, number: int, writes: frozenset[tuple[int, int]]) -> bool:
    """Whether a write in the network is one of these of an attempt, posted by this prefill."""
    alive = write.epoch == draft.side(PREFILL).epoch
    return alive and write[:2] == (request, number) and (write.nth, write.layer) in writes


def receive_abort(draft: Draft, message: Message) -> bool:
    """Post no more, unless no guard minds, let the source pages go, and say when nothing is outstanding."""
    subject, config = (message.request, message.attempt), draft.config
    draft.report("received", PREFILL, subject, message.type, message.chunk, message.ok)
    holder = in_room(draft, *subject)
    overtakes = holder != subject and any(sent[:3] == ("reserve", *subject) for sent in draft.net)
    if overtakes and OVERTAKE not in config.faults:
        return False
    if holder is None:
        draft.set_job(*subject, draft.job(*subject)._replace(closed=True))
        draft.report("ignored", PREFILL, subject, message.type)
        return True
    request, number = subject
    job = draft.job(request, number)
    posting = job.stage == "accepted" and not job.released and job.posted < config.posted_chunks(request)
    next_to_post = draft.waiting[:1] == ((request, number),) and can_accept(config, draft.state)
    if POST_AT_ONCE in config.parts and (posting or next_to_post):
        return False
    _note_stranger(draft, message, holder)
    request, number = holder
    job = draft.job(request, number)
    draft.set_job(request, number, job._replace(aborted=True))
    goes_on = not job.released and job.posted < config.posted_chunks(request)
    if not goes_on or draft.refuse(STOP_POSTING_ON_ABORT, PREFILL, (request, number), "posted"):
        let_go(draft, request, number)
    _acknowledge(draft, request, number)
    return True


def receive_complete(draft: Draft, message: Message) -> bool:
    """Decode has taken the KV over: the source pages may go."""
    subject = (message.request, message.attempt)
    draft.report("received", PREFILL, subject, message.type, message.chunk, message.ok)
    holder = in_room(draft, *subject)
    if holder is None:
        draft.report("ignored", PREFILL, subject, message.type)
        return True
    _note_stranger(draft, message, holder)
    let_go(draft, *holder)
    return True


def _note_stranger(draft: Draft, message: Message, holder: tuple[str, int]) -> None:
    """What a message tells is taken for the attempt that is in its room."""
    if holder != (message.request, message.attempt):
        draft.stray("message", message.request, message.attempt, holder[0])


def let_go(draft: Draft, request: str, number: int) -> None:
    """Prefill is done with an attempt: its source pages go."""
    job = draft.job(request, number)
    if job.released:
        return
    draft.set_job(request, number, job._replace(released=True))
    draft.waiting = tuple(entry for entry in draft.waiting if entry != (request, number))
    draft.report("attempt-ended", PREFILL, (request, number))
    for source in job.sources:
        draft.release(PREFILL, source)


def _tell_written(draft: Draft, request: str, number: int, job: Job, part: tuple[int, int]) -> None:
    chunk, rank = part
    ok = part not in job.failed
    pages = tuple(job.pages[index - job.first] for index in draft.config.posted(request, chunk, job.first))
    draft.send(Message("written", request, number, chunk, ok, pages, rank), chunk, ok, rank)


def _acknowledge(draft: Draft, request: str, number: int) -> None:
    """Say that nothing of an aborted attempt can land any more, now or when it is so."""
    job = draft.job(request, number)
    unsure = bool(job.outstanding or job.failed)
    clean = not (unsure and draft.refuse(ACK_WHEN_DRAINED, PREFILL, (request, number), "page-free"))
    owes = not clean and bool(job.outstanding)
    draft.set_job(request, number, job._replace(owes=owes))
    if not owes:
        draft.send(Message("abort-ack", request, number, None, clean, job.pages), None, clean)


def will_give_up(config: Config, job: Job) -> bool:
    """Whether prefill's watchdog ends the attempt if decode does not say that it is done."""
    watched = RECEIVE_TIME_OUT in config.faults and config.guarded(RECEIVE_WATCHDOG)
    return watched and not config.pulls and job.stage not in ("none", "offered") and not job.released


def give_up_source(draft: Draft, request: str, number: int) -> bool:
    """The watchdog of prefill: decode has not said that it is done."""
    if not will_give_up(draft.config, draft.job(request, number)):
        return False
    draft.refuse(RECEIVE_WATCHDOG, PREFILL, (request, number), SILENCE)
    let_go(draft, request, number)
    if draft.refuse(TELL_PEER_OF_END, PREFILL, (request, number), SILENCE):
        draft.send(Message("failed", request, number))
    return True


def restart(draft: Draft) -> bool:
    """Prefill dies, and another takes its place: it knows of nothing, and says that it is there."""
    if RESTART not in draft.config.faults or draft.side(PREFILL).epoch:
        return False
    fresh = (Page(gen=SUCCESSOR_GEN),) * draft.config.prefill_pages
    draft.renew(PREFILL, initial(draft.config).prefill._replace(epoch=1, pages=fresh))
    draft.jobs = tuple(tuple(Job() for _ in row) for row in draft.jobs)
    draft.waiting = ()
    draft.net |= {Message("hello", "", 1)}
    return True

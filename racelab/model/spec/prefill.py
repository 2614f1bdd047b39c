"""What prefill does: take up an attempt, write its chunks into decode's pages, and let its own pages go."""

from __future__ import annotations

from collections.abc import Iterable

from racelab.model.spec.draft import Draft
from racelab.model.spec.state import FAIL, PREFILL, Content, Job, Message, Write

NIC = "nic"


def receive_reserve(draft: Draft, message: Message) -> bool:
    """Decode has pages for an attempt: it waits for source pages. A second copy changes nothing."""
    job = draft.job(message.request, message.attempt)
    draft.report("received", PREFILL, (message.request, message.attempt), message.type, message.chunk, message.ok)
    if job.stage != "none":
        draft.report("ignored", PREFILL, (message.request, message.attempt), message.type)
        return True
    first = draft.config.shapes[message.request].granted - len(message.pages)
    job = Job("waiting", first, message.pages, posted=first // draft.config.chunk_pages)
    draft.set_job(message.request, message.attempt, job)
    draft.waiting = (*draft.waiting, (message.request, message.attempt))
    return True


def accept(draft: Draft, request: str, number: int) -> bool:
    """The first that waits takes source pages."""
    count = draft.config.shapes[request].granted
    if draft.waiting[:1] != ((request, number),) or len(draft.side(PREFILL).free) < count:
        return False
    draft.waiting = draft.waiting[1:]
    sources = draft.take(PREFILL, count, request, number)
    draft.set_job(request, number, draft.job(request, number)._replace(stage="accepted", sources=sources))
    draft.report("accepted", PREFILL, (request, number), *((source.page, source.gen) for source in sources))
    return True


def post(draft: Draft, request: str, number: int, chunk: int) -> bool:
    """Compute the next chunk into its source pages and post its writes; from now on they cannot be called back."""
    job = draft.job(request, number)
    if job.stage != "accepted" or job.released or job.posted != chunk or chunk >= draft.config.chunks(request):
        return False
    indices = draft.config.of_chunk(request, chunk, job.first)
    layers = range(draft.config.layers)
    draft.grant(PREFILL, [job.sources[index] for index in indices], NIC)
    for index in indices:
        source, target = job.sources[index], job.pages[index - job.first]
        draft.fill(PREFILL, source.page, layers, Content(request, number, index))
        for layer in layers:
            draft.wire |= {
                Write(request, number, index, layer, target.page, target.gen, source.page, source.gen),
            }
            draft.report("posted", PREFILL, target, chunk, layer, source.page)
    outstanding = job.outstanding | {(index, layer) for index in indices for layer in layers}
    draft.set_job(request, number, job._replace(posted=chunk + 1, outstanding=outstanding))
    return True


def complete(draft: Draft, request: str, number: int, writes: Iterable[tuple[int, int]], ok: bool) -> bool:
    """The transport is done with some writes of one chunk. Only success says that they have landed."""
    job = draft.job(request, number)
    done = frozenset(writes)
    chunks = {index // draft.config.chunk_pages for index, _ in done}
    if len(chunks) != 1 or not done <= job.outstanding or not (ok or FAIL in draft.config.faults):
        return False
    if ok and any(write[:2] == (request, number) and (write.nth, write.layer) in done for write in draft.wire):
        return False
    (chunk,) = chunks
    draft.report("completed", PREFILL, (request, number), frozenset(done), ok)
    job = job._replace(
        outstanding=job.outstanding - done,
        done=job.done | done if ok else job.done,
        failed=job.failed if ok else job.failed | {chunk},
    )
    draft.set_job(request, number, job)
    for index in sorted({index for index, _ in done}):
        if all((index, layer) in job.done for layer in range(draft.config.layers)):
            draft.close(PREFILL, job.sources[index], "completions")
    if all(index // draft.config.chunk_pages != chunk for index, _ in job.outstanding):
        _tell_written(draft, request, number, job, chunk)
    if job.aborted and not job.outstanding:
        _acknowledge(draft, request, number, job)
    return True


def receive_abort(draft: Draft, message: Message) -> bool:
    """Post no more, let the source pages go, and say when nothing is outstanding."""
    request, number = message.request, message.attempt
    draft.report("received", PREFILL, (request, number), message.type, message.chunk, message.ok)
    if draft.job(request, number).stage == "none":
        draft.report("ignored", PREFILL, (request, number), message.type)
        return True
    draft.set_job(request, number, draft.job(request, number)._replace(aborted=True))
    draft.waiting = tuple(entry for entry in draft.waiting if entry != (request, number))
    _release(draft, request, number)
    job = draft.job(request, number)
    if not job.outstanding:
        _acknowledge(draft, request, number, job)
    return True


def receive_complete(draft: Draft, message: Message) -> bool:
    """Decode has taken the KV over: the source pages may go."""
    request, number = message.request, message.attempt
    draft.report("received", PREFILL, (request, number), message.type, message.chunk, message.ok)
    if draft.job(request, number).stage == "none":
        draft.report("ignored", PREFILL, (request, number), message.type)
        return True
    _release(draft, request, number)
    return True


def _release(draft: Draft, request: str, number: int) -> None:
    job = draft.job(request, number)
    if job.released:
        return
    draft.set_job(request, number, job._replace(released=True))
    draft.report("attempt-ended", PREFILL, (request, number))
    for source in job.sources:
        draft.release(PREFILL, source)


def _tell_written(draft: Draft, request: str, number: int, job: Job, chunk: int) -> None:
    ok = chunk not in job.failed
    pages = tuple(job.pages[index - job.first] for index in draft.config.of_chunk(request, chunk, job.first))
    draft.send(Message("written", request, number, chunk, ok, pages), chunk, ok)


def _acknowledge(draft: Draft, request: str, number: int, job: Job) -> None:
    clean = not job.failed
    draft.send(Message("abort-ack", request, number, None, clean, job.pages), None, clean)

"""Transfers that decode pulls: a lease, a reference, a claim, reads, and the word that the source pages may go.

A reader that waits renews the lease. Renewals change nothing but when a lease can end, so that they are no steps: it
ends where nobody renews it, or where what renews it can be lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from racelab.model.spec.decode import add, can_submit, commit, end, leave_sources
from racelab.model.spec.draft import Draft
from racelab.model.spec.prefill import let_go
from racelab.model.spec.state import (
    ABORT,
    ANSWER_EARLY,
    DECODE,
    FAIL,
    LEASE,
    LOSE,
    OLD_REFERENCE,
    PREFILL,
    REFERENCE_NAMES_GENERATION,
    RENEW_LEASE,
    TIME_OUT,
    Attempt,
    Content,
    Job,
    Message,
)


def request(draft: Draft, name: str) -> bool:
    """The client submits a request to prefill, where it waits for source pages."""
    if not draft.config.pulls or not can_submit(draft, name):
        return False
    number = add(draft, name, Attempt(stage="away"), Job("waiting"))
    draft.waiting = (*draft.waiting, (name, number))
    draft.report("submitted", PREFILL, (name, number))
    return True


def refer(draft: Draft, name: str, number: int) -> bool:
    """All is computed: the client gets its reference, and the lease begins."""
    job = draft.job(name, number)
    if not draft.config.pulls or job.stage != "accepted" or job.released:
        return False
    for index, source in enumerate(job.sources):
        draft.fill(PREFILL, source.page, range(draft.config.layers), Content(name, number, index))
    draft.set_job(name, number, job._replace(stage="referenced"))
    draft.set_attempt(name, number, draft.attempt(name, number)._replace(ref=job.sources))
    draft.report("referenced", PREFILL, (name, number))
    return True


def forward(draft: Draft, name: str, number: int) -> bool:
    """The client takes its request and its reference to decode, which claims the pages."""
    attempt = draft.attempt(name, number)
    if attempt.stage != "away" or not attempt.ref or attempt.ended is not None:
        return False
    draft.set_attempt(name, number, attempt._replace(stage="claiming"))
    draft.report("forwarded", DECODE, (name, number))
    draft.send(Message("claim", name, number, pages=attempt.ref))
    return True


def present(draft: Draft, name: str, of: str) -> bool:
    """A client comes to decode with the reference that was made for another request."""
    config = draft.config
    if OLD_REFERENCE not in config.faults or not config.pulls or of == name or not can_submit(draft, name):
        return False
    made = [attempt.ref for attempt in draft.attempts[config.place[of]] if attempt.ref]
    if not made or len(made[-1]) < config.shapes[name].granted:
        return False
    number = add(draft, name, Attempt(stage="claiming", ref=made[-1]), Job())
    draft.report("submitted", DECODE, (name, number))
    draft.send(Message("claim", name, number, pages=made[-1]))
    return True


def time_out_away(draft: Draft, name: str, number: int) -> bool:
    """The client's time runs out before it has its reference."""
    return TIME_OUT in draft.config.faults and _leave(draft, name, number, "timed-out")


def abort_away(draft: Draft, name: str, number: int) -> bool:
    """The client gives up before it has its reference."""
    return ABORT in draft.config.faults and _leave(draft, name, number, "aborted")


def _leave(draft: Draft, name: str, number: int, how: str) -> bool:
    attempt = draft.attempt(name, number)
    if attempt.stage != "away" or attempt.ended is not None or attempt.ref or draft.job(name, number).released:
        return False
    draft.report(how, PREFILL, (name, number))
    draft.set_attempt(name, number, attempt._replace(ended=how))
    let_go(draft, name, number)
    return True


def receive_claim(draft: Draft, message: Message) -> bool:
    """Whoever claims may read from now on.

    With the guard a reference is honoured for the attempt that it was made for, while its pages live.
    """
    subject, owner = (message.request, message.attempt), message.pages[0][2:4]
    draft.report("received", PREFILL, subject, message.type, message.chunk, message.ok)
    job = draft.job(*owner)
    pinned = [ticket for ticket in message.pages if not job.released and ticket in job.sources]
    wrong = len(pinned) < len(message.pages) or owner != subject
    if wrong and draft.refuse(REFERENCE_NAMES_GENERATION, PREFILL, subject, "posted"):
        draft.send(Message("claimed", *subject, None, False), None, False)
        return True
    draft.grant(PREFILL, [ticket for ticket in pinned if not draft.is_granted(PREFILL, ticket)], DECODE)
    if not job.released:
        draft.set_job(*owner, job._replace(readers=job.readers | {subject}))
    draft.send(Message("claimed", *subject), None, True)
    return True


def receive_readers_end(draft: Draft, message: Message) -> bool:
    """Everything was read, or nobody will read any more. Reads that failed may take effect all the same."""
    subject, owner = (message.request, message.attempt), message.pages[0][2:4]
    draft.report("received", PREFILL, subject, message.type, message.chunk, message.ok)
    job = draft.job(*owner)
    if subject not in {owner, *job.readers}:
        draft.report("ignored", PREFILL, subject, message.type)
        return True
    if message.ok:
        for source in job.sources:
            draft.close(PREFILL, source, "acknowledged")
    let_go(draft, *owner)
    return True


def lapse(draft: Draft, name: str, number: int) -> bool:
    """The lease ends. It is longer than the answer to a claim is under way, and whoever waits to read renews it."""
    config, job = draft.config, draft.job(name, number)
    if LEASE not in config.faults or job.stage != "referenced" or job.released:
        return False
    waiting = [reader for reader in job.readers if _waits(draft, *reader)]
    answered = any(message.type == "claimed" and message[1:3] in waiting for message in draft.net)
    if LOSE not in config.faults and (answered or (waiting and config.guarded(RENEW_LEASE))):
        return False
    draft.report("lease-expired", PREFILL, (name, number))
    let_go(draft, name, number)
    return True


def _waits(draft: Draft, name: str, number: int) -> bool:
    """Whether an attempt still waits to read, or its word that it does not is on the way."""
    attempt = draft.attempt(name, number)
    ends = ("complete", "release-source")
    told = any(message.type in ends and message[1:3] == (name, number) for message in draft.net)
    return told or (attempt.ended is None and not attempt.committed)


def receive_claimed(draft: Draft, message: Message) -> bool:
    """Prefill answers a claim: the request waits for pages, or its reference is stale."""
    subject = (message.request, message.attempt)
    attempt = draft.attempt(*subject)
    draft.report("received", DECODE, subject, message.type, message.chunk, message.ok)
    if attempt.ended is not None:
        draft.report("ignored", DECODE, subject, message.type)
    elif message.ok:
        draft.set_attempt(*subject, attempt._replace(stage="here"))
        draft.queue = (*draft.queue, subject)
    else:
        draft.set_attempt(*subject, attempt._replace(stage="stale"))
        end(draft, *subject, "failed")
    return True


def complete_read(draft: Draft, name: str, number: int, reads: Iterable[tuple[int, int]], ok: bool) -> bool:
    """The transport is done with some of an attempt's reads."""
    config, attempt, done = draft.config, draft.attempt(name, number), frozenset(reads)
    if not config.pulls or not done or not done <= attempt.reading or not (ok or FAIL in config.faults):
        return False
    flying = any(read[:2] == (name, number) and read[2:4] in done for read in draft.wire)
    if ok and flying and ANSWER_EARLY not in config.faults:
        return False
    draft.report("completed", DECODE, (name, number), done, ok)
    got = attempt.got | done if ok else attempt.got
    attempt = attempt._replace(reading=attempt.reading - done, got=got, broken=attempt.broken or not ok)
    draft.set_attempt(name, number, attempt)
    for index in sorted({index for index, _ in done}):
        if all((index, layer) in got for layer in range(config.layers)):
            draft.close(DECODE, attempt.tickets[index], "completions")
    if attempt.ended is not None:
        leave_sources(draft, name, number)
    elif attempt.broken:
        end(draft, name, number, "failed")
    elif not attempt.reading:
        commit(draft, name, number)
    return True

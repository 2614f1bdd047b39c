"""What happens between the two, and nobody decides: writes land, messages are lost, drains run out."""

from __future__ import annotations

from racelab.model.spec.draft import Draft
from racelab.model.spec.state import DECODE, GHOST, LOSE, PREFILL, Content, Message, Owner, Write


def land(draft: Draft, write: Write) -> bool:
    """The NIC reads the source page and writes the target page, whoever holds either by now.

    What a prefill that is dead has posted left its memory before.
    """
    if write not in draft.wire or is_slot(draft, write):
        return False
    alive = write.epoch == draft.side(PREFILL).epoch
    if alive and GHOST not in draft.config.faults and _has_failed(draft, write):
        return False
    if draft.config.pulls and not alive:  # a read takes what is there from a prefill that lives
        return False
    draft.wire -= {write}
    source = draft.side(PREFILL).pages[write.source]
    target = draft.side(DECODE).pages[write.page]
    if alive and (source.gen != write.source_gen or source.state == "FREE"):
        draft.stray("source", write.request, write.attempt, source.request)
    if target.gen != write.gen or target.state == "FREE":
        draft.stray("write", write.request, write.attempt, target.request)
    content: Content | None = Content(write.request, write.attempt, write.nth)
    if alive:
        content = draft.side(PREFILL).content[write.source][write.layer]
    draft.fill(DECODE, write.page, [write.layer], content)
    return True


def is_slot(draft: Draft, write: Write) -> bool:
    """Whether it writes metadata into a slot."""
    return write.layer == draft.config.layers


def land_in_slot(draft: Draft, write: Write) -> bool:
    """Nothing keeps what comes late out of a slot that has another owner by now."""
    if write not in draft.wire or not is_slot(draft, write):
        return False
    alive = write.epoch == draft.side(PREFILL).epoch
    if alive and GHOST not in draft.config.faults and _has_failed(draft, write):
        return False
    draft.wire -= {write}
    draft.put(write.page, Owner(write.request, write.attempt))
    return True


def vanish(draft: Draft, write: Write) -> bool:
    """A write whose completion was an error, or whose prefill died, never lands after all."""
    alive = write.epoch == draft.side(PREFILL).epoch
    if write not in draft.wire or (alive and not _has_failed(draft, write)):
        return False
    draft.wire -= {write}
    return True


def _has_failed(draft: Draft, write: Write) -> bool:
    job, attempt = draft.job(write.request, write.attempt), draft.attempt(write.request, write.attempt)
    known = attempt.reading | attempt.got if draft.config.pulls else job.outstanding | job.done
    return (write.nth, write.layer) not in known


def lose(draft: Draft, message: Message) -> bool:
    """A message is lost."""
    if message not in draft.net or LOSE not in draft.config.faults:
        return False
    draft.net -= {message}
    return True


def expire(draft: Draft, where: str, page: int) -> bool:
    """The drain of a page runs out."""
    if draft.side(where).pages[page].state != "DRAINING":
        return False
    draft.expire(where, page)
    return True

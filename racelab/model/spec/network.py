"""What happens between the two, and nobody decides: writes land, messages are lost, drains run out."""

from __future__ import annotations

from racelab.model.spec.draft import Draft
from racelab.model.spec.state import DECODE, GHOST, LOSE, PREFILL, Content, Message, Write


def land(draft: Draft, write: Write) -> bool:
    """The NIC reads the source page and writes the target page, whoever holds either by now.

    What a prefill that is dead has posted left its memory before.
    """
    if write not in draft.wire:
        return False
    alive = write.epoch == draft.side(PREFILL).epoch
    if alive and GHOST not in draft.config.faults and _has_failed(draft, write):
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


def vanish(draft: Draft, write: Write) -> bool:
    """A write whose completion was an error, or whose prefill died, never lands after all."""
    alive = write.epoch == draft.side(PREFILL).epoch
    if write not in draft.wire or (alive and not _has_failed(draft, write)):
        return False
    draft.wire -= {write}
    return True


def _has_failed(draft: Draft, write: Write) -> bool:
    job = draft.job(write.request, write.attempt)
    return (write.nth, write.layer) not in job.outstanding | job.done


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

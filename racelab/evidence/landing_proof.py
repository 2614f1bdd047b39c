"""Whether what the receiver saw in its own memory bears out how a write landed.

A gate's word that the target applied a write is not the receiver's: each look is compared with the bytes
that were posted, unless somebody may have written over them meanwhile. Answers are problems in words.
"""

from __future__ import annotations

from racelab.evidence.events import Event
from racelab.evidence.fingerprint import CHUNK_BYTES
from racelab.evidence.history import History
from racelab.evidence.naming import number
from racelab.evidence.provenance import Provenance
from racelab.evidence.writes import Write, Writes


def whole(history: History, write: Write, look: Event, held: str | None = None) -> str | None:
    """What the receiver saw after the landing is what was posted or, if the gate says what it `held`, that."""
    if look.data["fingerprint"] == (held or write.fingerprint) or look.data["end"] - look.data["start"] != write.bytes:
        return None
    if _may_be_other(history, write, look):
        return None
    return f"after the landing of {write.id} the receiver sees other bytes ({number(look)})"


def torn(history: History, write: Write, before: Event, after: Event) -> str | None:
    """The receiver saw the part that was let go, chunk by chunk, and behind it what had been there before."""
    provenance = history.derived(Provenance)
    posted, old, new = (
        provenance.chunks(seen) for seen in (write.fingerprint, before.data["fingerprint"], after.data["fingerprint"])
    )
    if not posted or not new:
        return f"nobody took apart what write {write.id} left ({number(after)})"
    complete, rest = divmod(write.torn or 0, CHUNK_BYTES)
    kept = complete + bool(rest)
    as_torn = new[:complete] == posted[:complete] and (not old or new[kept:] == old[kept:])
    if as_torn or _may_be_other(history, write, after):
        return None
    return f"what the receiver sees is not write {write.id} torn there ({number(after)})"


def _may_be_other(history: History, write: Write, look: Event) -> bool:
    return _overwritten(history, write, look) or _appended(history, write, look)


def _overwritten(history: History, write: Write, look: Event) -> bool:
    """Whether another write may have landed on the same page between the landing and the look."""
    causality = history.causality
    landed = write.completed if write.is_read else write.landed
    others = [
        other
        for other in history.derived(Writes)
        if other is not write and (other.posted.page, other.layer) == (write.posted.page, write.layer)
    ]
    return any(
        not (landed is not None and other.landing_before(landed, causality))
        and not other.landing_after(look, causality)
        for other in others
    )


def _appended(history: History, write: Write, look: Event) -> bool:
    """Whether the page's owner may append tokens of its own within the range."""
    if look.gen == write.posted.gen:
        return False
    sizes = [
        event.data["bytes"]
        for event in history.by_kind["granted"]
        if (event.instance, event.page, event.gen) == (look.instance, look.page, look.gen)
    ]
    return not sizes or sizes[-1] < write.bytes

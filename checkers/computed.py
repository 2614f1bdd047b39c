"""Writes that took their bytes from a source page before those had been computed.

The fingerprint of such a post is not that of its content key's source: what was computed is, and `work-done`
of a forward that had to wait says what that was.
"""

from __future__ import annotations

from typing import NamedTuple

from checkers.consumers import consumptions
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.writes import Write, Writes


class Early(NamedTuple):
    """One such write: what it posted is not what its chunk's forward then left there; `taken` is by whom, if known."""

    write: Write
    computed: Event
    fingerprint: str
    taken: Event | None


def early_posts(history: History) -> list[Early]:
    """All of a history, in the order of the forwards."""
    late = [event for event in history.by_kind["work-done"] if event.data["op"] == "forward"]
    late = [event for event in late if "fingerprints" in event.data]
    if not late:
        return []
    found = []
    writes = list(history.derived(Writes))
    for event in late:
        sources = {(page, layer, end): seen for page, _, layer, _, end, seen in event.data["fingerprints"]}
        for write in writes:
            posted = write.posted
            if posted.instance != event.instance or posted.seq > event.seq:
                continue
            same = (posted.request, posted.attempt, posted.data["chunk"])
            if same != (event.request, event.attempt, event.data.get("chunk")):
                continue
            seen = sources.get((posted.data["source_page"], write.layer, write.bytes))
            if seen is not None and seen != write.fingerprint:
                found.append(Early(write, event, seen, _taken(history, write)))
    return found


def _taken(history: History, write: Write) -> Event | None:
    """Who consumed the bytes that the write brought, first."""
    posted = write.posted
    place = (posted.page, posted.gen, write.layer)
    for event in history.derived(consumptions):
        for page, gen, layer, _, _, seen in event.data["fingerprints"]:
            if (page, gen, layer) == place and seen == write.fingerprint:
                return event
    return None

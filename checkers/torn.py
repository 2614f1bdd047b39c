"""Torn pages: a page that was taken with one of its streams as it should be, and another as it should not."""

from __future__ import annotations

from checkers.consumers import Sight, Sources
from racelab.evidence.blocks import Blocks


def torn(sight: Sight, sources: Sources, blocks: Blocks) -> str:
    """What of the page is right, in words, where one of its streams is wrong; empty if nothing is, or it has one."""
    wrong = blocks.stream(sight.layer)
    if wrong is None:
        return ""
    right = {
        blocks.stream(row[2])
        for row in sight.event.data["fingerprints"]
        if tuple(row[:2]) == (sight.page, sight.gen)
        and any(write.fingerprint == row[5] for write in sources.of(Sight(sight.event, *row)))
    } - {wrong}
    return f"; the page is torn, its {' and '.join(sorted(map(str, right)))} is right" if right else ""

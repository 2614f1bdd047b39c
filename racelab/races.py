"""The classes of races that PD serving had in public, each in one line of our own.

A scenario names its `race`, a guard the `race_classes` that it answers; docs/races.md is made from both.
"""

from __future__ import annotations

RACES: dict[str, str] = {
    "release-under-writer": "pages go back to the allocator while somebody can still write them",
    "release-under-reader": "pages go back, or are written anew, while somebody still reads them",
    "partial-success": "a transfer counts as whole although a part is missing, failed or went elsewhere",
    "ordering": "completion, visibility and the order of local work disagree",
    "early-publish": "others can find a page before it is complete, or after it failed",
    "stale-control": "a message, slot or id of something that has ended acts on what came after it",
    "attempt-identity": "two attempts of one request, or two requests, go by the same identity",
    "lost-signal": "the message that would end a wait is lost, never sent, or sent before anyone listens",
    "abort-leak": "an abort at some point of a request's life leaves pages that nobody will free",
    "double-completion": "one request ends twice",
    "lease-clock": "a lease or a deadline measures the wrong thing, or is not renewed",
    "peer-incarnation": "what was known of a dead process is used on the one that took its place",
    "fanout-divergence": "ranks, stages or handles of one request disagree about its end",
    "drain-protocol": "the drain itself is wrong: its acknowledgement is early, lost or without an end",
}
"""By the name that scenarios and guards use."""

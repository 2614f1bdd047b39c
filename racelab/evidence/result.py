"""What a checker is, and what it answers: one specification's outcome, its findings, its coverage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from racelab.evidence.history import History
from racelab.evidence.provenance import Part

Outcome = Literal["violated", "held", "unknown"]
Grade = Literal["exposed", "reached", "consumed", "stuck", "unaccounted", "corrupt"]

EXPOSED: Grade = "exposed"
"""Could have taken effect, and is not seen to have done so: reported, and no violation by itself."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of evidence, in the words of the `evidence` list of `run --json`.

    `owner` and `writer` read `r2 attempt 1 gen 2`; `bytes` is a half-open range within the page's
    layer; `when` is in ms since the run started; `events` are the numbers, `instance:seq`, that
    show it; `provenance` says of each run of wrong bytes whose it is, where that can be told.
    """

    spec: str
    grade: Grade
    instance: str
    page: int | None = None
    gen: int | None = None
    layer: int | None = None
    rank: int | None = None
    """which share of the layer, where there are several"""
    stream: str | None = None
    """what the page holds there, where it holds more than the model's own KV"""
    owner: str | None = None
    writer: str | None = None
    op: Literal["write", "read"] = "write"
    """how the writer's bytes came there: written by a peer, or read by the instance itself"""
    bytes: tuple[int, int] | None = None
    when: float | None = None
    what: str
    events: list[str] = []
    provenance: list[Part] = []


class SpecResult(msgspec.Struct, frozen=True, kw_only=True):
    """`held` is only said with a coverage that is not empty; `why` explains an `unknown`."""

    spec: str
    outcome: Outcome
    findings: list[Finding] = []
    coverage: dict[str, int] = {}
    why: str | None = None


Checker = Callable[[History], SpecResult]
"""A pure function. It raises for no well-formed history; if it does, that is `unknown`."""


def concluded(
    spec: str, findings: list[Finding], coverage: dict[str, int], doubts: list[str], looked_at: int
) -> SpecResult:
    """The outcome that findings, coverage and doubts amount to.

    A finding above `exposed` violates; without one, a doubt (what could not be decided, in words)
    or nothing `looked_at` leaves it unknown.
    """
    if any(finding.grade != EXPOSED for finding in findings):
        return SpecResult(spec=spec, outcome="violated", findings=findings, coverage=coverage)
    if not doubts and looked_at == 0:
        doubts = ["nothing was there to look at"]
    if doubts:
        more = f" (and {len(doubts) - 1} more)" if len(doubts) > 1 else ""
        return SpecResult(spec=spec, outcome="unknown", findings=findings, coverage=coverage, why=f"{doubts[0]}{more}")
    return SpecResult(spec=spec, outcome="held", findings=findings, coverage=coverage)

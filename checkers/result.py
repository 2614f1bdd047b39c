"""What a checker answers: one specification's outcome, its findings, and what was looked at."""

from __future__ import annotations

from typing import Literal

import msgspec

Outcome = Literal["violated", "held", "unknown"]
Grade = Literal["exposed", "reached", "consumed", "stuck", "unaccounted", "corrupt"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of evidence, in the words of the `evidence` list of `run --json`.

    `owner` and `writer` read `r2 attempt 1 gen 2`; `bytes` is a half-open range within the page's
    layer; `when` is in ms since the run started; `events` are the numbers, `instance:seq`, that
    show it.
    """

    spec: str
    grade: Grade
    instance: str
    page: int | None = None
    gen: int | None = None
    layer: int | None = None
    owner: str | None = None
    writer: str | None = None
    bytes: tuple[int, int] | None = None
    when: float | None = None
    what: str
    events: list[str] = []


class SpecResult(msgspec.Struct, frozen=True, kw_only=True):
    """`held` is only said with a coverage that is not empty; `why` explains an `unknown`."""

    spec: str
    outcome: Outcome
    findings: list[Finding] = []
    coverage: dict[str, int] = {}
    why: str | None = None

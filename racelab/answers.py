"""What each request answered beside its solo run, where they part, and which page explains it.

Tokens support a finding and never make one. A wrong answer is explained by the first finding at which
its request took wrong bytes, no later than the token that differs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.naming import number
from racelab.evidence.result import Finding

Row = dict[str, Any]
"""request, expected, got, first_difference (None if there is none), explained_by (a place, or None)."""

_TAKING = ("committed", "read")


def compared(history: History, requests: Iterable[str], findings: Iterable[Finding] = ()) -> list[Row]:
    """A row for each time that one of these requests finished, if it is known what it answers alone."""
    finished: dict[str | None, list[Event]] = defaultdict(list)
    for event in history.by_kind["finished"]:
        finished[event.request].append(event)
    known = list(findings)
    rows = []
    for name in requests:
        expected = history.header.solo.get(name)
        for event in finished[name] if expected is not None else ():
            got = event.data["tokens"]
            at = first_difference(expected or [], got)
            because = _explanation(history, event, at, known) if at is not None else None
            rows.append(
                {"request": name, "expected": expected, "got": got, "first_difference": at, "explained_by": because}
            )
    return rows


def first_difference(expected: list[int], got: list[int]) -> int | None:
    """The index of the first token that differs or is missing; None if there is none."""
    for index, (a, b) in enumerate(zip(expected, got, strict=False)):
        if a != b:
            return index
    return None if len(expected) == len(got) else min(len(expected), len(got))


def _explanation(history: History, finished: Event, at: int, findings: list[Finding]) -> Row | None:
    """The page that this request took with wrong bytes before it gave its first wrong token."""
    taken = {
        number(event): event
        for event in history.of(*_TAKING)
        if (event.request, event.attempt) == (finished.request, finished.attempt)
        and int(event.data.get("token", 0)) <= at
    }
    reasons = [
        (event.hlc, order, finding, name)
        for order, finding in enumerate(findings)
        for name in finding.events
        if finding.page is not None and (event := taken.get(name)) is not None
    ]
    if not reasons:
        return None
    _, _, finding, name = min(reasons, key=lambda reason: reason[:2])
    place = {"instance": finding.instance, "page": finding.page, "gen": finding.gen, "layer": finding.layer}
    place |= {"rank": finding.rank} if finding.rank is not None else {}
    place |= {"stream": finding.stream} if finding.stream is not None else {}
    return place | {"writer": finding.writer, "event": name}

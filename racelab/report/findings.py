"""Every finding as a short story: what it says, the events that show it, in order, and whose bytes are where.

Behind them, what is missing: what could not be decided and why, and what would have been needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from racelab.evidence.clock import wall_us
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.naming import number, start_us
from racelab.evidence.provenance import Part
from racelab.report.words import milliseconds, phrase
from racelab.verdict import UNDECIDED

FINDINGS_MAX = 20


def show(console: Console, history: History, verdict: dict[str, Any]) -> None:
    """Print the stories and what is missing."""
    for line in (*stories(history, verdict), *missing(verdict)):
        console.print(line, soft_wrap=True, highlight=False)


def stories(history: History, verdict: dict[str, Any]) -> Iterator[Text]:
    """Each finding of a verdict, as plain data, over the events of its history."""
    findings = verdict.get("evidence") or []
    if findings:
        yield Text(f"\n{len(findings)} finding(s)", style="bold")
    events = {number(event): event for event in history.events}
    for count, finding in enumerate(findings[:FINDINGS_MAX], 1):
        yield Text.assemble((f"\n{count}. {finding['spec']}, {finding['grade']}: ", "bold"), finding["what"])
        shown = [events[name] for name in finding.get("events") or [] if name in events]
        yield from (_told(history, event) for event in sorted(shown, key=_order))
        yield from (Text(f"   {words}") for words in _bytes(finding))
    if len(findings) > FINDINGS_MAX:
        yield Text(f"\nand {len(findings) - FINDINGS_MAX} more: --json has them all", style="dim")


def _order(event: Event) -> tuple[int, str, int]:
    return event.hlc, event.instance, event.seq


def _told(history: History, event: Event) -> Text:
    ms = (wall_us(event.hlc) - history.derived(start_us)) / 1000
    return Text.assemble((f"   {number(event):<12} {milliseconds(ms):>10}  ", "dim"), phrase(event))


def _bytes(finding: dict[str, Any]) -> Iterator[str]:
    for part in msgspec.convert(finding.get("provenance") or [], list[Part]):
        if part.in_words() not in finding["what"]:
            yield part.in_words()


def missing(verdict: dict[str, Any]) -> Iterator[Text]:
    """What evidence is missing, in words; one line says so if nothing is."""
    lines = list(dict.fromkeys(_gaps(verdict)))
    if not lines:
        yield Text("\nno evidence is missing", style="dim")
        return
    yield Text("\nmissing evidence", style="bold")
    yield from (Text(f" - {line}") for line in lines)


def _gaps(verdict: dict[str, Any]) -> Iterator[str]:
    if verdict.get("lab_failure"):
        yield f"the lab failed, and nothing after that was seen: {verdict['lab_failure']}"
    elif verdict["verdict"] in UNDECIDED:
        yield f"no verdict but {verdict['verdict']}: {verdict['why']}"
    lost = (verdict.get("checks") or {}).get("events_lost")
    if lost:
        yield f"{lost} event(s) are lost: what rests on something not having happened is unknown"
    for spec, why in (verdict.get("unknown") or {}).items():
        yield f"{spec} is unknown: {why}"
    for certificate in verdict.get("injections") or []:
        if certificate["state"] == "not-reached":
            yield f"injection {certificate['id']}: the schedule stopped before it"
        for why in certificate.get("why") or []:
            yield f"injection {certificate['id']} is {certificate['state']}: {why}"
    for finding in verdict.get("evidence") or []:
        if finding["grade"] == "corrupt" and not finding.get("provenance"):
            rank = f" rank {finding['rank']}" if finding.get("rank") is not None else ""
            stream = f" {finding['stream']}" if finding.get("stream") is not None else ""
            place = f"page {finding['page']} gen {finding['gen']}{stream} layer {finding['layer']}{rank}"
            yield f"nobody took {place} apart: whose bytes are where in it is not known"

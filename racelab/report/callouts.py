"""The turning points of a run, in the margin of its diagram: facts of the history and findings of the verdict."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from typing import Any

from racelab.evidence.events import TERMINAL_KINDS, Event
from racelab.report.scene import Landing, Scene
from racelab.report.summary import token_rows
from racelab.report.window import name
from racelab.report.words import count_of, deed, listed, who

CALLOUT_CHARS = 37
CALLOUTS_MAX = 16
TITLE_PX = 18.0
LINE_PX = 14.0
PADDING_PX = 9.0
GAP_PX = 8.0
NEAR_PX = 24.0


@dataclass
class Callout:
    """A few words beside the moment at `anchor`; `tone` is bad, guard or note."""

    anchor: float
    tone: str
    title: str
    lines: list[str] = field(default_factory=list)
    page: int | None = None
    y: float = 0.0

    @property
    def height(self) -> float:
        """Pixels that it takes."""
        return TITLE_PX * len(self._titles()) + LINE_PX * len(self.wrapped()) + 2 * PADDING_PX - 4

    def titles(self) -> list[str]:
        """The title, wrapped."""
        return self._titles()

    def _titles(self) -> list[str]:
        return textwrap.wrap(self.title, CALLOUT_CHARS - 4)

    def wrapped(self) -> list[str]:
        """The lines, wrapped."""
        return [wrapped for line in self.lines for wrapped in textwrap.wrap(_together(line), CALLOUT_CHARS)]


def _together(line: str) -> str:
    """`page 5`, `gen 2` and `attempt 1` are not torn apart at the end of a line."""
    return re.sub(r"\b(pages?|gen|attempt) (?=\d)", "\\1\u00a0", line)


def callouts(scene: Scene, verdict: dict[str, Any]) -> list[Callout]:
    """From top to bottom, each below the one before it; of many, the first."""
    found = [
        *_given_up(scene),
        *_freed(scene, verdict),
        *_refusals(scene),
        *_landings(scene),
        *_taken(scene, verdict),
        *_answers(scene, verdict),
    ]
    found += _other_findings(scene, verdict, found)
    if len(found) > CALLOUTS_MAX:
        found.sort(key=lambda callout: (callout.tone == "note", callout.anchor))
        found = found[:CALLOUTS_MAX]
    found.sort(key=lambda callout: callout.anchor)
    bottom = 0.0
    for callout in found:
        callout.y = max(callout.anchor - PADDING_PX - 6, bottom)
        bottom = callout.y + callout.height + GAP_PX
    return found


def _in_network(scene: Scene, at: Event, page: int | None = None) -> int:
    """Held writes of the event's request that are neither landed nor lost at that moment."""
    count = 0
    for flight in scene.flights:
        if flight.kind != "write" or flight.held is None or flight.any.request != at.request:
            continue
        end = flight.landed or flight.lost
        waits = flight.held.hlc < at.hlc and (end is None or end.hlc > at.hlc)
        count += waits and (page is None or flight.any.page == page)
    return count


def _given_up(scene: Scene) -> list[Callout]:
    found = []
    for event in scene.window.events:
        if event.kind in ("timed-out", "aborted", "failed") and (count := _in_network(scene, event)):
            verb = {"timed-out": "times out", "aborted": "is aborted", "failed": "fails"}[event.kind]
            are = "is" if count == 1 else "are"
            line = f"{count_of(count, 'write')} of it {are} still in the network."
            found.append(Callout(_y(scene, event), "note", f"{who(event)} {verb}", [line]))
    return found


def _freed(scene: Scene, verdict: dict[str, Any]) -> list[Callout]:
    """Pages that went back to the allocator while writes to them were on their way."""
    specs = verdict.get("specs", {})
    freed = [e for e in scene.window.events if e.kind == "page-free" and _in_network(scene, e, e.page)]
    found: dict[str | None, list[Event]] = {}
    for event in freed:
        found.setdefault(event.request, []).append(event)
    result = []
    for events in found.values():
        pages = listed(event.page for event in events)
        many = len(events) > 1
        count = sum(_in_network(scene, event, event.page) for event in events)
        tone = "bad" if "violated" in str(specs.get("conservation")) else "note"
        them, are = "them" if many else "it", "is" if count == 1 else "are"
        line = f"{count_of(count, 'write')} to {them} {are} still in flight: nothing shows that the hardware stopped."
        title = f"Page{'s' if many else ''} {pages} {'are' if many else 'is'} freed"
        result.append(Callout(_y(scene, events[0]), tone, title, [line], events[0].page))
    return result


def _refusals(scene: Scene) -> list[Callout]:
    found: dict[tuple[Any, ...], list[Event]] = {}
    for event in scene.window.events:
        if event.kind == "refused":
            key = (event.instance, event.data["guard"], event.data["refuses"], event.request, event.data["why"])
            found.setdefault(key, []).append(event)
    result = []
    for (instance, guard, *_, why), events in found.items():
        pages = sorted({event.page for event in events if event.page is not None})
        of = f"page{'s' if len(pages) > 1 else ''} {listed(pages)} of " if pages else ""
        line = f"{instance} is not allowed {deed(events[0])} {of}{who(events[0])}: {why}."
        result.append(Callout(_y(scene, events[0]), "guard", f"{guard} refuses", [line], events[0].page))
    return result


def _landings(scene: Scene) -> list[Callout]:
    groups: dict[tuple[Any, ...], list[Landing]] = {}
    for landing in scene.landings:
        if landing.met is not None:
            owned = landing.holding is not None and landing.holding.owned
            owner = landing.holding.owner if landing.holding and owned else None
            groups.setdefault((who(landing.flight.any), owner, None if owned else landing.met), []).append(landing)
    result = []
    for (writer, owner, met), landings in groups.items():
        pages = sorted({landing.page for landing in landings})
        where = f"page{'s' if len(pages) > 1 else ''} {listed(pages)}"
        gen = landings[0].flight.any.gen
        count = count_of(len(landings), "write")
        if owner is not None and landings[0].holding is not None:
            title = f"{writer} writes into {owner}'s memory"
            took = landings[0].holding.gen
            them = "them" if len(pages) > 1 else "it"
            line = f"{count} meant for {where} gen {gen} landed after {owner} took {them} under gen {took}."
            result.append(Callout(landings[0].y, "bad", title, [line], pages[-1]))
            continue
        kept = "DRAINING" in met or "QUARANTINED" in met
        are = "is" if len(pages) == 1 else "are"
        state = landings[0].holding.state if landings[0].holding is not None else "FREE"
        title = "The late writes meet nobody" if kept else f"{writer} writes into free memory"
        line = f"{count} of {writer} landed on {where} (gen {gen}), which {are} {state}"
        line += ": kept out of use, read by nobody." if kept else "."
        result.append(Callout(landings[0].y, "guard" if kept else "bad", title, [line], pages[-1]))
    return result


def _taken(scene: Scene, verdict: dict[str, Any]) -> list[Callout]:
    """Where a request first took bytes that are not its own."""
    events = {name(event): event for event in scene.window.events}
    first: dict[str, Event] = {}
    writers: dict[str, str] = {}
    ranges: dict[str, set[Any]] = {}
    for finding in verdict.get("evidence", []):
        takers = [events[place] for place in finding.get("events") or [] if place in events]
        takers = [event for event in takers if event.kind in ("committed", "read")]
        foreign = finding.get("grade") == "corrupt" or finding.get("writer")
        if finding.get("grade") not in ("consumed", "corrupt") or not takers or not foreign:
            continue
        taker = min(takers, key=lambda event: event.hlc)
        whom = who(taker)
        if whom not in first or taker.hlc < first[whom].hlc:
            first[whom] = taker
        writers.setdefault(whom, str(finding.get("writer") or "").split(" gen")[0].removesuffix(" attempt 1"))
        if finding["grade"] == "corrupt":
            place = (
                finding.get("page"),
                finding.get("layer"),
                finding.get("rank"),
                finding.get("stream"),
                str(finding.get("bytes")),
            )
            ranges.setdefault(whom, set()).add(place)
    return [_taking(_y(scene, event), whom, writers[whom], ranges.get(whom, set())) for whom, event in first.items()]


def _taking(y: float, whom: str, writer: str, ranges: set[Any]) -> Callout:
    hold = "range of its pages holds" if len(ranges) == 1 else "ranges of its pages hold"
    lines = [f"{len(ranges)} {hold} other bytes than prefill sent for it."] if ranges else []
    return Callout(y, "bad", f"{whom} takes {f'bytes of {writer}' if writer else 'wrong bytes'} for its own", lines)


def _answers(scene: Scene, verdict: dict[str, Any]) -> list[Callout]:
    wrong = {row.request: row for row in token_rows(verdict) if row.differs}
    over: dict[tuple[str, int | None], str] = {}
    result = []
    for event in scene.window.events:
        whom = str(event.request)
        row = wrong.get(whom)
        if event.kind == "finished" and row is not None:
            lines = [" ".join(row.got), f"alone it answers {' '.join(row.expected)}"]
            before = over.get((whom, event.attempt))
            after = f" after it {before.replace('-', ' ')}" if before else ""
            result.append(Callout(_y(scene, event), "bad", f"{who(event)} answers wrongly{after}", lines))
        elif event.kind in TERMINAL_KINDS:
            over[whom, event.attempt] = event.kind
    return result


def _other_findings(scene: Scene, verdict: dict[str, Any], told: list[Callout]) -> list[Callout]:
    """Findings on drawn events that no callout stands at yet, one a kind."""
    events = {name(event): event for event in scene.window.events}
    result: list[Callout] = []
    seen: set[tuple[str, str, bool]] = set()
    for finding in verdict.get("evidence", []):
        last = events.get(str((finding.get("events") or [""])[-1]))
        spec, grade = str(finding.get("spec")), str(finding.get("grade"))
        paged = finding.get("page") is not None
        if last is None or (spec, grade, paged) in seen or (paged and grade in ("consumed", "corrupt")):
            continue
        anchor = _y(scene, last)
        seen.add((spec, grade, paged))
        if any(abs(callout.anchor - anchor) < NEAR_PX for callout in (*told, *result)):
            continue
        title = _TITLES.get((spec, grade, paged), f"{spec}: {grade}")
        result.append(Callout(anchor, "bad", title, [f"{finding.get('what')}."], finding.get("page")))
    return result


_TITLES = {
    ("isolation", "reached", False): "An old message takes effect",
    ("isolation", "exposed", True): "A page ends while it can be written",
    ("conservation", "unaccounted", True): "A page is not accounted for",
    ("finality", "stuck", False): "What had ended goes on, or never ends",
}


def _y(scene: Scene, event: Event) -> float:
    return scene.layout.y[event.instance, event.seq]

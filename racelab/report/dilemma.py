"""One counterexample under every policy, one strip each: what became of the page, and what that cost.

Every strip has the same columns, the schedule's steps, so the policies can be compared downwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.schedule import Schedule
from racelab.report import palette
from racelab.report.ownership import Book, Holding
from racelab.report.strip import burst, patterns
from racelab.report.svg import element, line, text, title
from racelab.report.words import UNREAD_STATES
from racelab.scenario import SPECIFICATIONS
from racelab.scenario.steps import read_aloud

NAME_PX, COLUMN_PX, MARK_PX, COST_PX = 150.0, 46.0, 84.0, 190.0
ROW_PX, HEAD_PX = 62.0, 60.0
AFTER = ("release", "drain", "probe")
"""The phases that follow every schedule, as columns of their own."""
_GLYPHS = {"violated": "✗", "held": "✓", "unknown": "?"}


@dataclass(frozen=True)
class Row:
    """One policy: its run and what was said of each specification."""

    policy: str
    history: History
    specs: dict[str, str]
    cost: str


@dataclass
class _Strip:
    """What happened to one page, by column: how it was held, and what landed on it."""

    holdings: list[tuple[float, Holding]] = field(default_factory=list)
    landings: list[tuple[float, Event, str | None]] = field(default_factory=list)


def costs(history: History) -> str:
    """What the policy kept back at rest, in words."""
    parts = []
    for event in history.by_kind["quiesced"]:
        for state in UNREAD_STATES:
            count = event.data["states"].get(state, 0)
            parts += [f"{count} page(s) of {event.instance} {state.lower()}"] if count else []
        waiting = event.data["leftovers"].get("queued", 0)
        parts += [f"{waiting} request(s) waiting on {event.instance}"] if waiting else []
    return "; ".join(parts) or "nothing"


def contested(history: History) -> int | None:
    """The page of decode that the first stopped write aims at."""
    stopped = next((event for event in history.by_kind["held"] if event.page is not None), None)
    return stopped.page if stopped is not None else None


def figure(rows: Sequence[Row]) -> str:
    """A standalone SVG; a row is left empty where no write was stopped."""
    columns = _columns(rows[0].history)
    strips_end = NAME_PX + COLUMN_PX * len(columns)
    width = strips_end + MARK_PX * len(SPECIFICATIONS) + COST_PX
    height = HEAD_PX + ROW_PX * len(rows) + 16 * (len(columns) - len(AFTER)) + 34
    colours = _colours(rows)
    parts = [_head(columns, strips_end)]
    for number, row in enumerate(rows):
        parts.append(_row(row, HEAD_PX + ROW_PX * number, columns, strips_end, colours))
    parts.append(_legend(rows[0].history, HEAD_PX + ROW_PX * len(rows) + 26))
    style = palette.variables(".st") + palette.diagram_style()
    return element(
        "svg",
        element("style", escape(style, quote=False)),
        patterns(),
        element("rect", width=width, height=height, fill="var(--bg)"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        class_="st",
        role="img",
        aria_label="One counterexample under every policy",
    )


def _columns(history: History) -> list[str]:
    return [str(number) for number in range(1, len(history.header.scenario.steps) + 1)] + list(AFTER)


def _colours(rows: Iterable[Row]) -> dict[str, str]:
    names = dict.fromkeys(name for row in rows for name in [*row.history.header.scenario.requests, "probe"])
    return {name: f"q{index % palette.REQUEST_COLOURS}" for index, name in enumerate(names)}


def _head(columns: list[str], strips_end: float) -> str:
    parts = [text("policy", 8, HEAD_PX - 12, "head"), text("the contested page, step by step", NAME_PX, 22, "head")]
    for index, column in enumerate(columns):
        parts.append(text(column, NAME_PX + COLUMN_PX * (index + 0.5), HEAD_PX - 12, "small soft mid"))
    for index, spec in enumerate(SPECIFICATIONS):
        parts.append(text(spec, strips_end + MARK_PX * (index + 0.5), HEAD_PX - 12, "small mid"))
    parts.append(text("kept back at rest", strips_end + MARK_PX * len(SPECIFICATIONS) + 8, HEAD_PX - 12, "small"))
    return "".join(parts)


def _row(row: Row, top: float, columns: list[str], strips_end: float, colours: dict[str, str]) -> str:
    middle = top + ROW_PX / 2
    parts = [line(0, top, strips_end + MARK_PX * len(SPECIFICATIONS) + COST_PX, top, "rule")]
    parts.append(text(row.policy, 8, middle + 4, "head"))
    strip = _follow(row.history, columns)
    ends = [x for x, _ in strip.holdings[1:]] + [float(len(columns))]
    for (start, holding), end in zip(strip.holdings, ends, strict=True):
        parts.append(_segment(holding, start, end, top, colours))
    for x, event, met in strip.landings:
        parts.append(_landing(x, event, met, middle, colours))
    for index, spec in enumerate(SPECIFICATIONS):
        outcome = row.specs.get(spec, "unknown")
        kind = {"violated": "bad", "held": "guard"}.get(outcome, "soft")
        x = strips_end + MARK_PX * (index + 0.5)
        parts.append(text(f"{_GLYPHS[outcome]} {outcome}", x, middle + 4, f"strong mid {kind}"))
    for number, cost in enumerate(row.cost.split("; ")):
        x = strips_end + MARK_PX * len(SPECIFICATIONS) + 8
        parts.append(text(cost, x, middle + 4 + 14 * number, "small"))
    return "".join(parts)


def _follow(history: History, columns: list[str]) -> _Strip:
    """The contested page through the run; what happens within one column is spread over it in its order."""
    page, book, found = contested(history), Book(), _Strip()
    receiver = next((event.instance for event in history.by_kind["granted"]), None)
    writes = {event.data["write"]: event for event in history.by_kind["posted"]}
    marks: list[tuple[int, Holding | Event, str | None]] = []
    column = 0
    for event in history.events:
        if event.kind == "step":
            column = int(event.data["n"]) - 1
        elif event.kind == "phase" and event.data["phase"] in AFTER:
            column = columns.index(event.data["phase"])
        holding = book.see(event)
        if holding is not None and event.instance == receiver and event.page == page:
            marks.append((column, holding, None))
        write = writes.get(event.data.get("what", "")) if event.kind in ("landed", "torn") else None
        if write is not None and write.page == page:
            marks.append((column, write, book.meets(write)))
    in_column = [mark[0] for mark in marks]
    for index, (column, what, met) in enumerate(marks):
        before = in_column[:index].count(column)
        x = column + (before + 0.5) / in_column.count(column)
        if isinstance(what, Event):
            found.landings.append((x, what, met))
        else:
            found.holdings.append((x, what))
    return found


def _segment(holding: Holding, start: float, end: float, top: float, colours: dict[str, str]) -> str:
    box = {
        "x": NAME_PX + COLUMN_PX * start,
        "y": top + 12,
        "width": max(COLUMN_PX * (end - start) - 1.5, 1.5),
        "height": ROW_PX - 24,
    }
    hint = title(f"{holding.state}, {holding.owner}, generation {holding.gen}")
    if holding.state == "FREE":
        return element("rect", hint, class_="free", **box)
    colour = colours.get(holding.request or "", "q5")
    parts = [hint, element("rect", class_="hatchbg" if holding.state in UNREAD_STATES else "own", **box)]
    if holding.state in UNREAD_STATES:
        parts.append(element("rect", fill=f"url(#{holding.state.lower()}-{colour})", **box))
        parts.append(element("rect", class_="outline", **box))
    words = holding.request or ""
    words += f" {holding.state.lower()}" if holding.state in UNREAD_STATES else ""
    if box["width"] > 7 * len(words):
        parts.append(text(words, box["x"] + 6, top + ROW_PX / 2 + 4, "small halo strong"))
    return element("g", *parts, class_=colour)


def _landing(x: float, write: Event, met: str | None, middle: float, colours: dict[str, str]) -> str:
    at = NAME_PX + COLUMN_PX * x
    wrong = met is not None and "owns" in met
    parts = [title(f"{write.request}'s write lands{f': {met}' if met else ''}")]
    if wrong:
        parts.append(element("polygon", points=burst(at, middle, 13, 8), class_="burst"))
    elif met is not None:
        parts.append(element("circle", cx=at, cy=middle, r=9, class_="keep"))
    parts.append(element("circle", cx=at, cy=middle, r=4.6, class_="land"))
    return element("g", *parts, class_=colours.get(write.request or "", "q5"))


def _legend(history: History, top: float) -> str:
    key = "disc: a write lands (its request's colour); on a star: in somebody else's page; in a ring: in a kept page"
    parts = [text(key, 8, top, "small soft")]
    for number, issued in enumerate(history.derived(Schedule).steps, 1):
        words = read_aloud(issued.step) if issued.step is not None else str(issued.issued.data["text"])
        parts.append(text(f"{number}  {words}", 8, top + 16 * number, "small soft"))
    return "".join(parts)

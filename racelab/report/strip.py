"""The strip of page ownership: a column a page, on the same axis as everything else, with landings on it."""

from __future__ import annotations

import math

from racelab.report import palette
from racelab.report.canvas import Canvas
from racelab.report.layout import PAGE_PX
from racelab.report.ownership import Holding
from racelab.report.scene import Landing, Segment
from racelab.report.svg import element, text, title
from racelab.report.words import UNREAD_STATES, who

HATCHES = {"draining": "M-2,2 l4,-4 M0,8 l8,-8 M6,10 l4,-4", "quarantined": "M0,0 l8,8 M0,8 l8,-8"}
_WORD_PX = 12.0


def strip(canvas: Canvas) -> list[str]:
    """Every page's column, under its number."""
    parts = []
    pages = canvas.layout.pages
    if pages:
        centre = (canvas.layout.pages_x + canvas.pages_end) / 2
        parts.append(text("pages" if len(pages) > 1 else "page", centre, canvas.top - 18, "head mid"))
    for page in pages:
        middle = canvas.page_middle(page)
        assert middle is not None
        parts.append(text(str(page), middle, canvas.top - 4, "small soft mid"))
    parts += [_segment(canvas, segment) for segment in canvas.scene.segments if segment.bottom > segment.top]
    return parts


def _segment(canvas: Canvas, segment: Segment) -> str:
    middle = canvas.page_middle(segment.page)
    assert middle is not None
    left, width = middle - PAGE_PX / 2 + 3, PAGE_PX - 6
    height = max(segment.bottom - segment.top - 1, 1)
    box = {"x": left, "y": segment.top + 0.5, "width": width, "height": height}
    holding = segment.holding
    if holding is None or holding.state == "FREE":
        free = element("rect", title(f"page {segment.page} is free"), class_="free", **box)
        room = segment.bottom - segment.top
        return free + (text("free", middle, segment.top + 14, "small mid soft") if room >= 24 else "")
    colour = canvas.colour(holding.request)
    parts = [title(f"page {segment.page}: {holding.state}, {holding.owner}, generation {holding.gen}")]
    if holding.state in UNREAD_STATES:
        parts.append(element("rect", class_="hatchbg", **box))
        parts.append(element("rect", fill=f"url(#{holding.state.lower()}-{colour})", **box))
        parts.append(element("rect", class_="outline", **box))
    else:
        parts.append(element("rect", class_="own", **box))
    parts.append(element("rect", x=left, y=segment.top + 0.5, width=4, height=height, class_="edge"))
    parts += _words(holding, middle + 2, segment.top, segment.bottom - segment.top)
    return element("g", *parts, class_=f"page {colour}")


def _words(holding: Holding, x: float, top: float, room: float) -> list[str]:
    """Owner, generation and state, as many as there is room for."""
    again = f" #{holding.attempt}" if holding.attempt is not None and holding.attempt > 1 else ""
    words = [f"{holding.request}{again}", f"gen {holding.gen}"]
    words += {"PRIVATE": [], "DRAINING": ["drain"], "QUARANTINED": ["quar."]}.get(
        holding.state, [holding.state.lower()]
    )
    halo = "halo wide" if holding.state in UNREAD_STATES else "halo"
    return [
        text(word[:6], x, top + _WORD_PX * (row + 1), f"small mid {halo}{'' if row else ' strong'}")
        for row, word in enumerate(words)
        if room >= _WORD_PX * (row + 1) + 4
    ]


def landing(canvas: Canvas, landing: Landing) -> str:
    """Where a write reached a page: a disc in the writer's colour, on a star where it had no right to be."""
    x = canvas.page_middle(landing.page)
    if x is None or (landing.met is None and not landing.exact):
        return ""
    write = landing.flight.out or landing.flight.any
    parts = [
        title(f"{who(write)} writes page {landing.page} gen {write.gen}{f': {landing.met}' if landing.met else ''}")
    ]
    if landing.foreign:
        parts.append(element("polygon", points=burst(x, landing.y), class_="burst"))
    elif landing.met is not None:
        parts.append(element("circle", cx=x, cy=landing.y, r=8.5, class_="keep"))
    parts.append(element("circle", cx=x, cy=landing.y, r=4.4, class_="land"))
    return element("g", *parts, class_=f"landing {canvas.colour(write.request)}{' foreign' if landing.foreign else ''}")


def burst(x: float, y: float, outer: float = 10.5, inner: float = 6.5, points: int = 9) -> str:
    """The corners of a star."""
    corners = []
    for index in range(points * 2):
        reach, angle = (inner if index % 2 else outer), math.pi * index / points - math.pi / 2
        corners.append(f"{x + reach * math.cos(angle):.1f},{y + reach * math.sin(angle):.1f}")
    return " ".join(corners)


def patterns() -> str:
    """Hatches for pages that nobody may read, one a colour."""
    return element(
        "defs",
        *(
            element(
                "pattern",
                element("path", d=stroke, class_="hatchline"),
                id=f"{state}-q{index}",
                width=8,
                height=8,
                patternUnits="userSpaceOnUse",
                class_=f"q{index}",
            )
            for index in range(palette.REQUEST_COLOURS)
            for state, stroke in HATCHES.items()
        ),
    )

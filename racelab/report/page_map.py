"""Maps of wrong pages: one bar a page's layer, each run of bytes in the colour of whose it is.

Drawn from the findings' `provenance`. What nobody posted has a frame of its own and no colour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from racelab.evidence.naming import attempt_name
from racelab.evidence.provenance import Part
from racelab.report.svg import CHAR_PX, element, line, text, title
from racelab.report.words import milliseconds, size

MAPS_MAX = 24
LABEL_PX = 210.0
BAR_PX = 720.0
BAR_HEIGHT_PX = 24.0
ROW_PX = 52.0

Colour = Callable[[str | None], str]
"""The class that carries a request's colour."""


class WrongPage(NamedTuple):
    """One page's layer, as it was first seen to be wrong."""

    instance: str
    page: int
    gen: int | None
    layer: int
    rank: int | None
    stream: str | None
    owner: str | None
    when: float | None
    parts: list[Part]


def wrong_pages(verdict: dict[str, Any]) -> list[WrongPage]:
    """Every page's layer with a finding that takes it apart, each once."""
    found: dict[tuple[Any, ...], WrongPage] = {}
    for finding in verdict.get("evidence") or []:
        if finding.get("provenance"):
            parts = msgspec.convert(finding["provenance"], list[Part])
            share = (finding["layer"], finding.get("rank"), finding.get("stream"))
            place = (finding["instance"], finding["page"], finding["gen"], *share)
            found.setdefault(place, WrongPage(*place, finding["owner"], finding["when"], parts))
    return list(found.values())


def page_map(pages: list[WrongPage], colour: Colour) -> str:
    """One drawing of these pages, one under the other; empty if there is none."""
    shown = pages[:MAPS_MAX]
    if not shown:
        return ""
    rows = [_row(page, index * ROW_PX, colour) for index, page in enumerate(shown)]
    width, height = LABEL_PX + BAR_PX + 20, ROW_PX * len(shown) + 4
    said = title(f"{len(shown)} wrong page layers, by whose bytes are in them")
    box = {"viewBox": f"0 0 {width:.0f} {height:.0f}", "width": width, "height": height}
    return element("svg", said, *rows, class_="st pagemap", role="img", **box)


def _row(page: WrongPage, top: float, colour: Colour) -> str:
    whole = max(part.bytes[1] for part in page.parts)
    rank = f" rank {page.rank}" if page.rank is not None else ""
    stream = f" {page.stream}" if page.stream is not None else ""
    gen = f" gen {page.gen}" if page.gen is not None else ""
    seen = f"; seen at {milliseconds(page.when)}" if page.when is not None else ""
    parts = [
        text(f"page {page.page}{gen},{stream} layer {page.layer}{rank}", 0, top + 15, "strong"),
        text(f"of {page.owner or 'nobody'}{seen}", 0, top + 30, "small soft"),
    ]
    parts += [_part(part, whole, top, colour) for part in page.parts]
    ends = [part.bytes[0] for part in page.parts] + [whole]
    parts += [_tick(at, whole, top, last=at == whole) for at in ends]
    return element("g", *parts, class_="wrongpage", data_page=page.page, data_layer=page.layer)


def _part(part: Part, whole: int, top: float, colour: Colour) -> str:
    start, end = part.bytes
    x, width = LABEL_PX + BAR_PX * start / whole, BAR_PX * (end - start) / whole
    box = {"x": x, "y": top + 2, "width": max(width, 1.5), "height": BAR_HEIGHT_PX}
    kind = {"write": "own", "pattern": "free", "local": "box bad", "unknown": "box bad"}[part.source]
    drawn = [title(part.in_words()), element("rect", class_=kind, **box)]
    words = _words(part)
    if len(words) * CHAR_PX + 8 < width:
        drawn.append(text(words, x + width / 2, top + 18, "mid"))
    return element("g", *drawn, class_=f"part {colour(part.request)}")


def _words(part: Part) -> str:
    if part.source == "write":
        return f"{attempt_name(part.request, part.attempt, part.gen)}, {size(part.bytes[1] - part.bytes[0])}"
    return {"pattern": "nobody wrote here", "local": f"{part.write}"}.get(part.source, "never seen")


def _tick(at: int, whole: int, top: float, *, last: bool) -> str:
    x = LABEL_PX + BAR_PX * at / whole
    below = top + 2 + BAR_HEIGHT_PX
    return line(x, below, x, below + 4, "rule") + text(
        f"{at:,}", x, below + 14, "small soft num end" if last else "small soft num"
    )

"""The margin of a diagram: each turning point in a box, tied to its moment."""

from __future__ import annotations

from racelab.report.callouts import CALLOUT_CHARS, LINE_PX, PADDING_PX, TITLE_PX, Callout
from racelab.report.canvas import Canvas
from racelab.report.svg import element, text

CALLOUT_PX = CALLOUT_CHARS * 6.5 + 2 * PADDING_PX


def callout(canvas: Canvas, callout: Callout, x: float) -> str:
    """One box at `x`, with its line to the strip of pages."""
    tone = callout.tone if callout.tone != "note" else ""
    middle = callout.y + PADDING_PX + 6
    bend = canvas.pages_end + 12
    path = f"M{canvas.pages_end + 1:.1f},{callout.anchor:.1f} H{bend:.1f} L{x - 6:.1f},{middle:.1f} H{x:.1f}"
    box = {"x": x, "y": callout.y, "width": CALLOUT_PX, "height": callout.height, "rx": 5}
    parts = [element("path", d=path, class_=f"lead {tone}".strip())]
    parts.append(element("rect", class_=f"box {tone}".strip(), **box))
    at = callout.y + PADDING_PX + 9
    for words in callout.titles():
        parts.append(text(words, x + PADDING_PX, at, f"strong {tone}".strip()))
        at += TITLE_PX
    for words in callout.wrapped():
        parts.append(text(words, x + PADDING_PX, at - 2, "body"))
        at += LINE_PX
    return element("g", *parts, class_="callout")

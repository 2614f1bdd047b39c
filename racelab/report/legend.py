"""What the signs of a diagram mean: only those that it uses."""

from __future__ import annotations

from collections.abc import Iterator

from racelab.report import palette
from racelab.report.canvas import Canvas
from racelab.report.flights import arrow
from racelab.report.strip import burst
from racelab.report.svg import CHAR_PX, element, line, text
from racelab.report.words import UNREAD_STATES

_SIGN_PX = 34.0
_ROW_PX = 22.0


def legend(canvas: Canvas, top: float, width: float) -> tuple[list[str], float]:
    """The signs in rows from `top`, and where the last row ends."""
    parts: list[str] = []
    x, y = 24.0, top
    for sign, words, class_ in _entries(canvas):
        needs = _SIGN_PX + len(words) * CHAR_PX + 26
        if x + needs > width and x > 24:
            x, y = 24.0, y + _ROW_PX
        drawn = element("g", *sign, transform=f"translate({x:.0f} {y:.0f})", class_=class_)
        parts += [drawn, text(words, x + _SIGN_PX + 4, y + 4, "soft")]
        x += needs
    return parts, y + 18


def _entries(canvas: Canvas) -> Iterator[tuple[list[str], str, str]]:
    scene = canvas.scene
    drawn = {flight.any.request for flight in scene.flights} | {bar.request for bar in scene.bars}
    shown = [request for request in scene.requests if request in drawn]
    for request in shown[: palette.REQUEST_COLOURS]:
        colour = canvas.colour(request)
        swatch = element("rect", x=4, y=-7, width=26, height=14, class_="own")
        yield [swatch, element("rect", x=4, y=-7, width=4, height=14, class_="edge")], str(request), colour
    if any((flight.any.attempt or 1) > 1 for flight in scene.flights):
        yield [text("#2", 17, 4, "mid strong")], "second attempt of a request", ""
    yield arrow((0, 0), (32, 0), "msg", "msghead"), "control message", ""
    writes = [flight for flight in scene.flights if flight.kind == "write"]
    if any(flight.landed for flight in writes):
        yield arrow((0, 0), (32, 0), "wr", "wrhead"), "write, its landing confirmed", "q5"
    if any(flight.arrived and not flight.landed for flight in writes):
        yield arrow((0, 0), (32, 0), "wr", "wropen"), "write, landed at the latest here", "q5"
    if scene.bars:
        rungs = [line(2 + 8 * n, -3.5, 2 + 8 * n, 3.5, "stripe") for n in range(1, 4)]
        bar = element("rect", x=1, y=-8, width=32, height=16, rx=4, class_="bar")
        fill = element("rect", x=1, y=-8, width=32, height=16, rx=4, class_="barfill")
        yield [bar, fill, *rungs], "held in the network", "q5"
    if any(landing.foreign for landing in scene.landings):
        star = element("polygon", points=burst(17, 0), class_="burst")
        yield (
            [star, element("circle", cx=17, cy=0, r=4.4, class_="land")],
            "landed where it had no right to any more",
            "q5",
        )
    states = {segment.holding.state for segment in scene.segments if segment.holding}
    for state in UNREAD_STATES:
        if state in states:
            box = {"x": 4, "y": -8, "width": 26, "height": 16}
            hatch = element("rect", fill=f"url(#{state.lower()}-q5)", **box)
            yield [hatch, element("rect", class_="outline", **box)], f"{state}: nobody reads it", "q5"

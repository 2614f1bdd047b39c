"""The space-time diagram: a Scene as SVG. Lifelines run down; writes end on the pages that they reach."""

from __future__ import annotations

from typing import Any

from racelab.report import flights, legend, margin, palette, strip
from racelab.report.callouts import callouts
from racelab.report.canvas import NETWORK_PX, Canvas
from racelab.report.form import STEP_X
from racelab.report.layout import LINE_PX as STEP_LINE_PX
from racelab.report.layout import Label
from racelab.report.scene import Scene
from racelab.report.svg import element, line, text, title
from racelab.report.words import milliseconds, told

TITLE = "Space-time diagram: time runs down, arrows are messages and writes, columns at the right are pages"
_ROLES = {"client": "and operator", "writer": "writes", "receiver": "owns the pages"}
_STEP_STYLES = {"blocked": "guard strong", "gave-up": "bad strong", "died": "bad strong"}
_LABEL_STYLES = {"refused": "guard strong", "timed-out": "strong", "finished": "strong"}


def spacetime(scene: Scene, verdict: dict[str, Any], *, standalone: bool = False) -> str:
    """SVG text of a scene; a standalone one carries its own style and ground."""
    canvas = Canvas(scene)
    beside = callouts(scene, verdict)
    x = canvas.pages_end + 26
    width = x + margin.CALLOUT_PX + 6 if beside else canvas.pages_end + 60
    lowest = max([canvas.bottom, *(callout.y + callout.height for callout in beside)])
    parts = [title(TITLE)]
    if standalone:
        parts.append(element("style", palette.variables(".st") + palette.diagram_style()))
        parts.append(element("rect", width="100%", height="100%", style="fill:var(--bg)"))
    parts += [strip.patterns(), *_bands(canvas), *_phases(canvas), *_heads(canvas), *strip.strip(canvas)]
    parts += flights.orders(canvas)
    parts += [flights.flight(canvas, flight) for flight in scene.flights if flight.kind == "message"]
    parts += [flights.bar(canvas, bar) for bar in scene.bars]
    parts += [flights.flight(canvas, flight) for flight in scene.flights if flight.kind == "write"]
    parts += [strip.landing(canvas, landing) for landing in scene.landings]
    parts += [*_marks(canvas), *_labels(canvas)]
    parts += [flights.bar_words(canvas, bar) for bar in scene.bars]
    parts += [margin.callout(canvas, callout, x) for callout in beside]
    key, height = legend.legend(canvas, lowest + 26, width)
    parts += key
    return element(
        "svg",
        *parts,
        xmlns="http://www.w3.org/2000/svg" if standalone else None,
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
        role="img",
        class_="st",
    )


def _heads(canvas: Canvas) -> list[str]:
    """Lifelines, their names, and the real times beside the axis."""
    layout, top = canvas.layout, canvas.top
    box = {"x": layout.network_x - NETWORK_PX / 2, "y": top, "width": NETWORK_PX, "height": canvas.bottom - top}
    about = title("the network: what stands here has left its sender and has not arrived")
    parts = [element("rect", about, rx=6, class_="net", **box)]
    parts.append(text("network", layout.network_x, top - 18, "head mid"))
    parts.append(text("data and control", layout.network_x, top - 4, "small soft mid"))
    for lane in layout.lanes.values():
        if lane.role != "network":
            parts.append(line(lane.x, top, lane.x, canvas.bottom, "life"))
            parts.append(text(lane.name, lane.x, top - 18, "head mid"))
            parts.append(text(_ROLES[lane.role], lane.x, top - 4, "small soft mid"))
    return parts + (_axis(canvas) if layout.form.schedule else [])


def _axis(canvas: Canvas) -> list[str]:
    """The real times, and the head of the schedule's column."""
    parts = [text("ms", STEP_X - 22, canvas.top - 4, "small soft end")]
    parts.append(text("schedule", STEP_X - 12, canvas.top - 18, "head"))
    for y, ms in canvas.layout.times:
        parts.append(text(f"{ms:.2f}" if ms < 9.995 else f"{ms:.1f}", STEP_X - 22, y + 4, "small soft num end"))
    return parts


def _bands(canvas: Canvas) -> list[str]:
    """Every other step on a ground of its own."""
    turns = [(label.y, label.events[0].kind) for label in canvas.layout.labels if label.events[0].kind in _TURNS]
    parts = []
    left = canvas.layout.form.left
    for index, (top, kind) in enumerate(turns):
        bottom = turns[index + 1][0] if index + 1 < len(turns) else canvas.bottom
        if index % 2 == 0 and kind == "step":
            box = {"x": left, "y": top - 12, "width": canvas.pages_end - left + 4, "height": bottom - top}
            parts.append(element("rect", class_="band", **box))
    return parts


_TURNS = ("step", "phase")


def _phases(canvas: Canvas) -> list[str]:
    parts = []
    for label in canvas.layout.labels:
        if label.events[0].kind == "phase":
            parts.append(line(canvas.layout.form.left, label.y - 4, canvas.pages_end + 4, label.y - 4, "phase"))
            parts.append(text(label.lines[0], STEP_X - 10, label.y - 9, "small soft strong"))
    return parts


def _marks(canvas: Canvas) -> list[str]:
    """A dot for every event on its lifeline, with its words for a pointer."""
    parts = []
    for event in canvas.scene.window.events:
        lane = canvas.layout.lanes[event.instance]
        if lane.role == "network" or event.kind in ("phase", "step", "step-done"):
            continue
        words = f"{told(event)} ({milliseconds(canvas.scene.ms(event))})"
        y = canvas.layout.y[event.instance, event.seq]
        dot = element("circle", cx=lane.x, cy=y, r=3.2, class_="dot")
        parts.append(element("g", title(words), dot, class_=f"event {canvas.colour(event.request)}"))
    return parts


def _labels(canvas: Canvas) -> list[str]:
    """The words beside the lifelines and in the column of steps."""
    parts = []
    for label in canvas.layout.labels:
        if label.events[0].kind != "phase":
            parts += _step(label) if label.lane.role == "client" else _label(label)
    return parts


def _step(label: Label) -> list[str]:
    event, y = label.events[0], label.y
    if event.kind == "step":
        number = element("circle", cx=STEP_X - 4, cy=y, r=8.5, class_="badge")
        parts = [number, text(str(event.data["n"]), STEP_X - 4, y + 4, "badgeno")]
        parts.append(element("circle", cx=label.lane.x, cy=y, r=3.6, class_="badge"))
        return parts + _lines(label, STEP_X + 12, "strong")
    style = _STEP_STYLES.get(event.kind, "soft")
    mark = "↳" if event.kind == "step-done" else "■"
    return [text(mark, STEP_X + 1, y + 4, style), *_lines(label, STEP_X + 14, style)]


def _lines(label: Label, x: float, style: str) -> list[str]:
    return [text(words, x, label.y + 4 + STEP_LINE_PX * row, style) for row, words in enumerate(label.lines)]


def _label(label: Label) -> list[str]:
    lane = label.lane
    if lane.role == "network":
        return [text(label.lines[0], lane.x + NETWORK_PX / 2 + 4, label.y + 4, "halo strong")]
    style = _LABEL_STYLES.get(label.events[0].kind, "")
    x, anchor = (lane.x - 10, "end") if lane.side == "left" else (lane.x + 10, "")
    return [text(label.lines[0], x, label.y + 4, f"halo {anchor} {style}".strip())]

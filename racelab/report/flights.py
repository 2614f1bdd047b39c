"""What moves in a diagram: writes, messages, what waits in the network, what the client asks and is answered."""

from __future__ import annotations

from racelab.evidence.events import TERMINAL_KINDS, Event
from racelab.report.canvas import BAR_PX, NETWORK_PX, Canvas
from racelab.report.scene import Bar, Flight
from racelab.report.svg import CHAR_PX, element, line, text, title
from racelab.report.words import CLIENT, access, count_of, milliseconds, size, who

HEAD_LENGTH_PX = 7.0
_ASKS = {"submit": "submitted", "abort": "aborted", "release": "released", "drop": "dropped"}


def arrow(start: tuple[float, float], end: tuple[float, float], stroke: str, head: str | None = None) -> list[str]:
    """A straight arrow, with a wide invisible line around it for the pointer."""
    (x1, y1), (x2, y2) = start, end
    back = HEAD_LENGTH_PX if x2 > x1 else -HEAD_LENGTH_PX
    parts = [line(x1, y1, x2 - back if head else x2, y2, stroke), line(x1, y1, x2, y2, "hit")]
    if head:
        points = f"{x2:.1f},{y2:.1f} {x2 - back:.1f},{y2 - 4:.1f} {x2 - back:.1f},{y2 + 4:.1f}"
        parts.append(element("polygon", points=points, class_=head))
    return parts


def flight(canvas: Canvas, flight: Flight) -> str:
    """The way of one write or message, as one group: it stops at the gate and goes on when it was let go."""
    write = flight.kind == "write"
    stroke, head = ("wr", "wrhead") if write else ("msg", "msghead")
    start = canvas.at(flight.out) if flight.out is not None else None
    stop = _stop(canvas, flight)
    parts = [title(_words(canvas, flight))]
    if flight.held is not None:
        parts += _through_gate(canvas, flight, start, stop, stroke, head)
    elif start is not None and stop is not None:
        tip = "wropen" if write and flight.landed is None else head
        parts += arrow(start, stop, stroke, None if canvas.scene.below(flight.arrived) else tip)
    elif start is not None:
        parts += arrow(start, (canvas.layout.network_x, start[1] + 6), stroke)
    colour = canvas.colour(flight.any.request)
    return element("g", *parts, class_=f"flight {flight.kind} {colour}", data_id=flight.identity)


def _through_gate(
    canvas: Canvas,
    flight: Flight,
    start: tuple[float, float] | None,
    stop: tuple[float, float] | None,
    stroke: str,
    head: str,
) -> list[str]:
    """Sender to bar, and bar to receiver if it was let go within the picture."""
    assert flight.held is not None
    hold = str(flight.held.data["hold"])
    bar = next(bar for bar in canvas.scene.bars if bar.hold == hold)
    x = canvas.bar_x(bar)
    held = canvas.scene.y(flight.held)
    y = held if held is not None else bar.top
    parts: list[str] = []
    if start is not None:
        parts += arrow(start, (x + _towards(x, start[0]), y), stroke)
    let_go = flight.released or flight.landed
    if stop is not None and not canvas.scene.below(let_go):
        released = canvas.scene.y(let_go)
        tip = None if canvas.scene.below(flight.arrived) else head
        parts += arrow((x + _towards(x, stop[0]), released if released is not None else y), stop, stroke, tip)
    if flight.lost is not None and not canvas.scene.below(flight.lost):
        lost = canvas.scene.y(flight.lost)
        parts += _cross(x, lost if lost is not None else y, 5)
    return parts


def _towards(x: float, other: float) -> float:
    return BAR_PX / 2 if other > x else -BAR_PX / 2


def _stop(canvas: Canvas, flight: Flight) -> tuple[float, float] | None:
    """A message ends at a lifeline; a write ends at the page and asks nobody."""
    arrived = flight.arrived
    if arrived is None:
        return None
    if flight.kind == "message":
        return canvas.at(arrived)
    x, y = canvas.page_middle((flight.out or flight.any).page), canvas.scene.y(arrived)
    if y is None:
        return None
    return (x if x is not None else canvas.layout.pages_x), y


def _words(canvas: Canvas, flight: Flight) -> str:
    some = flight.out or flight.any
    if flight.kind == "message":
        what = f"message {some.data.get('type', flight.identity)} of {who(some)}"
    else:
        layer = f", {some.data['stream']}" if "stream" in some.data else ""
        layer += f", layer {some.data['layer']}" if "layer" in some.data else ""
        layer += f" rank {some.data['rank']}" if "rank" in some.data else ""
        amount = f", {size(int(some.data['bytes']))}" if "bytes" in some.data else ""
        to = "into" if access(some) == "read" else "to"
        what = f"{access(some)} of {who(some)} {to} page {some.page} gen {some.gen}{layer}{amount}"
    ways = (
        ("left", flight.out),
        ("held", flight.held),
        ("let go", flight.released),
        ("landed", flight.landed),
        ("lost", flight.lost),
        ("API returned" if flight.kind == "write" else "received", flight.back),
    )
    told = [f"{word} at {milliseconds(canvas.scene.ms(event))}" for word, event in ways if event is not None]
    return f"{what}: {', '.join(told)}"


def bar(canvas: Canvas, bar: Bar) -> str:
    """What waits in the network, for as long as it waits."""
    x = canvas.bar_x(bar)
    top, height = bar.top - 5, bar.bottom - bar.top + 10
    box = {"x": x - BAR_PX / 2, "y": top, "width": BAR_PX, "height": height, "rx": 4}
    parts = [
        title(f"{bar.hold} held {count_of(bar.count, bar.kind)} of {bar.request}: {_waited(bar)}"),
        element("rect", class_="bar", **box),
        element("rect", class_="barfill", **box),
    ]
    rungs = int((height - 8) // 8)
    first = top + (height - 8 * (rungs - 1)) / 2
    parts += [line(x - 3.5, first + 8 * n, x + 3.5, first + 8 * n, "stripe") for n in range(rungs)]
    return element("g", *parts, class_=f"hold {canvas.colour(bar.request)}", data_hold=bar.hold)


def _waited(bar: Bar) -> str:
    return milliseconds(bar.waited_ms) if bar.waited_ms is not None else "to the end"


def bar_words(canvas: Canvas, bar: Bar) -> str:
    """The bar's label, at its top, on the side to which what it holds is bound."""
    room = canvas.layout.form.arrow_gap - NETWORK_PX / 2 - 12
    forms = (f"{bar.hold}: {count_of(bar.count, bar.kind)} held {_waited(bar)}", f"{bar.hold}: held {_waited(bar)}")
    words = next((words for words in forms if len(words) * CHAR_PX < room), f"{bar.hold}, {_waited(bar)}")
    lane = canvas.layout.lanes.get(bar.source)
    edge = NETWORK_PX / 2 + 5
    if lane is not None and lane.x > canvas.layout.network_x:
        return text(words, canvas.layout.network_x - edge, bar.top + 4, "small halo strong end")
    return text(words, canvas.layout.network_x + edge, bar.top + 4, "small halo strong")


def orders(canvas: Canvas) -> list[str]:
    """Thin arrows for what enters and leaves by the client: requests, answers, releases."""
    parts = []
    events = canvas.scene.window.events
    for index, event in enumerate(events):
        later = events[index + 1 :]
        other = _effect(event, later) if event.kind == "step" else None
        if event.kind in TERMINAL_KINDS:
            other = _heard(event, later)
        start, end = canvas.at(event), canvas.at(other) if other is not None else None
        if start is not None and end is not None:
            parts.append(element("g", *arrow(start, end, "order", "orderhead"), class_="asked"))
    return parts


def _effect(step: Event, later: list[Event]) -> Event | None:
    """The first event that the step asked for."""
    words = str(step.data["text"]).split()
    wanted, name = _ASKS.get(str(step.data["verb"])), words[1] if len(words) > 1 else ""
    for event in later:
        if event.kind == wanted and name in (event.request, event.data.get("hold")):
            return event
        if wanted is None or (event.kind == "step" and wanted in ("submitted", "aborted")):
            return None
    return None


def _heard(event: Event, later: list[Event]) -> Event | None:
    """Where the conductor had heard of the event."""
    for other in later:
        if other.instance == CLIENT and other.after.get(event.instance, 0) >= event.seq:
            return other
    return None


def _cross(x: float, y: float, reach: float) -> list[str]:
    rising = line(x - reach, y + reach, x + reach, y - reach, "lost")
    return [line(x - reach, y - reach, x + reach, y + reach, "lost"), rising]

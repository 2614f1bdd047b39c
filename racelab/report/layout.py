"""Where the events of a diagram stand: lanes from left to right, causal order from top to bottom.

The vertical axis is ordinal: each event stands below every event before it, and a label gets the
room it needs within its own lane. Everything happens within milliseconds, so a linear time axis
would be a knot and a void; the real times stand beside the axis instead.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import dataclass, field

from racelab.evidence.clock import wall_us
from racelab.evidence.events import Event
from racelab.report.form import Form
from racelab.report.labels import group_key, group_label, step_lines
from racelab.report.svg import CHAR_PX
from racelab.report.window import Window, name
from racelab.report.words import CLIENT, NETWORK

EVENT_PX = 8.0
LANDING_PX = 15.0
QUIET_PX = 2.0
LABEL_PX = 17.0
LINE_PX = 14.0
GROUP_REACH_PX = 64.0
STEP_GAP_PX = 10.0
PHASE_PX = 26.0
AXIS_LABEL_PX = 15.0
HEAD_PX = 64.0

PAGE_PX = 40.0
PAGES_MAX = 16
STEP_CHARS = 32


@dataclass
class Lane:
    """A lifeline; its labels stand on `side` of it."""

    name: str
    x: float
    side: str
    role: str


@dataclass
class Label:
    """Text at the first event of a group, for all of it."""

    lane: Lane
    y: float
    events: list[Event]
    lines: list[str] = field(default_factory=list)


@dataclass
class Layout:
    """Lanes by instance, the y of every drawn event, labels, and the real times beside the axis."""

    form: Form
    lanes: dict[str, Lane]
    network_x: float
    pages: list[int]
    pages_x: float
    y: dict[tuple[str, int], float]
    labels: list[Label]
    times: list[tuple[float, float]]
    bottom: float

    def of(self, event: Event | None) -> float | None:
        """The y of an event, None if it is not drawn."""
        return self.y.get((event.instance, event.seq)) if event is not None else None

    def page_x(self, page: int) -> float | None:
        """The left edge of a page's column."""
        return self.pages_x + self.pages.index(page) * PAGE_PX if page in self.pages else None


def lay_out(window: Window, start_us: int, known: dict[tuple[str, int], Event], form: Form) -> Layout:
    """Place everything; `start_us` is the run's first moment, `known` finds the event that let a step go."""
    lanes, network_x, right = _lanes(window.events, window.receiver, form)
    pages = _pages(window)
    placer = _Placer(lanes, known, form)
    for event in window.events:
        placer.place(event)
    for label in placer.labels:
        room = form.writer_gap if label.lane.side == "left" else form.label_gap
        label.lines = label.lines or [group_label(label.events, int((room - 16) // CHAR_PX))]
    times = _times(window.events, placer.y, start_us)
    bottom = max([placer.last, *placer.free.values()]) + 12
    return Layout(form, lanes, network_x, pages, right, placer.y, placer.labels, times, bottom)


def _lanes(events: list[Event], receiver: str | None, form: Form) -> tuple[dict[str, Lane], float, float]:
    """Client, writers, the network, receivers: whoever posts writes stands left of the network."""
    seen = list(dict.fromkeys(event.instance for event in events))
    gates = {event.instance for event in events if event.kind in ("held", "released", "landed")} | set(NETWORK)
    writers = [instance for instance in seen if instance not in gates and instance not in (CLIENT, receiver)]
    posting = {event.instance for event in events if event.kind == "posted"}
    writers.sort(key=lambda instance: instance not in posting)
    lanes = {CLIENT: Lane("client", form.client_x, "left", "client")}
    x = form.client_x
    for writer in writers or ["prefill"]:
        x += form.writer_gap
        lanes[writer] = Lane(writer, x, "left", "writer")
    network_x = x + form.arrow_gap
    for gate in (instance for instance in seen if instance in gates):
        lanes[gate] = Lane(gate, network_x, "right", "network")
    x = network_x + form.arrow_gap
    lanes[receiver or "decode"] = Lane(receiver or "decode", x, "right", "receiver")
    return lanes, network_x, x + form.label_gap


def _pages(window: Window) -> list[int]:
    """The pages that anything drawn touches; of many, those of the evidence and then the busiest."""
    kinds = (
        "posted",
        "landed",
        "torn",
        "cache-hit",
        "page-private",
        "page-free",
        "page-draining",
        "page-quarantined",
        "refused",
    )
    touched: Counter[int] = Counter()
    for event in window.events:
        if event.page is not None and event.kind in kinds:
            touched[event.page] += 1_000 if name(event) in window.evidence else 1
    return sorted(page for page, _ in touched.most_common(PAGES_MAX))


class _Placer:
    """Walks down the page, one event after the other."""

    def __init__(self, lanes: dict[str, Lane], known: dict[tuple[str, int], Event], form: Form) -> None:
        self.lanes = lanes
        self.form = form
        self.known = known
        self.y: dict[tuple[str, int], float] = {}
        self.labels: list[Label] = []
        self.free: dict[str, float] = {}
        self.last = HEAD_PX
        self._groups: dict[tuple[str, object], Label] = {}

    def place(self, event: Event) -> None:
        """Give the event its y, and its lane the room for a label if it starts one."""
        lane = self.lanes[event.instance]
        key = group_key(event)
        if lane.role == "client" and not self.form.schedule:
            self._settle(event, self.last + QUIET_PX)
            return
        y = self.last + (LANDING_PX if event.kind in ("landed", "torn") else EVENT_PX)
        if key is None or event.kind in self.form.silent:
            self._settle(event, y)
            return
        running = self._groups.get((event.instance, key))
        if running is not None and y - running.y < GROUP_REACH_PX:
            running.events.append(event)
            self._settle(event, y)
            return
        by = event.data.get("by")
        cause = self.known.get((str(by[0]), int(by[1]))) if event.kind == "step-done" and by else None
        lines = [wrapped for line in step_lines(event, cause) for wrapped in textwrap.wrap(line, STEP_CHARS)]
        if event.kind == "phase":
            y = max(y, max(self.free.values(), default=0)) + PHASE_PX / 2
        elif event.kind == "step":
            y = max(y + STEP_GAP_PX, self.free.get(event.instance, 0))
        else:
            y = max(y, self.free.get(event.instance, 0))
        label = Label(lane, y, [event], lines)
        self.labels.append(label)
        self._groups[event.instance, key] = label
        self.free[event.instance] = y + LABEL_PX + LINE_PX * max(len(lines) - 1, 0)
        self._settle(event, y)

    def _settle(self, event: Event, y: float) -> None:
        self.y[event.instance, event.seq] = y
        self.last = y


def _times(events: list[Event], y: dict[tuple[str, int], float], start_us: int) -> list[tuple[float, float]]:
    """(y, ms since the start), as many as there is room for."""
    times: list[tuple[float, float]] = []
    for event in events:
        at = y[event.instance, event.seq]
        if not times or at - times[-1][0] >= AXIS_LABEL_PX or (event.kind == "step" and at - times[-1][0] >= 12):
            times.append((at, (wall_us(event.hlc) - start_us) / 1000))
    return times

"""What a diagram shows of a run: arrows, what waited in the network, who owned which page, and the turning points."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from racelab.evidence.clock import wall_us
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.naming import start_us
from racelab.report.form import FULL, Form
from racelab.report.layout import HEAD_PX, Layout, lay_out
from racelab.report.ownership import Book, Holding
from racelab.report.window import Window, choose
from racelab.report.words import UNREAD_STATES


@dataclass
class Flight:
    """A write or a message: the events of its way, those that happened.

    `out` is `posted` or `sent`; `back` is the writer's `completed` or the receiver's `received`.
    """

    identity: str
    kind: str
    out: Event | None = None
    held: Event | None = None
    released: Event | None = None
    landed: Event | None = None
    lost: Event | None = None
    back: Event | None = None

    @property
    def any(self) -> Event:
        """Some event of it, for its request and page."""
        return next(event for event in (self.out, self.held, self.released, self.landed, self.lost, self.back) if event)

    @property
    def arrived(self) -> Event | None:
        """The event that shows that it took effect, if one does."""
        if self.kind == "message":
            return self.back
        if self.landed is not None:
            return self.landed
        done = self.back is not None and self.back.data.get("status") == "ok"
        return self.back if done and self.held is None else None


@dataclass
class Bar:
    """What a hold kept in the network, from its first stop to its last release."""

    hold: str
    request: str | None
    kind: str
    count: int
    top: float
    bottom: float
    open_ended: bool
    waited_ms: float | None
    source: str = ""
    column: int = 0


@dataclass
class Segment:
    """A page under one holding, from one y to another."""

    page: int
    holding: Holding | None
    top: float
    bottom: float


@dataclass
class Landing:
    """A write that reached a page's memory; `met` says what it found there if that was not its own."""

    flight: Flight
    page: int
    y: float
    exact: bool
    met: str | None
    holding: Holding | None

    @property
    def foreign(self) -> bool:
        """Whether the page was not its request's any more, and nobody kept it out of use."""
        kept = self.holding is not None and self.holding.state in UNREAD_STATES
        return self.met is not None and not kept


@dataclass
class Scene:
    """Everything that is drawn."""

    window: Window
    layout: Layout
    flights: list[Flight]
    bars: list[Bar]
    segments: list[Segment]
    landings: list[Landing]
    requests: list[str]
    began_us: int

    def ms(self, event: Event) -> float:
        """Milliseconds since the run started."""
        return (wall_us(event.hlc) - self.began_us) / 1000

    def y(self, event: Event | None) -> float | None:
        """The y of an event; one that is not drawn stands with the last drawn one before it."""
        if event is None:
            return None
        placed = self.layout.of(event)
        if placed is not None or not self.window.events:
            return placed
        index = bisect_right(self._readings, event.hlc)
        if index == len(self._readings):
            return self.layout.bottom
        return self.layout.of(self.window.events[index - 1]) if index else HEAD_PX

    def below(self, event: Event | None) -> bool:
        """Whether an event comes after everything that is drawn."""
        return event is not None and bool(self._readings) and event.hlc > self._readings[-1]

    @cached_property
    def _readings(self) -> list[int]:
        return [event.hlc for event in self.window.events]


def build(history: History, verdict: dict[str, Any], form: Form = FULL) -> Scene:
    """The scene of a run."""
    window = choose(history, verdict, form)
    began_us = start_us(history)
    layout = lay_out(window, began_us, {(event.instance, event.seq): event for event in history.events}, form)
    known = list(history.header.scenario.requests)
    named = [event.request for event in history.events if event.request is not None]
    requests = list(dict.fromkeys([*known, *named]))
    scene = Scene(window, layout, [], [], [], [], requests, began_us)
    scene.flights = [flight for flight in _flights(history.events) if _visible(scene, flight)]
    scene.bars = _bars(scene)
    _follow_pages(scene, history.events)
    return scene


# -- writes and messages


def _flights(events: Iterable[Event]) -> list[Flight]:
    found: dict[str, Flight] = {}
    batches: dict[str, list[Flight]] = {}
    for event in events:
        data = event.data
        match event.kind:
            case "posted":
                flight = found[data["write"]] = Flight(str(data["write"]), "write", out=event)
                batches.setdefault(str(data["batch"]), []).append(flight)
            case "completed":
                for flight in batches.get(str(data["batch"]), []):
                    flight.back = flight.back or event
            case "sent":
                flight = found.setdefault(data["id"], Flight(str(data["id"]), "message"))
                flight.out = flight.out or event
            case "received":
                flight = found.setdefault(data["id"], Flight(str(data["id"]), "message"))
                flight.back = flight.back or event
            case "held" | "released" | "landed" | "torn" | "dropped" | "unlanded":
                kind = "write" if event.page is not None else "message"
                flight = found.setdefault(str(data["what"]), Flight(str(data["what"]), kind))
                part = {"dropped": "lost", "unlanded": "lost", "torn": "landed"}.get(event.kind, event.kind)
                setattr(flight, part, event)
    return list(found.values())


def _visible(scene: Scene, flight: Flight) -> bool:
    parts = (flight.out, flight.held, flight.released, flight.landed, flight.lost, flight.back)
    return any(scene.layout.of(event) is not None for event in parts)


def _bars(scene: Scene) -> list[Bar]:
    holds: dict[str, list[Flight]] = {}
    for flight in scene.flights:
        if flight.held is not None:
            holds.setdefault(str(flight.held.data["hold"]), []).append(flight)
    bars = [_bar(scene, hold, flights) for hold, flights in holds.items()]
    for index, bar in enumerate(bars):
        taken = {other.column for other in bars[:index] if other.top < bar.bottom and bar.top < other.bottom}
        bar.column = next(column for column in range(len(bars)) if column not in taken)
    return bars


def _bar(scene: Scene, hold: str, flights: list[Flight]) -> Bar:
    tops = [scene.y(flight.held) for flight in flights]
    ends = [flight.released or flight.lost or flight.landed for flight in flights]
    bottoms = [scene.y(end) for end in ends]
    first = min((flight.held for flight in flights if flight.held), key=lambda event: event.hlc)
    last = max((end for end in ends if end), key=lambda event: event.hlc, default=None)
    open_ended = any(end is None for end in ends)
    return Bar(
        hold=hold,
        request=flights[0].any.request,
        kind=flights[0].kind,
        count=len(flights),
        top=min(top for top in tops if top is not None),
        bottom=scene.layout.bottom if open_ended else max(bottom for bottom in bottoms if bottom is not None),
        open_ended=open_ended,
        source=next((flight.out.instance for flight in flights if flight.out), ""),
        waited_ms=scene.ms(last) - scene.ms(first) if last is not None and not open_ended else None,
    )


# -- pages


def _follow_pages(scene: Scene, events: Iterable[Event]) -> None:
    """One walk over the whole history: the window starts with the owners that it finds."""
    book = Book()
    book.receiver = scene.window.receiver
    running: dict[int, Segment] = {page: Segment(page, None, HEAD_PX, HEAD_PX) for page in scene.layout.pages}
    arrivals: dict[tuple[str, int], list[Flight]] = {}
    for flight in scene.flights:
        if flight.kind == "write" and flight.arrived is not None:
            arrivals.setdefault(_key(flight.arrived), []).append(flight)
    for event in events:
        holding = book.see(event)
        if holding is not None and event.instance == book.receiver and event.page in running:
            _next_segment(scene, running, event, holding)
        for flight in arrivals.get(_key(event), []):
            _land(scene, book, flight, event)
    for segment in running.values():
        segment.bottom = scene.layout.bottom
        scene.segments.append(segment)


def _key(event: Event | None) -> tuple[str, int]:
    return (event.instance, event.seq) if event is not None else ("", 0)


def _next_segment(scene: Scene, running: dict[int, Segment], event: Event, holding: Holding) -> None:
    assert event.page is not None
    y = scene.y(event)
    old = running[event.page]
    at = old.top if y is None else max(y, old.top)
    if at > old.top:
        old.bottom = at
        scene.segments.append(old)
    running[event.page] = Segment(event.page, holding, at, at)


def _land(scene: Scene, book: Book, flight: Flight, event: Event) -> None:
    write = flight.out or flight.any
    y = scene.layout.of(event)
    if y is None or write.page is None:
        return
    exact = event.kind in ("landed", "torn")
    scene.landings.append(Landing(flight, write.page, y, exact, book.meets(write), book.holding(write.page)))

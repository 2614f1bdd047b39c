"""What every part of a drawing needs to know: the scene, its measures, and each request's colour."""

from __future__ import annotations

from racelab.evidence.events import Event
from racelab.report import palette
from racelab.report.layout import HEAD_PX, PAGE_PX, Layout
from racelab.report.scene import Bar, Scene

BAR_PX = 16.0
BAR_GAP_PX = 22.0
NETWORK_PX = 64.0


class Canvas:
    """Measures of one drawing, in pixels."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.layout: Layout = scene.layout
        self.top = HEAD_PX - 14
        self.bottom = self.layout.bottom
        self.pages_end = self.layout.pages_x + PAGE_PX * len(self.layout.pages)

    def colour(self, request: str | None) -> str:
        """The class that carries a request's colour."""
        names = self.scene.requests
        return f"q{names.index(request) % palette.REQUEST_COLOURS}" if request in names else "q5"

    def at(self, event: Event) -> tuple[float, float] | None:
        """Where an event stands: on its lifeline, or at the left edge of the network."""
        lane = self.layout.lanes.get(event.instance)
        y = self.scene.y(event)
        if lane is None or y is None:
            return None
        return (lane.x - NETWORK_PX / 2 if lane.role == "network" else lane.x), y

    def page_middle(self, page: int | None) -> float | None:
        """The middle of a page's column."""
        x = self.layout.page_x(page) if page is not None else None
        return x + PAGE_PX / 2 if x is not None else None

    def bar_x(self, bar: Bar) -> float:
        """The middle of a hold's bar."""
        columns = 1 + max(other.column for other in self.scene.bars)
        return self.layout.network_x + (bar.column - (columns - 1) / 2) * BAR_GAP_PX

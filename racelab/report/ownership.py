"""Who owns each page of the pool that peers write into, read off the events one by one.

This is bookkeeping for pictures. It judges nothing: the checkers have their own.
"""

from __future__ import annotations

from typing import NamedTuple

from racelab.evidence.events import STATE_AFTER, Event
from racelab.report.words import request_name


class Holding(NamedTuple):
    """A page's state under one generation; `request` is the owner, or who had it last."""

    request: str | None
    attempt: int | None
    gen: int | None
    state: str

    @property
    def owned(self) -> bool:
        """Whether the page is somebody's and may be read."""
        return self.state in ("PRIVATE", "SHARED", "DUP")

    @property
    def owner(self) -> str:
        """The request's name for people."""
        return request_name(self.request, self.attempt)


class Book:
    """The pages of every instance; `receiver` is the one whose pages are granted to peers."""

    def __init__(self) -> None:
        self.receiver: str | None = None
        self._pages: dict[tuple[str, int], Holding] = {}
        self._aims: dict[str, str] = {}
        """by write, whose memory it goes to, where several instances have such"""

    def see(self, event: Event) -> Holding | None:
        """Take one event; the new holding, if it was about one."""
        if event.kind == "granted" and self.receiver is None:
            self.receiver = event.instance
        if event.kind == "posted" and "to" in event.data:
            self._aims[event.data["write"]] = event.data["to"]
        state = STATE_AFTER.get(event.kind)
        if state is None or event.page is None:
            return None
        before = self._pages.get((event.instance, event.page))
        request = event.request or (before.request if before else None)
        attempt = event.attempt if event.request else (before.attempt if before else None)
        holding = Holding(request, attempt, event.gen, state)
        self._pages[event.instance, event.page] = holding
        return holding

    def holding(self, page: int | None, instance: str | None = None) -> Holding | None:
        """What is known of a page of the receiver, or of another instance."""
        place = instance or self.receiver
        return self._pages.get((place, page)) if place is not None and page is not None else None

    def meets(self, write: Event) -> str | None:
        """What a landing `write` meets, if not its own page: `r2 owns it now (gen 2)`; None when it is right."""
        what = str(write.data.get("what") or write.data.get("write"))  # as its gate or its writer calls it
        holding = self.holding(write.page, self._aims.get(what))
        if holding is None:
            return None
        if holding.gen == write.gen:
            return None if holding.owned else f"the page is {holding.state}"
        if holding.owned:
            return f"{holding.owner} owns the page now (gen {holding.gen})"
        return f"gen {write.gen} has ended, the page is {holding.state} (gen {holding.gen})"

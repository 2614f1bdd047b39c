"""A history as a Chrome trace, for https://ui.perfetto.dev: every process a group of tracks.

    conductor          phases and steps as slices
    prefill, decode    every event; requests and writes as spans from their beginning to their end
    decode pages       a track a page: each generation, in each of its states
    gates              what was held, from its stop to its end

Arrows lead from a message's sending to its arrival and from a write's post to its landing. Times are
those of the hybrid clocks: on one host real ones; between hosts they only keep the order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from racelab.evidence.clock import wall_us
from racelab.evidence.events import STATE_AFTER, TERMINAL_KINDS, Event
from racelab.evidence.history import History
from racelab.evidence.naming import attempt_name, number
from racelab.evidence.writes import Writes

_EVENTS, _SPANS = 0, 1
_ENDS = ("landed", "torn", "delivered", "dropped", "unlanded")

Entry = dict[str, Any]


def write(history: History, path: Path) -> None:
    """Write the trace; an earlier file of that name is replaced when the new one is whole."""
    partial = path.with_suffix(".partial")
    partial.write_bytes(msgspec.json.encode(trace(history)))
    partial.replace(path)


def trace(history: History) -> dict[str, Any]:
    """The object of Chrome's Trace Event Format, with what the header says in `otherData`."""
    header = history.header
    about = {"scenario": header.scenario.scenario, "policy": header.policy, "target": header.target}
    return {
        "displayTimeUnit": "ns",
        "otherData": about | {"transport": header.transport, "seed": header.seed, "schema": header.schema},
        "traceEvents": list(_Tracks(history).entries()),
    }


class _Tracks:
    """Processes and tracks by number, and what is drawn on them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._start_us = wall_us(history.events[0].hlc) if history.events else 0
        instances = dict.fromkeys(event.instance for event in history.events)
        pools = [f"{event.instance} pages" for event in history.by_kind["pool"]]
        self._pids = {name: index for index, name in enumerate([*instances, *dict.fromkeys(pools)], 1)}

    def entries(self) -> Iterator[Entry]:
        """Everything, in no particular order: viewers sort by time."""
        for name, pid in self._pids.items():
            yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
            yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}}
        for event in self._history.events:
            yield self._instant(event)
        yield from self._steps()
        yield from self._requests()
        yield from self._writes()
        yield from self._holds()
        yield from self._pages()
        yield from self._messages()

    def _us(self, event: Event) -> int:
        return wall_us(event.hlc) - self._start_us

    def _at(self, event: Event, track: int = _EVENTS) -> Entry:
        return {"pid": self._pids[event.instance], "tid": track, "ts": self._us(event)}

    def _instant(self, event: Event) -> Entry:
        who = f" {attempt_name(event.request, event.attempt)}" if event.request else ""
        fields = {"number": number(event), "page": event.page, "gen": event.gen, "clock_ms": event.clock_ms}
        given = {name: value for name, value in fields.items() if value is not None}
        return (
            self._at(event)
            | {"ph": "i", "s": "t", "name": f"{event.kind}{who}", "cat": event.kind}
            | {"args": given | event.data}
        )

    # -- spans

    def _slice(self, name: str, start: Event, end: Event | None, track: int = _SPANS, **args: Any) -> Entry:
        """From one event to another of the same process, or to the end of the history."""
        end_us = self._us(end if end is not None else self._history.events[-1])
        return self._at(start, track) | {
            "ph": "X",
            "name": name,
            "dur": max(end_us - self._us(start), 1),
            "args": args | {"from": number(start), "to": number(end) if end is not None else "the end"},
        }

    def _span(self, name: str, category: str, identity: str, start: Event, end: Event | None) -> Iterator[Entry]:
        """The same where several overlap: viewers give each a row."""
        last = end if end is not None else self._history.events[-1]
        for phase, event in (("b", start), ("e", last)):
            yield {
                "ph": phase,
                "cat": category,
                "name": name,
                "id": identity,
                "pid": self._pids[start.instance],
                "tid": _SPANS,
                "ts": self._us(event),
                "args": {"event": number(event)},
            }

    def _steps(self) -> Iterator[Entry]:
        phases = self._history.by_kind["phase"]
        for phase, following in zip(phases, [*phases[1:], None], strict=True):
            yield self._slice(f"phase {phase.data['phase']}", phase, following, _SPANS)
        done = {event.data["n"]: event for event in self._history.by_kind["step-done"]}
        for step in self._history.by_kind["step"]:
            yield self._slice(step.data["text"], step, done.get(step.data["n"]), _SPANS + 1)

    def _requests(self) -> Iterator[Entry]:
        ends: dict[tuple[str | None, int | None], Event] = {}
        for event in self._history.of(*TERMINAL_KINDS):
            ends.setdefault((event.request, event.attempt), event)
        for event in self._history.by_kind["submitted"]:
            name = attempt_name(event.request, event.attempt)
            yield from self._span(name, "request", name, event, ends.get((event.request, event.attempt)))

    def _writes(self) -> Iterator[Entry]:
        for write in self._history.derived(Writes):
            posted = write.posted
            name = f"{write.id} of {attempt_name(posted.request, posted.attempt)} to page {posted.page}"
            yield from self._span(name, "write", write.id, posted, write.completed)
            if write.landed is not None:
                yield from self._arrow(write.id, "write", posted, write.landed)

    def _holds(self) -> Iterator[Entry]:
        ends = {event.data["what"]: event for event in self._history.of(*_ENDS)}
        for held in self._history.by_kind["held"]:
            what = held.data["what"]
            yield from self._span(f"{held.data['hold']} holds {what}", "hold", what, held, ends.get(what))

    def _pages(self) -> Iterator[Entry]:
        open_: dict[tuple[str, int | None], tuple[Event, str]] = {}
        for event in self._history.of(*STATE_AFTER):
            place = (event.instance, event.page)
            if place in open_:
                yield self._page(*open_.pop(place), event)
            state = STATE_AFTER[event.kind]
            if state != "FREE":
                open_[place] = (event, state)
        for start, state in open_.values():
            yield self._page(start, state, None)

    def _page(self, start: Event, state: str, end: Event | None) -> Entry:
        name = f"{state} of {attempt_name(start.request, start.attempt, start.gen)}"
        place = {"pid": self._pids.get(f"{start.instance} pages", self._pids[start.instance]), "tid": start.page}
        return self._slice(name, start, end) | place

    # -- arrows

    def _messages(self) -> Iterator[Entry]:
        sent = {event.data["id"]: event for event in self._history.by_kind["sent"]}
        for event in self._history.by_kind["received"]:
            if event.data["id"] in sent:
                yield from self._arrow(event.data["id"], str(event.data["type"]), sent[event.data["id"]], event)

    def _arrow(self, identity: str, name: str, start: Event, end: Event) -> Iterator[Entry]:
        for event, more in ((start, {"ph": "s"}), (end, {"ph": "f", "bp": "e"})):
            yield self._at(event) | {"cat": "flow", "name": name, "id": identity} | more
            yield self._at(event) | {"ph": "X", "name": event.kind, "dur": 1}  # what the arrow is tied to

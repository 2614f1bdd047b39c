"""The history of a run: every process's events in one file, causally merged.

`history.jsonl` starts with a header line (schema, scenario, policy, solo tokens, certificates)
and then has one event a line. The verdict can be derived from it alone, anywhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import chain
from operator import attrgetter, lt
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from racelab.errors import HistoryError
from racelab.evidence import collector
from racelab.evidence.events import KINDS, SCHEMA, Event
from racelab.scenario import Scenario

HISTORY_FILE = "history.jsonl"

T = TypeVar("T")


class Header(msgspec.Struct, kw_only=True):
    """What a judge needs beside the events.

    `solo` maps a request to the tokens that it gave alone; `certificates` are those of
    `racelab.evidence.certificates`, as plain data; `expected` is the verdict that the scenario
    states for this policy; `glue_fault` names the fault between the engine and its ledger that was
    switched on, if one was; `simulated` says what stands in for hardware, if anything does; `machine` says what
    carried the transfers, if it was a machine of their own; `shortened` lists deadlines that the cluster sets lower.
    """

    schema: str = SCHEMA
    scenario: Scenario
    target: str
    policy: str
    guards: list[str]
    without: list[str] = []
    glue_fault: str | None = None
    cluster: str = "local"
    transport: str = "tcp"
    simulated: str | None = None
    machine: str | None = None
    shortened: list[str] = []
    seed: int = 0
    expected: str | None = None
    solo: dict[str, list[int]] = {}
    certificates: list[dict[str, Any]] = []
    mechanisms: dict[str, dict[str, Any]] = {}


class History:
    """A header and its events in causal order (by hybrid clock, then instance, then number)."""

    def __init__(self, header: Header, events: Iterable[Event]) -> None:
        self.header = header
        self.events = _merged(events)
        self._derived: dict[Any, Any] = {}

    @cached_property
    def by_kind(self) -> dict[str, list[Event]]:
        """Events of each kind, in order; a kind that did not happen is an empty list."""
        kinds: dict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            kinds[event.kind].append(event)
        return kinds

    @cached_property
    def causality(self) -> Causality:
        """The happened-before relation, worked out when first asked for."""
        return Causality(self.events)

    @property
    def lost(self) -> int:
        """Events that are missing: gaps in the numbers of an instance, or others had heard of later ones."""
        return self._numbering.lost

    @property
    def disorder(self) -> Event | None:
        """The first event whose number or causal edge contradicts the clocks, if there is one.

        No recorder makes such a thing: the file was changed.
        """
        return self._numbering.disorder

    @cached_property
    def _numbering(self) -> Numbering:
        return Numbering(self.events)

    def of(self, *kinds: str) -> list[Event]:
        """Events of any of these kinds, in order."""
        chosen = [self.by_kind[kind] for kind in kinds]
        if sum(map(len, chosen)) * 8 < len(self.events):
            return _merged(chain(*chosen))
        wanted = frozenset(kinds)
        return [event for event in self.events if event.kind in wanted]

    def derived(self, build: Callable[[History], T]) -> T:
        """What `build` makes of this history, made once and shared by whoever asks."""
        if build not in self._derived:
            self._derived[build] = build(self)
        result: T = self._derived[build]
        return result

    def write(self, path: Path) -> None:
        """Write the file in one go, through a temporary name, so that a torn one never has the real name."""
        encoder = msgspec.json.Encoder()
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            file.write(encoder.encode(self.header) + b"\n")
            file.write(encoder.encode_lines(self.events))
        partial.replace(path)


def _merged(events: Iterable[Event]) -> list[Event]:
    """Events in causal order; a file has them in this order already."""
    merged = list(events)
    readings = [event.hlc for event in merged]
    if not all(map(lt, readings, readings[1:])):
        merged.sort(key=attrgetter("hlc", "instance", "seq"))
    return merged


def read(path: str | Path) -> History:
    """Read a history file, or the one inside a run folder.

    Raises:
        HistoryError: it is missing, torn, of another schema, or has an event of no known kind.
    """
    file = Path(path)
    if file.is_dir():
        file = file / HISTORY_FILE
    try:
        head, _, body = file.read_bytes().partition(b"\n")
    except OSError as error:
        raise HistoryError(
            f"no history here: {error.strerror}", file=file, next="give a run folder, or its history.jsonl"
        ) from None
    header = _header(head, file)
    try:
        with collector.paused():
            events = msgspec.json.Decoder(Event).decode_lines(body)
    except msgspec.DecodeError:
        _explain(body, file)
        raise
    for number, event in enumerate(events, 2):
        needed = _NEEDED.get(event.kind)
        if needed is None or not needed <= event.data.keys():
            raise HistoryError(_fault(event), file=file, line=number, next="docs/history.md lists every kind")
    return History(header, events)


_NEEDED = {name: frozenset(kind.data) for name, kind in KINDS.items()}


def _header(head: bytes, file: Path) -> Header:
    try:
        header = msgspec.json.decode(head, type=Header)
    except msgspec.DecodeError as error:
        raise HistoryError(f"the header is torn or not a history: {error}", file=file, line=1) from None
    if header.schema != SCHEMA:
        raise HistoryError(f"schema {header.schema!r}; this version reads {SCHEMA!r}", file=file, line=1)
    return header


def _explain(body: bytes, file: Path) -> None:
    decoder = msgspec.json.Decoder(Event)
    for number, line in enumerate(body.splitlines(), 2):
        try:
            decoder.decode(line)
        except msgspec.DecodeError as error:
            raise HistoryError(
                f"a torn or wrong event: {error}", file=file, line=number, next="take the run again"
            ) from None


def _fault(event: Event) -> str:
    kind = KINDS.get(event.kind)
    if kind is None:
        return f"no event has the kind {event.kind!r}"
    missing = [key for key in kind.data if key not in event.data]
    return f"an event {event.kind!r} without {', '.join(missing)}"


class Numbering:
    """What the events' numbers say: how many are missing, and whether they agree with the clocks."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.lost = 0
        self.disorder: Event | None = None
        self._first: dict[str, int] = {}
        self._unreported: list[tuple[str, int, int]] = []
        self._last: dict[str, int] = {}
        ahead: list[tuple[Event, str, int]] = []
        last = self._last
        for event in events:
            instance, seq = event.instance, event.seq
            before = last.get(instance)
            if before is None:
                self._first[instance] = seq
            elif seq != before + 1:
                self._gap(event, before)
            if before is None or seq > before:
                last[instance] = seq
            for other, known in event.after.items():
                if known > last.get(other, 0):
                    ahead.append((event, other, known))
        self._settle(ahead)

    def _gap(self, event: Event, before: int) -> None:
        if event.kind == "pool" and event.seq > before:
            self._unreported.append((event.instance, before, event.seq))  # another process, which counts on
        elif event.seq > before:
            self.lost += event.seq - before - 1
        else:
            self.disorder = self.disorder or event

    def _settle(self, ahead: list[tuple[Event, str, int]]) -> None:
        """Events that were heard of before they stand in the history: missing at its end, or out of order."""
        for event, other, known in ahead:
            if any(name == other and low < known < high for name, low, high in self._unreported):
                self.lost += 1
            elif known > self._last.get(other, known):
                self.lost += known - self._last[other]
                self._last[other] = known
            elif known >= self._first.get(other, known + 1):
                self.disorder = self.disorder or event


class Causality:
    """Who could have known what: vector clocks, kept only where they change.

    Between two events with an `after`, an instance learns nothing, so its clock need not be
    stored. Cost: one vector an edge; a query is one bisection.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self._places: dict[str, int] = {}
        self._marks: dict[str, list[int]] = defaultdict(list)
        self._clocks: dict[str, list[list[int]]] = defaultdict(list)
        for event in events:
            if event.after:
                self._learn(event)

    def _learn(self, event: Event) -> None:
        places, clocks = self._places, self._clocks[event.instance]
        mine = clocks[-1] if clocks else []
        mine = mine + [0] * (len(places) - len(mine))
        for instance, seq in event.after.items():
            theirs = self._at(instance, seq)
            if theirs:
                mine[: len(theirs)] = map(max, mine, theirs)
            place = places.get(instance)
            if place is None:
                place = places[instance] = len(places)
                mine.append(0)
            if seq > mine[place]:
                mine[place] = seq
        self._marks[event.instance].append(event.seq)
        clocks.append(mine)

    def _at(self, instance: str, seq: int) -> list[int]:
        index = bisect_right(self._marks[instance], seq) - 1
        return self._clocks[instance][index] if index >= 0 else []

    def before(self, a: Event, b: Event) -> bool:
        """Whether `a` happened before `b`: b's process had heard of it, or did it earlier itself."""
        if a.instance == b.instance:
            return a.seq < b.seq
        place = self._places.get(a.instance)
        clock = self._at(b.instance, b.seq)
        return place is not None and place < len(clock) and clock[place] >= a.seq

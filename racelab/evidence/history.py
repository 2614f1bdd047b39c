"""The history of a run: every process's events in one file, causally merged.

`history.jsonl` starts with a header line (schema, scenario, policy, solo tokens, certificates)
and then has one event a line. The verdict can be derived from it alone, anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from racelab.errors import HistoryError
from racelab.evidence import collector
from racelab.evidence.causality import Causality
from racelab.evidence.events import SCHEMA, Event
from racelab.evidence.index import Index
from racelab.evidence.lines import Lines
from racelab.scenario import Scenario

HISTORY_FILE = "history.jsonl"

ORDER = attrgetter("hlc", "instance", "seq")

T = TypeVar("T")


class Header(msgspec.Struct, kw_only=True):
    """What a judge needs beside the events.

    `solo` maps a request to the tokens that it gave alone; `certificates` are those of
    `racelab.evidence.certificates`, as plain data; `expected` is the verdict that the scenario
    states for this policy; `glue_fault` names the fault between the engine and its ledger that was
    switched on, if one was; `simulated` says what stands in for hardware, if anything does; `machine` says what
    carried the transfers, if it was a machine of their own; `shortened` lists deadlines that the cluster sets lower;
    `unreported` names kinds of events that the target cannot see (racelab.evidence.gaps).
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
    unreported: list[str] = []
    seed: int = 0
    expected: str | None = None
    solo: dict[str, list[int]] = {}
    certificates: list[dict[str, Any]] = []
    mechanisms: dict[str, dict[str, Any]] = {}


class History:
    """A header and its events in causal order (by hybrid clock, then instance, then number).

    `lines` are those of the file that it was read from; the events are decoded when they are first asked for.
    """

    def __init__(self, header: Header, events: Iterable[Event] = (), lines: Lines | None = None) -> None:
        self.header = header
        self.lines = lines
        self._given: Iterable[Event] = list(events) if lines is None else ()
        self._derived: dict[Any, Any] = {}

    @cached_property
    def _index(self) -> Index:
        with collector.paused():
            index = Index(chain.from_iterable(self.lines.events()) if self.lines is not None else self._given)
            return index if index.in_order else Index(sorted(index.events, key=ORDER))

    @property
    def events(self) -> list[Event]:
        """All of them, in order."""
        return self._index.events

    @property
    def by_kind(self) -> dict[str, list[Event]]:
        """Events of each kind, in order; a kind that did not happen is an empty list."""
        return self._index.by_kind

    @cached_property
    def causality(self) -> Causality:
        """The happened-before relation, worked out when first asked for."""
        return Causality(self._index.edges)

    @property
    def lost(self) -> int:
        """Events that are missing: gaps in the numbers of an instance, or others had heard of later ones."""
        return self._index.lost

    @property
    def disorder(self) -> Event | None:
        """The first event whose number or causal edge contradicts the clocks, if there is one.

        No recorder makes such a thing: the file was changed.
        """
        return self._index.disorder

    def of(self, *kinds: str) -> list[Event]:
        """Events of any of these kinds, in order."""
        chosen = [events for kind in kinds if (events := self.by_kind.get(kind))]
        if len(chosen) < 2:
            return list(*chosen)
        if sum(map(len, chosen)) * 8 < len(self.events):
            return sorted(chain(*chosen), key=ORDER)
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


def read(path: str | Path) -> History:
    """Read a history file, or the one inside a run folder.

    Raises:
        HistoryError: it is missing or of another schema. That it is torn, or has an event of no known kind,
            is raised when its events are first asked for.
    """
    file = Path(path)
    if file.is_dir():
        file = file / HISTORY_FILE
    try:
        with file.open("rb") as stored:
            return History(_header(stored.readline(), file), lines=Lines(file))
    except OSError as error:
        raise HistoryError(
            f"no history here: {error.strerror}", file=file, next="give a run folder, or its history.jsonl"
        ) from None


def _header(head: bytes, file: Path) -> Header:
    try:
        header = msgspec.json.decode(head, type=Header)
    except msgspec.DecodeError as error:
        raise HistoryError(
            f"the header is torn or not a history: {error}",
            file=file,
            line=1,
            next="give a run folder, or take the run again: `racelab list runs` shows those that there are",
        ) from None
    if header.schema != SCHEMA:
        raise HistoryError(
            f"schema {header.schema!r}; this version reads {SCHEMA!r}",
            file=file,
            line=1,
            next="judge it with the version that recorded it, or take the run again",
        )
    return header

"""The run as it happens, on the terminal: each step, why it may go on, and what the system did.

A step's line is begun when the step is issued and ended when it is over, so that a step that
hangs shows what it waits for. Output that is no terminal gets the same lines without colour.
"""

from __future__ import annotations

import textwrap
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from racelab.evidence.clock import wall_us
from racelab.evidence.events import Event
from racelab.report import closing
from racelab.report.ownership import Book
from racelab.report.words import access, count_of, deed, listed, milliseconds, phrase, size, ticket, told, who
from racelab.scenario import PROBE, Scenario

PLAIN_WIDTH = 118
REMEMBERED_EVENTS = 20_000
WIDE = 116
_WHY_COLUMN = 60
_MS_COLUMN = 10

_STYLES = {
    "refused": "bold cyan",
    "blocked": "bold cyan",
    "timed-out": "yellow",
    "aborted": "yellow",
    "abort-ignored": "yellow",
    "failed": "yellow",
    "retracted": "yellow",
    "requeued": "yellow",
    "held": "magenta",
    "landed": "magenta",
    "torn": "magenta",
    "unlanded": "magenta",
    "dropped": "magenta",
    "delivered": "magenta",
    "withheld": "magenta",
    "told": "magenta",
    "gave-up": "bold red",
    "died": "bold red",
    "page-private": "",
    "page-shared": "",
    "page-dup": "",
    "cache-hit": "",
    "ledger-violation": "bold red",
    "page-free": "",
    "page-draining": "",
    "page-quarantined": "",
    "committed": "",
    "finished": "bold",
}
"""The system events that are told, and how they look."""


class Story:
    """Tells one run. Feed it every event, in the order of arrival."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.width = console.width if console.is_terminal else PLAIN_WIDTH
        self._events: OrderedDict[tuple[str, int], Event] = OrderedDict()
        self._book = Book()
        self._pending: list[Told] = []
        self._step: Event | None = None
        self._column = 0

    # -- the ends

    def begin(self, scenario: Scenario, policy: str, guards: Sequence[str]) -> None:
        """The heading: which schedule, under which guards."""
        about = " ".join(scenario.about.split())
        self._line(Text.assemble(("racelab ", "dim"), (scenario.scenario, "bold")))
        for line in textwrap.wrap(about, min(self.width, PLAIN_WIDTH)):
            self._line(Text(line))
        guarded = f"guards: {', '.join(guards)}" if guards else "no guard"
        self._indented(Text.assemble((policy, "bold"), f" ({guarded})"), 7, Text("policy ", style="dim"))
        self._line(Text())

    def end(self, verdict: dict[str, Any]) -> None:
        """What is left to tell, then the verdict."""
        self._finish_line()
        self._tell_pending()
        self._line(Text())
        closing.show(self.console, verdict, self.width)

    # -- the events

    def see(self, event: Event) -> None:
        """Take one event; most are only remembered."""
        self._events[event.instance, event.seq] = event
        if len(self._events) > REMEMBERED_EVENTS:
            self._events.popitem(last=False)
        reused = self._reused(event)
        self._book.see(event)
        match event.kind:
            case "step":
                self._begin_step(event)
            case "step-done" | "blocked" | "gave-up" if self._step is not None:
                self._end_step(event, self._step)
            case "phase":
                self._begin_phase(event)
            case kind if kind in _STYLES and self._worth_telling(event, reused=reused):
                meets = self._book.meets(event) if kind in ("landed", "torn") else None
                self._pending.append(Told(event, meets or ""))

    def _worth_telling(self, event: Event, *, reused: bool) -> bool:
        """Of pages, those that peers write into and that change hands, and all that are kept out of use."""
        if event.request == PROBE and event.kind != "finished":
            return False
        if event.kind == "page-private":
            return reused and event.instance == self._book.receiver
        return event.kind != "page-free" or event.instance == self._book.receiver

    def _reused(self, event: Event) -> bool:
        """Whether a page goes to somebody after it was somebody else's."""
        before = self._book.holding(event.page, event.instance)
        return before is not None and (before.request, before.attempt) != (event.request, event.attempt)

    def _begin_phase(self, event: Event) -> None:
        phase = str(event.data.get("phase"))
        if phase == "schedule":
            return
        self._finish_line()
        self._tell_pending()
        self._indented(Text(_PHASES.get(phase, phase), style="dim"), 6, Text("   -  ", style="dim"))

    def _begin_step(self, event: Event) -> None:
        self._finish_line()
        self._tell_pending()
        self._step = event
        text = Text.assemble((f"{event.data['n']:>4}  ", "bold blue"), str(event.data["text"]))
        self._column = text.cell_len
        self.console.print(text, end="", soft_wrap=True, highlight=False)
        self.console.file.flush()

    def _end_step(self, event: Event, step: Event) -> None:
        """End the line with why the step may go on and how long it took; `why` goes beneath where room is short."""
        why = Text(self._why(event), style=_STYLES.get(event.kind, "dim"))
        took = Text(milliseconds((wall_us(event.hlc) - wall_us(step.hlc)) / 1000).rjust(_MS_COLUMN), style="dim")
        room = self.width - _WHY_COLUMN - _MS_COLUMN
        beside = self.width >= WIDE and self._column < _WHY_COLUMN - 1 and why.cell_len <= room
        line = Text.assemble(" " * (_WHY_COLUMN - self._column), why) if beside else Text()
        gap = self.width - self._column - line.cell_len - _MS_COLUMN
        if gap < 0:
            self._finish_line()
            gap = self.width - _MS_COLUMN
        self._line(Text.assemble(line, " " * gap, took))
        self._step = None
        if not beside:
            self._indented(why, 6)
        self._tell_pending()

    def _why(self, event: Event) -> str:
        if event.kind == "blocked":
            return f"REFUSED by the guard {event.data['guard']}"
        if event.kind == "gave-up":
            return f"gave up, {event.data['why']}: {event.data['what']}"
        cause = self._events.get(_place(event.data.get("by")))
        if cause is None or cause.instance == event.instance:
            return str(event.data["why"])
        if cause.kind == "refused":
            return f"{cause.instance}: {cause.data['guard']} refuses {deed(cause)} {ticket(cause) or who(cause)}"
        return told(cause)

    # -- the lines beneath a step

    def _tell_pending(self) -> None:
        groups: dict[tuple[Any, ...], list[Event]] = {}
        for told_event in self._pending:
            groups.setdefault(told_event.sort(), []).append(told_event.event)
        met = {told_event.sort(): told_event.meets for told_event in self._pending}
        self._pending = []
        for key, group in groups.items():
            line = _together(group)
            if met[key]:
                line.append(f": {met[key]}", style="bold red" if "owns" in met[key] else "")
            self._indented(line, 16, Text.assemble("        ", (f"{group[0].instance:<7} ", "dim")))

    def _finish_line(self) -> None:
        if self._step is not None:
            self._line(Text())
            self._step = None

    def _indented(self, text: Text, indent: int, lead: Text | None = None) -> None:
        """Print a text that wraps under itself; `lead` stands before its first line."""
        for row, words in enumerate(text.wrap(self.console, self.width - indent)):
            first = lead if lead is not None and row == 0 else Text(" " * indent)
            self._line(Text.assemble(first, words))

    def _line(self, text: Text) -> None:
        self.console.print(text, soft_wrap=True, highlight=False)


_PHASES = {
    "aftermath": "the schedule was stopped; the steps that are left go on, on other pages",
    "release": "everything still held is let go",
    "drain": "the system drains",
    "probe": "a probe request is served",
    "judge": "the processes account for what they hold",
}


def _place(by: Any) -> tuple[str, int]:
    return (str(by[0]), int(by[1])) if isinstance(by, (list, tuple)) and len(by) == 2 else ("", 0)


class Told(NamedTuple):
    """An event worth a line, and what a landing met there."""

    event: Event
    meets: str

    def sort(self) -> tuple[Any, ...]:
        """Events of the same sort share a line."""
        event, data = self.event, self.event.data
        whom = (event.kind, event.instance, event.request, event.attempt)
        return (*whom, data.get("hold"), data.get("type"), data.get("why"), data.get("guard"), self.meets)


def _together(group: list[Event]) -> Text:
    """One line for events that say the same of several pages or writes."""
    event = group[0]
    style = _STYLES[event.kind]
    if len(group) == 1:
        return Text(phrase(event), style=style)
    pages = sorted({other.page for other in group if other.page is not None})
    gens = sorted({other.gen for other in group if other.gen is not None})
    where = f"page{'s' if len(pages) > 1 else ''} {listed(pages)} gen {listed(gens)}" if pages and gens else ""
    match event.kind:
        case "held" | "landed" | "dropped" | "delivered" | "unlanded":
            things = count_of(len(group), access(event) if pages else f"{event.data.get('type', 'control')} message")
            total = sum(int(other.data.get("bytes", 0)) for other in group)
            told_size = f", {size(total)}" if total else ""
            verbs = {"held": "holds", "landed": "landed:", "dropped": "lost:", "delivered": "delivered:"}
            verb = verbs.get(event.kind, "could not deliver")
            to = "into" if access(event) == "read" else "to"
            return Text(f"{verb} {things} of {who(event)}{f' {to} {where}' if where else ''}{told_size}", style=style)
        case "page-private":
            return Text(
                f"{where} goes to {who(event)}" if len(pages) == 1 else f"{where} go to {who(event)}", style=style
            )
        case kind if kind.startswith("page-"):
            why = f" ({event.data['why']})" if event.data.get("why") else ""
            state = kind.removeprefix("page-").upper()
            return Text(f"{where} of {who(event)}: {event.data.get('from')} -> {state}{why}", style=style)
        case "refused":
            whom = where or who(event)
            return Text(f"{event.data['guard']} refuses {deed(event)} {whom}: {event.data['why']}", style=style)
    return Text(f"{phrase(event)} (and {len(group) - 1} more)", style=style)


@contextmanager
def progress(total: int, console: Console | None = None) -> Iterator[Callable[[str], None]]:
    """Many runs: call what this yields with each run's verdict. Nothing is shown off a terminal.

    The bar is on the screen from the first call to the last, so that it never meets the story.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = console or Console(stderr=True)
    counts: dict[str, int] = {}
    columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    bar = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)
    task = bar.add_task("", total=total)

    def advance(verdict: str) -> None:
        if not counts:
            bar.start()
        counts[verdict] = counts.get(verdict, 0) + 1
        told_counts = "  ".join(f"{word} {number:,}" for word, number in counts.items())
        bar.update(task, advance=1, description=told_counts)
        if sum(counts.values()) >= total:
            bar.stop()

    try:
        yield advance
    finally:
        bar.stop()

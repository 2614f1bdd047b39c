"""Histories as pandas frames, for whoever wants to count and plot. Needs the extra `frames`.

from racelab.evidence import frames, history
events = frames.events(history.read("results/runs/late-write-after-timeout/latest"))
events[events.kind == "page-free"].groupby("page").size()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from racelab.errors import MissingPartError
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.naming import number, when_ms
from racelab.evidence.writes import Writes

if TYPE_CHECKING:
    import pandas

_COLUMNS = ("instance", "seq", "incarnation", "kind", "request", "attempt", "page", "gen", "clock_ms", "mono_ns", "hlc")
_MOMENTS = ("posted", "held", "released", "landed", "lost", "completed")
_WHOLE_NUMBERS = ("attempt", "page", "gen", "layer", "start", "end", "chunk")


def events(history: History) -> pandas.DataFrame:
    """One row an event, in causal order: its fields, `ms` since the run started, `after` and `data` as they are."""
    rows = [
        {name: getattr(event, name) for name in _COLUMNS}
        | {"ms": when_ms(history, event), "after": event.after, "data": event.data}
        for event in history.events
    ]
    return _frame(rows, [*_COLUMNS, "ms", "after", "data"])


def fingerprints(history: History) -> pandas.DataFrame:
    """One row a fingerprint that somebody took of a page: of posts, looks, commits, publications and reads."""
    rows = []
    for event in history.of("posted", "look", "committed", "published", "read"):
        about = {"event": number(event), "ms": when_ms(history, event), "kind": event.kind}
        about |= {"request": event.request, "attempt": event.attempt}
        for page, gen, layer, start, end, seen in _rows_of(event):
            place = {"page": page, "gen": gen, "layer": layer, "start": start, "end": end}
            rows.append(about | place | {"fingerprint": seen})
    columns = ["event", "ms", "kind", "request", "attempt", "page", "gen", "layer", "start", "end", "fingerprint"]
    return _frame(rows, columns)


def _rows_of(event: Event) -> list[list[Any]]:
    """[page, gen, layer, start, end, fingerprint] of each fingerprint that an event carries."""
    data = event.data
    if "fingerprints" in data:
        rows: list[list[Any]] = data["fingerprints"]
        return rows
    start = data.get("start", 0)
    return [[event.page, event.gen, data["layer"], start, data.get("end", data.get("bytes")), data["fingerprint"]]]


def writes(history: History) -> pandas.DataFrame:
    """One row a one-sided write: whose it is, where it goes, when it was posted, held, let go, landed, completed."""
    rows = []
    for write in history.derived(Writes):
        posted = write.posted
        row: dict[str, Any] = {"write": write.id, "request": posted.request, "attempt": posted.attempt}
        row |= {"page": posted.page, "gen": posted.gen, "layer": write.layer, "chunk": posted.data["chunk"]}
        row |= {"bytes": write.bytes, "fate": write.fate, "lane": posted.data["lane"]}
        row |= {f"{name}_ms": when_ms(history, getattr(write, name)) for name in _MOMENTS}
        rows.append(row)
    names = ["write", "request", "attempt", "page", "gen", "layer", "chunk", "bytes", "fate", "lane"]
    return _frame(rows, [*names, *(f"{name}_ms" for name in _MOMENTS)])


def _frame(rows: list[dict[str, Any]], columns: list[str]) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError as error:
        raise MissingPartError(f"pandas is not here: {error}", next="pip install 'racelab-pd[frames]'") from None
    frame = pandas.DataFrame(rows, columns=columns)
    for name in _WHOLE_NUMBERS:
        if name in frame:
            frame[name] = frame[name].astype("Int64")  # a page that an event does not have is no number
    for name in frame.columns:
        if name.endswith("ms") and name not in _COLUMNS:
            frame[name] = frame[name].astype("float64")
    return frame

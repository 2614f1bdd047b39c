"""`racelab validate`: does the specification explain what a run's processes reported?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from racelab.evidence.events import Event
from racelab.evidence.history import read
from racelab.model import boundary, tlc_replay
from racelab.model.refusal import Refused
from racelab.model.replay import Replay
from racelab.results import find_run

ENABLED_SHOWN = 12


@dataclass(frozen=True)
class ByTlc:
    """TLC's answer: the actions it was given, the first that it refuses (from 0), or None."""

    actions: int
    refused_at: int | None


@dataclass(frozen=True)
class RunResult:
    """One run: its boundary events, how many of them are explained, and the first that is not."""

    run: str
    events: int
    accepted: int
    refused: Refused | None
    actions: int
    by_tlc: ByTlc | None = None

    def to_json(self) -> dict[str, Any]:
        """An entry of `runs`."""
        found: dict[str, Any] = {
            "run": self.run,
            "events": self.events,
            "accepted": self.accepted,
            "actions": self.actions,
            "first_refused": _refused(self.refused) if self.refused else None,
        }
        if self.by_tlc is not None:
            found["tlc"] = {"actions": self.by_tlc.actions, "first_refused": self.by_tlc.refused_at}
        return found


@dataclass(frozen=True)
class Validated:
    """All runs; `seconds` is the time of the replays, without reading the files."""

    runs: tuple[RunResult, ...]
    seconds: float
    tlc_seconds: float | None = field(default=None)

    @property
    def ok(self) -> bool:
        """Whether everything is explained, by TLC too if it was asked."""
        by_tlc = [run.by_tlc.refused_at for run in self.runs if run.by_tlc is not None]
        return all(run.refused is None for run in self.runs) and all(place is None for place in by_tlc)

    def to_json(self) -> dict[str, Any]:
        """The object of `racelab validate --json`."""
        found = {
            "events": sum(run.events for run in self.runs),
            "accepted": sum(run.accepted for run in self.runs),
            "runs": [run.to_json() for run in self.runs],
            "seconds": round(self.seconds, 3),
        }
        if self.tlc_seconds is not None:
            found["tlc_seconds"] = round(self.tlc_seconds, 3)
        return found

    def in_words(self) -> str:
        """What people read."""
        lines = []
        for run in self.runs:
            lines.append(
                f"{run.run}: {run.accepted:,} of {run.events:,} boundary events explained by {run.actions:,} actions"
            )
            if run.refused is not None:
                lines += _explain(run.refused)
            if run.by_tlc is not None:
                lines.append("  TLC: " + _tlc_in_words(run.by_tlc))
        total, accepted = sum(run.events for run in self.runs), sum(run.accepted for run in self.runs)
        last = f"{accepted:,} of {total:,} events accepted in {self.seconds:.2f} s"
        if self.tlc_seconds is not None:
            last += f"; TLC took {self.tlc_seconds:.1f} s"
        return "\n".join([*lines, last])


def validate(
    runs: Sequence[Path],
    *,
    with_tlc: bool = False,
    model: Path | None = None,
    jar: Path | None = None,
    java: Path | None = None,
) -> Validated:
    """Replay each run's history through the executable specification and, `with_tlc`, through TLC.

    `model` is a TLA+ module to use in place of the shipped one; it needs the same actions.

    Raises:
        UsageError: there is no run at a path.
        HistoryError: a history is torn.
        MissingPartError: no TLC or no Java.
    """
    folders = [find_run(path) for path in runs]
    histories = [read(folder) for folder in folders]
    begin = time.monotonic()
    replays = [Replay(history) for history in histories]
    refusals = [replay.run() for replay in replays]
    seconds = time.monotonic() - begin
    answers: list[tlc_replay.Answer] | None = None
    tlc_seconds = None
    if with_tlc:
        begin = time.monotonic()
        answers = tlc_replay.replay(replays, model=model, jar=jar, java=java)
        tlc_seconds = time.monotonic() - begin
    results = [
        RunResult(
            run=str(path),
            events=sum(boundary.is_boundary(event.kind) for event in history.events),
            accepted=replay.accepted,
            refused=refused,
            actions=len(replay.taken),
            by_tlc=ByTlc(answers[place].actions, answers[place].refused_at) if answers else None,
        )
        for place, (path, history, replay, refused) in enumerate(zip(runs, histories, replays, refusals, strict=True))
    ]
    return Validated(tuple(results), seconds, tlc_seconds)


def _refused(refused: Refused) -> dict[str, Any]:
    return {
        "event": _fields(refused.event) if refused.event is not None else None,
        "class": refused.gap,
        "why": refused.why,
        "enabled": list(refused.expected),
        "difference": list(refused.difference),
    }


def _fields(event: Event) -> dict[str, Any]:
    names = ("kind", "instance", "seq", "request", "attempt", "page", "gen")
    return {name: getattr(event, name) for name in names}


def _explain(refused: Refused) -> list[str]:
    where = _told(refused.event) if refused.event is not None else "the end of the history"
    lines = [f"  refused: {where}", f"  {refused.gap}: {refused.why}"]
    lines += [f"    {line}" for line in refused.difference]
    shown, more = refused.expected[:ENABLED_SHOWN], len(refused.expected) - ENABLED_SHOWN
    if shown:
        lines.append("  possible here: " + ", ".join(shown) + (f", and {more} more" if more > 0 else ""))
    return lines


def _told(event: Event) -> str:
    subject = f" of {event.request}/{event.attempt}" if event.request else ""
    page = f" page {event.page} gen {event.gen}" if event.page is not None else ""
    return f"event {event.seq} of {event.instance}: {event.kind}{subject}{page}"


def _tlc_in_words(answer: ByTlc) -> str:
    if answer.refused_at is None:
        return f"all {answer.actions:,} actions"
    return f"refuses action {answer.refused_at + 1:,} of {answer.actions:,}"


__all__ = ["RunResult", "Validated", "validate"]

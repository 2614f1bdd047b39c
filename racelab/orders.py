"""Orders: played as often as they ask, on one lab or on several side by side; what they leave is kept and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import msgspec

from racelab import scenario
from racelab.assembly import Observe, Order, Played, Workbench
from racelab.equivalents import bears_out, speaks_against
from racelab.evidence.history import History
from racelab.instances import role_of
from racelab.report.page import write as write_report
from racelab.results import RunFolder, environment
from racelab.scenario import Lab, Scenario
from racelab.side_by_side import LabBeside, play_each
from racelab.verdict import worst


@dataclass
class Outcome:
    """All runs of an order: the JSON of DESIGN's `run`, the exit code, and where it is kept."""

    json: dict[str, Any]
    exit_code: int
    folder: RunFolder
    seconds: list[float] = field(default_factory=list)


@dataclass
class Audience:
    """Who watches a run: told when it begins, of every event, of each verdict, and of the end."""

    begin: Callable[[Scenario, str, list[str]], None] = lambda scenario, policy, guards: None
    see: Observe = lambda event: None
    counted: Callable[[str], None] = lambda verdict: None
    end: Callable[[dict[str, Any]], None] = lambda json: None


def run_order(
    bench: Workbench, order: Order, folder: RunFolder, audience: Audience, beside: Sequence[LabBeside] = ()
) -> Outcome:
    """Play an order as often as it asks, keep what it left, and say what it amounts to.

    The first run and its equivalents are played on the bench; the others there and on the labs `beside`.
    """
    folder.text("scenario.yaml", scenario.dump(order.scenario))
    guards = bench.target.guards(order.policy, order.without)
    audience.begin(order.scenario, order.policy, guards)
    first = bench.play(order, audience.see)
    folder.json("env.json", environment(bench.lab.facts if first.failure is None else {}))
    blocked = first.verdict.blocked_at if first.verdict.verdict == "prevented" else None
    equivalents = try_equivalents(bench, order, first, blocked["guard"]) if blocked else []
    played = _Tally(order, first, folder)
    audience.counted(first.verdict.verdict)
    more = 0 if played.halted else order.runs - 1
    for number, again in play_each(bench, beside, repeat(order, more)):
        played.add(number + 2, again)
        audience.counted(again.verdict.verdict)
        if played.halted:
            break
    outcome = played.outcome(equivalents)
    keep(folder, first.history, outcome.json)
    folder.link_latest()
    audience.end(outcome.json)
    return outcome


def keep(folder: RunFolder, history: History, json: dict[str, Any]) -> None:
    """Write the files of one run."""
    folder.history(history)
    folder.json("certificates.json", history.header.certificates)
    folder.json("verdict.json", json)
    write_report(folder.path)


def _roomier(lab: Lab, prevented: Played) -> Lab:
    """Twice the pages where the guard kept one; decode's if it kept none."""
    instance, seq = prevented.history.by_kind["blocked"][0].data["by"]
    refusals = (each for each in prevented.history.by_kind["refused"] if (each.instance, each.seq) == (instance, seq))
    if role_of(instance) == "prefill" and any(refusal.page is not None for refusal in refusals):
        return msgspec.structs.replace(lab, prefill_pages=2 * lab.prefill_pages)
    return msgspec.structs.replace(lab, decode_pages=2 * lab.decode_pages)


def try_equivalents(bench: Workbench, order: Order, prevented: Played, guard: str) -> list[dict[str, Any]]:
    """Under `prevented`: the same fault on another page, and let go only after the drain has run out,
    must be harmless too (with spare pages, since quarantine costs some; where the fault is a lack of pages, with
    those that there are); and without the guard that refused it the step must go through, else that guard is not
    what prevented it."""
    lab = order.scenario.lab
    roomy, pages = (lab, "with the same pages") if lab.preemption else (_roomier(lab, prevented), "with spare pages")
    elsewhere = replace(order, scenario=msgspec.structs.replace(order.scenario, lab=roomy), runs=1)
    tried = []
    for what, drain_first in ((pages, False), (f"{pages}, after the drain has run out", True)):
        tried.append({"what": what, "verdict": bench.play(elsewhere, drain_first=drain_first).verdict.verdict})
    bare = bench.play(replace(order, without=(*order.without, guard), runs=1))
    return [*tried, {"what": f"without {guard}", "verdict": bare.verdict.verdict}]


class _Tally:
    """Verdicts of many runs of one order; unexpected ones are kept in full."""

    def __init__(self, order: Order, first: Played, folder: RunFolder) -> None:
        self._order = order
        self._first = first
        self._folder = folder
        self._verdicts: Counter[str] = Counter()
        self._codes: list[int] = []
        self._seconds: list[float] = []
        self._checks: Counter[str] = Counter()
        self._worst = first
        self._note(1, first)

    @property
    def halted(self) -> bool:
        """Whether a run ended at a ledger violation, as was asked: then no further one begins."""
        return self._halted

    def add(self, number: int, played: Played) -> None:
        """Count a run; keep it in full if it is not what the first one or the scenario says."""
        self._note(number, played)
        expected = self._order.expected or self._first.verdict.verdict
        if played.verdict.verdict != expected:
            inside = self._folder.within("unexpected", str(number))
            keep(inside, played.history, played.verdict.to_json(run_dir=str(inside.path), runs=1))

    def _note(self, number: int, played: Played) -> None:
        self._halted = played.verdict.halted_at is not None
        self._verdicts[played.verdict.verdict] += 1
        self._codes.append(played.verdict.exit_code)
        self._seconds.append(played.seconds)
        for check, count in played.verdict.checks.items():
            self._checks[check] += count
        if worst([played.verdict.exit_code, self._worst.verdict.exit_code]) != self._worst.verdict.exit_code:
            self._worst = played
        line = {"run": number, "verdict": played.verdict.verdict, "ms": round(played.seconds * 1000, 3)}
        self._folder.line("runs.jsonl", line)

    def outcome(self, equivalents: list[dict[str, Any]]) -> Outcome:
        """The order's JSON: detail of the first run, the worst verdict on top, counts of all runs and the rate."""
        order = self._order
        runs = self._verdicts.total()
        json = self._first.verdict.to_json(run_dir=str(self._folder.path), runs=runs)
        code = worst(self._codes)
        json["replay"] = order.replay
        json["checks"] = dict(self._checks)
        if self._worst is not self._first:
            json["verdict"] = self._worst.verdict.verdict
            json["why"] = self._worst.verdict.why
        if equivalents:
            json["equivalents"] = equivalents
            harmful = [tried for tried in equivalents if not bears_out(tried)]
            if harmful:
                json["verdict"], code = "inconclusive", worst([code, 3])
                json["why"] = speaks_against(harmful[0])
        if order.runs > 1:
            json["verdicts"] = dict(self._verdicts)
            json["rate"] = {"reproduced": self._verdicts["reproduced"], "of": runs}
        return Outcome(json, code, self._folder, self._seconds)

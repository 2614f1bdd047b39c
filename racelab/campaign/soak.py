"""Five races of different classes, each a thousand times with no guard and a thousand times under the ledger.

    python -m racelab.campaign.soak [--runs N] [--labs N] [--kept FILE] [--json]

Each run is a line of FILE as soon as it is judged, so that a soak that was broken off goes on from there; lines of
a scenario or of a set of guards that has changed since do not count. A verdict that is not what the scenario says is
kept in full beside it. A rate of a forced schedule is a figure of the harness: it says nothing of how often a race
comes by itself.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from racelab import scenario
from racelab.assembly import Order, Workbench, open_workbench
from racelab.lab.cluster import load
from racelab.orders import keep
from racelab.results import RunFolder
from racelab.shipped import shipped
from racelab.side_by_side import LabBeside, labs_beside, play_each
from racelab.targets import target

RACES = (
    "late-write-after-timeout",
    "stale-reference-read",
    "publish-before-complete",
    "late-manifest-resurrects-room",
    "cancel-sweep-conservation",
)
"""Of the classes release-under-writer, release-under-reader, early-publish, stale-control and abort-leak; between them
all four specifications, pushes and pulls."""
POLICIES = ("eager", "ledger")
RUNS = 1000


class Line(msgspec.Struct, frozen=True):
    """One run; `of` stands for what was played: the scenario as it was, and the guards."""

    scenario: str
    policy: str
    of: str
    verdict: str
    ms: float


Progress = Callable[[Order, int], None]


def soak(
    bench: Workbench,
    orders: list[Order],
    runs: int,
    folder: RunFolder,
    name: str,
    note: Progress,
    beside: Sequence[LabBeside] = (),
) -> list[dict[str, Any]]:
    """Play each order until there are `runs` lines of it; what each amounts to."""
    rows = []
    kept = _kept(folder.path / name)
    for order in orders:
        of = _of(bench, order)
        mine = [line for line in kept if (line.scenario, line.policy, line.of) == _key(order, of)]
        for _, played in play_each(bench, beside, repeat(order, runs - len(mine))):
            number = len(mine) + 1
            line = Line(*_key(order, of), played.verdict.verdict, round(played.seconds * 1000, 3))
            if line.verdict != order.expected:
                inside = folder.within("unexpected", f"{line.scenario}-{line.policy}-{number}")
                keep(inside, played.history, played.verdict.to_json(run_dir=str(inside.path), runs=1))
            folder.line(name, line)
            mine.append(line)
            note(order, number)
        rows.append(_row(order, mine[:runs]))
    return rows


def _key(order: Order, of: str) -> tuple[str, str, str]:
    return order.scenario.scenario, order.policy, of


def _of(bench: Workbench, order: Order) -> str:
    guards = ", ".join(bench.target.guards(order.policy))
    return hashlib.sha256(f"{scenario.dump(order.scenario)}{guards}".encode()).hexdigest()[:16]


def _kept(file: Path) -> list[Line]:
    return msgspec.json.Decoder(Line).decode_lines(file.read_bytes()) if file.is_file() else []


def _row(order: Order, lines: list[Line]) -> dict[str, Any]:
    times = sorted(line.ms for line in lines)
    return {
        "scenario": order.scenario.scenario,
        "race": order.scenario.race,
        "spec": order.scenario.spec,
        "policy": order.policy,
        "expected": order.expected,
        "runs": len(lines),
        "verdicts": dict(Counter(line.verdict for line in lines)),
        "ms_p50": times[len(times) // 2],
    }


def as_expected(row: dict[str, Any]) -> bool:
    """Whether every run was what its scenario says."""
    return set(row["verdicts"]) == {row["expected"]}


def show(rows: list[dict[str, Any]]) -> None:
    """Print it for people."""
    for row in rows:
        counts = ", ".join(f"{verdict} {count}" for verdict, count in row["verdicts"].items())
        said = "" if as_expected(row) else f"   EXPECTED {row['expected']}"
        print(f"{row['scenario']:32} {row['policy']:8} {counts} of {row['runs']:,}   p50 {row['ms_p50']:.1f} ms{said}")


def main() -> None:
    """Play, print, and end with 1 if any verdict was another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of each race under each policy ({RUNS:,})")
    parser.add_argument("--labs", type=int, default=2, help="labs side by side (2)")
    parser.add_argument("--kept", type=Path, default=Path("results/runs/soak/races.jsonl"), help="where runs are kept")
    options = parser.parse_args()
    wanted = [scenario.load(shipped("scenarios", f"{name}.yaml")) for name in RACES]
    orders = [Order(each, policy) for each in wanted for policy in POLICIES]
    console = Console(stderr=True)
    where, system = load("local"), target("reference")
    with (
        tempfile.TemporaryDirectory() as logs,
        labs_beside(options.labs - 1, where, system, Path(logs)) as beside,
        open_workbench(where, system, Path(logs)) as bench,
        console.status("0", spinner="dots") as status,
    ):

        def note(order: Order, number: int) -> None:
            status.update(f"{order.scenario.scenario}  {order.policy}: {number:,} of {options.runs:,}")

        folder = RunFolder(options.kept.parent)
        rows = soak(bench, orders, options.runs, folder, options.kept.name, note, beside)
    print(json.dumps({"races": rows})) if options.json else show(rows)
    sys.exit(0 if all(map(as_expected, rows)) else 1)


if __name__ == "__main__":
    main()

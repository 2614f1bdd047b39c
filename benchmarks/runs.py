"""Warm runs a second of the late-write scenario with all evidence and checks, and a cold run's phases.

    python benchmarks/runs.py [--runs N] [--labs N] [--json]

A run is everything from the reset to the verdict: schedule, release, drain, probe, looks, counts,
certificates and four checkers. Where the time goes is read off the histories themselves, which
carry each process's monotonic clock (one host): reset and schedule, release to probe, and judging,
which is what the conductor adds after the last event. The same runs are then shared out among labs side by side.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from itertools import repeat
from pathlib import Path
from typing import Any

from racelab import scenario
from racelab.assembly import Order, Played, Workbench, open_workbench
from racelab.lab.cluster import load
from racelab.shipped import shipped
from racelab.side_by_side import labs_beside, play_each
from racelab.targets import target

LATE_WRITE = shipped("scenarios", "late-write-after-timeout.yaml")
POLICIES = ("eager", "ledger")
BARS = {"runs_per_s": (50, 100)}


def measure(runs: int, labs: int) -> dict[str, Any]:
    """Start a lab, play under both policies, and take the time apart."""
    wanted = scenario.load(LATE_WRITE)
    with tempfile.TemporaryDirectory() as logs:
        started = time.monotonic()
        with open_workbench(load("local"), target("reference"), Path(logs)) as bench:
            first = bench.play(Order(wanted, "eager"))
            cold_s = time.monotonic() - started
            phases = dict(bench.lab.phases_s)
            policies = {policy: _warm(bench, Order(wanted, policy), runs) for policy in POLICIES}
            beside = {policy: _side_by_side(bench, labs, Order(wanted, policy), runs) for policy in POLICIES}
            ending = time.monotonic()
        end_s = time.monotonic() - ending
    rest = cold_s - sum(phases.values())
    cold = phases | {"solo answers and first run": rest, "first verdict": cold_s, "end": end_s}
    return {
        "cores": os.cpu_count(),
        "verdict": first.verdict.verdict,
        "cold_s": cold,
        "warm": policies,
        "labs": labs,
        "side_by_side": beside,
    }


def _warm(bench: Workbench, order: Order, runs: int) -> dict[str, Any]:
    bench.play(order)
    started = time.monotonic()
    played = [bench.play(order) for _ in range(runs)]
    elapsed = time.monotonic() - started
    parts = [_parts(each) for each in played]
    return {
        "runs_per_s": runs / elapsed,
        "ms_p50": statistics.median(each.seconds for each in played) * 1000,
        "verdicts": sorted({each.verdict.verdict for each in played}),
        "events": len(played[-1].history.events),
        "ms_p50_of": {name: statistics.median(part[name] for part in parts) for name in parts[0]},
    }


def _side_by_side(bench: Workbench, labs: int, order: Order, runs: int) -> dict[str, Any]:
    """The same on several labs, from when all of them are warm."""
    with (
        tempfile.TemporaryDirectory() as logs,
        labs_beside(labs - 1, bench.cluster, bench.target, Path(logs)) as beside,
    ):
        for lab in beside:
            lab.give(0, order)
        for lab in beside:
            lab.take()
        bench.play(order)
        started = time.monotonic()
        played = [each for _, each in play_each(bench, beside, repeat(order, runs))]
        elapsed = time.monotonic() - started
    return {"runs_per_s": runs / elapsed, "verdicts": sorted({each.verdict.verdict for each in played})}


def _parts(played: Played) -> dict[str, float]:
    """Milliseconds of each part of one run."""
    events = played.history.events
    phases = {event.data["phase"]: event.mono_ns for event in played.history.by_kind["phase"]}
    first, last = min(event.mono_ns for event in events), max(event.mono_ns for event in events)
    run_ms = (last - first) / 1e6
    return {
        "reset": (phases["schedule"] - first) / 1e6,
        "schedule": (phases["release"] - phases["schedule"]) / 1e6,
        "release, drain, probe": (phases["judge"] - phases["release"]) / 1e6,
        "books at rest": (last - phases["judge"]) / 1e6,
        "judging, and before the first event": played.seconds * 1000 - run_ms,
    }


def show(measured: dict[str, Any]) -> None:
    """Print it for people."""
    least, aim = BARS["runs_per_s"]
    for policy, warm in measured["warm"].items():
        met = "met" if warm["runs_per_s"] >= least else "MISSED"
        print(
            f"{policy:8}{warm['runs_per_s']:8.1f} warm runs/s  (bar {least}, aim {aim}: {met})  "
            f"p50 {warm['ms_p50']:.1f} ms, {warm['events']} events, {', '.join(warm['verdicts'])}"
        )
        for name, ms in warm["ms_p50_of"].items():
            print(f"            {ms:7.2f} ms  {name}")
    for policy, warm in measured["side_by_side"].items():
        met = "met" if warm["runs_per_s"] >= least else "MISSED"
        print(
            f"{policy:8}{warm['runs_per_s']:8.1f} warm runs/s on {measured['labs']} labs side by side  "
            f"(bar {least}, aim {aim}: {met})  {', '.join(warm['verdicts'])}"
        )
    print("cold run")
    for name, seconds in measured["cold_s"].items():
        print(f"            {seconds:7.2f} s   {name}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--runs", type=int, default=200, help="warm runs of each policy")
    parser.add_argument("--labs", type=int, default=2, help="labs side by side")
    options = parser.parse_args()
    measured = measure(options.runs, options.labs)
    if options.json:
        print(json.dumps(measured))
    else:
        show(measured)
    sys.stdout.flush()


if __name__ == "__main__":
    main()

"""`racelab ladder`: one scenario on every rung of the transport ladder that this machine has, side by side.

A rung is a cluster that ships. One that the machine lacks a part for, or whose gate cannot do what the
scenario asks for, is shown with the reason: which violations survive on it is then unknown, not "none".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table

from racelab.abilities import check_mechanisms, gates_of
from racelab.assembly import Order, open_workbench
from racelab.doctor import diagnose
from racelab.errors import UsageError
from racelab.lab.cluster import Cluster, load
from racelab.orders import Audience, run_order
from racelab.results import new_folder
from racelab.scenario import Scenario
from racelab.targets import target
from racelab.verdict import worst

RUNGS = ("local", "softhca", "softroce")
"""Clusters from the easiest to have to the hardest."""


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """What a scenario came to on one cluster under one policy; `missing` says why it was not run."""

    cluster: str
    transport: str
    simulated: bool
    machine: str | None = None
    policy: str
    verdict: str | None = None
    expected: str | None = None
    specs: dict[str, str] = {}
    label: str | None = None
    run_dir: str | None = None
    missing: str | None = None


def climb(
    wanted: Scenario,
    policies: list[str],
    *,
    seed: int,
    results: Path,
    given: str,
    rungs: tuple[str, ...] = RUNGS,
) -> tuple[list[Rung], int]:
    """Run the scenario in file `given` on each rung; the rows, and the worst exit code of those that ran."""
    rows: list[Rung] = []
    codes: list[int] = []
    for name in rungs:
        cluster = load(name)
        lacking = _lacking(wanted, cluster)
        if lacking is not None:
            found = [(_row(cluster, policy, missing=lacking), 0) for policy in policies]
        else:
            found = _run(wanted, given, policies, cluster, seed, results)
        for row, code in found:
            rows.append(row)
            codes.append(code)
    return rows, worst(codes)


def _lacking(wanted: Scenario, cluster: Cluster) -> str | None:
    for finding in diagnose(cluster).findings:
        if finding.needed and not finding.here:
            return f"{finding.part}: {finding.detail}"
    try:
        check_mechanisms(wanted, gates_of(target("reference"), cluster))
    except UsageError as error:
        return error.what
    return None


def _run(
    wanted: Scenario, given: str, policies: list[str], cluster: Cluster, seed: int, results: Path
) -> list[tuple[Rung, int]]:
    folders = [new_folder(results, wanted.scenario) for _ in policies]
    found = []
    with open_workbench(cluster, target("reference"), folders[0].logs) as bench:
        for policy, folder in zip(policies, folders, strict=True):
            replay = f"racelab run {given} --policy {policy} --seed {seed} --cluster {cluster.cluster}"
            outcome = run_order(bench, Order(wanted, policy, seed=seed, replay=replay), folder, Audience())
            kept = ("verdict", "expected", "specs", "label", "run_dir")
            row = _row(cluster, policy, **{key: outcome.json[key] for key in kept})
            found.append((row, outcome.exit_code))
    return found


def _row(cluster: Cluster, policy: str, **found: Any) -> Rung:
    return Rung(
        cluster=cluster.cluster,
        transport=cluster.transport,
        simulated=bool(cluster.simulated),
        machine=cluster.machine_in_words,
        policy=policy,
        **found,
    )


def table(rungs: list[Rung]) -> Table:
    """The rows for people."""
    drawn = Table(box=None, pad_edge=False)
    for heading in ("cluster", "transport", "policy", "verdict", "violated", "label"):
        drawn.add_column(heading)
    for rung in rungs:
        transport = f"{rung.transport}, simulated" if rung.simulated else rung.transport
        transport = f"{transport}, rxe in a VM" if rung.machine else transport
        if rung.missing is not None:
            drawn.add_row(rung.cluster, transport, rung.policy, "not run", "unknown", rung.missing)
            continue
        verdict = rung.verdict if rung.verdict == rung.expected else f"{rung.verdict} (expected {rung.expected})"
        violated = [spec for spec, outcome in rung.specs.items() if outcome == "violated"]
        drawn.add_row(rung.cluster, transport, rung.policy, verdict, ", ".join(violated) or "-", rung.label)
    return drawn

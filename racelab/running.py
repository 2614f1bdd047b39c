"""`racelab run` and `racelab check`, between the command line and the assembly."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from racelab import documents, registry, scenario
from racelab.abilities import check_mechanisms, gates_of
from racelab.assembly import Order, Workbench, open_workbench
from racelab.errors import UsageError
from racelab.evidence import history
from racelab.importing import import_counterexample
from racelab.lab import cluster
from racelab.orders import Audience, Outcome, run_order
from racelab.report import findings
from racelab.report.closing import show
from racelab.report.story import Story, progress
from racelab.results import RunFolder, find_run, new_folder
from racelab.scenario import Scenario
from racelab.side_by_side import LabBeside, labs_beside
from racelab.surroundings import Here
from racelab.targets import target
from racelab.targets.own_policies import with_own
from racelab.verdict import judge, worst


@dataclass(frozen=True)
class Asked:
    """What `racelab run` was asked for; `given` is the file as the user wrote it."""

    wanted: Scenario
    given: str
    policies: list[str]
    without: tuple[str, ...]
    target: str
    cluster: str
    runs: int
    seed: int
    results: Path
    glue_fault: str | None = None
    stop_on_violation: bool = False
    labs: int = 1
    control: str | None = None
    """the control of the file's scenario that is wanted, if it is one"""


def resolve(path: Path, binding: Path | None, source: Path | None, here: Here | None = None) -> Scenario:
    """The scenario in a file: read and held against what is `here`, or imported from a counterexample.

    Raises:
        DocumentError, TraceError, BindingError: it is neither.
    """
    if path.suffix in (".yaml", ".yml"):
        return scenario.build(documents.read(path), here)
    return import_counterexample(path, binding, source).scenario


def surroundings(system: str, policies: list[str], where: str | None) -> Here:
    """What a scenario is held against while it is read: a target, policies by name or file, and a cluster."""
    return Here(with_own(target(system), policies)[0], cluster.load(where) if where is not None else None)


def run(asked: Asked, *, quiet: bool) -> tuple[dict[str, Any], int]:
    """Run under each policy on one warm lab; the JSON object to print, and the exit code.

    With one policy the object is that of DESIGN's `run`; with several it is
    {"scenario", "policies": [one such object a policy]}.
    """
    system, policies = with_own(target(asked.target), asked.policies)
    where = cluster.load(asked.cluster)
    for policy in policies:
        system.guards(policy, asked.without)
    system.check_glue_fault(asked.glue_fault, prefix_cache=asked.wanted.lab.prefix_cache)
    check_mechanisms(asked.wanted, gates_of(system, where))
    first = new_folder(asked.results, asked.wanted.scenario)
    with (
        labs_beside(min(asked.labs, asked.runs) - 1, where, system, first.logs) as beside,
        open_workbench(where, system, first.logs) as bench,
    ):
        outcomes = [
            _run_policy(bench, beside, asked, policy, given, first if number == 0 else None, quiet)
            for number, (policy, given) in enumerate(policies.items())
        ]
    code = worst([outcome.exit_code for outcome in outcomes])
    if len(outcomes) == 1:
        return outcomes[0].json, code
    return {"scenario": asked.wanted.scenario, "policies": [outcome.json for outcome in outcomes]}, code


def _run_policy(
    bench: Workbench,
    beside: list[LabBeside],
    asked: Asked,
    policy: str,
    given: str,
    folder: RunFolder | None,
    quiet: bool,
) -> Outcome:
    replay = replay_command(asked, given)
    order = Order(
        asked.wanted,
        policy,
        asked.without,
        asked.runs,
        asked.seed,
        asked.glue_fault,
        stop_on_violation=asked.stop_on_violation,
        replay=replay,
    )
    if folder is None:
        folder = new_folder(asked.results, asked.wanted.scenario)
    with ExitStack() as stack:
        audience = Audience() if quiet else _audience(order, stack)
        return run_order(bench, order, folder, audience, beside)


def _audience(order: Order, stack: ExitStack) -> Audience:
    story = Story(Console())
    audience = Audience(begin=story.begin, see=story.see, end=story.end)
    if order.runs > 1:
        audience.counted = stack.enter_context(progress(order.runs, Console(stderr=True)))
    return audience


def replay_command(asked: Asked, policy: str) -> str:
    """One command that plays the same again."""
    parts = ["racelab run", asked.given, f"--policy {policy}"]
    parts += [f"--without {guard}" for guard in asked.without]
    parts += [f"--control {asked.control}"] if asked.control else []
    parts += [f"--glue-fault {asked.glue_fault}"] if asked.glue_fault else []
    parts += ["--stop-on-violation"] if asked.stop_on_violation else []
    parts += [f"--seed {asked.seed}"]
    if asked.cluster != "local":
        parts.append(f"--cluster {asked.cluster}")
    return " ".join(parts)


def check(path: Path) -> tuple[dict[str, Any], int]:
    """The verdict of a recorded run, derived anew from its history.

    Raises:
        UsageError: there is no run there.
        HistoryError: its history is torn or of another version.
    """
    folder = path if path.is_file() else find_run(path)
    if not os.access(folder, os.R_OK):
        raise UsageError(f"{folder} cannot be read", next="check its permissions")
    verdict = judge(history.read(folder), registry.checkers())
    return verdict.to_json(run_dir=str(folder), runs=1), verdict.exit_code


def show_check(path: Path, verdict: dict[str, Any]) -> None:
    """Print a verdict for people: each finding with its events, and what evidence is missing."""
    console = Console()
    findings.show(console, history.read(path if path.is_file() else find_run(path)), verdict)
    console.print()
    show(console, verdict, console.width)

"""`racelab matrix`, between the command line and the matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from racelab import documents, scenario
from racelab.assembly import Workbench, open_workbench
from racelab.campaign import dilemma
from racelab.campaign.budget import budget
from racelab.campaign.controls import CONTROLS
from racelab.campaign.matrix import GUARDED, Cell, Matrix, controls, fill, orders
from racelab.errors import UsageError
from racelab.lab import cluster
from racelab.report.dilemma import figure
from racelab.report.grid import page, spoilt_controls, table, unexpected
from racelab.results import RunFolder, new_folder
from racelab.scenario import Scenario
from racelab.shipped import shipped
from racelab.surroundings import Here
from racelab.targets import target
from racelab.targets.own_policies import with_own
from racelab.targets.target import Target


@dataclass(frozen=True)
class Asked:
    """What `racelab matrix` was asked for; no scenario means all that ship and name a guard."""

    scenarios: list[Path]
    policies: list[str]
    target: str
    cluster: str
    runs: int
    seed: int
    results: Path

    def system(self) -> tuple[Target, list[str]]:
        """The target, with policies of the user's own, and the policies to play, each of which it has."""
        system, names = with_own(target(self.target), self.policies)
        policies = list(names) or list(system.policies)
        for policy in policies:
            system.guards(policy)
        return system, policies


def run_matrix(asked: Asked, *, quiet: bool) -> tuple[dict[str, Any], int]:
    """Fill a matrix on one warm lab, keep it as JSON and as a page; the JSON object and the exit code."""
    system, policies = asked.system()
    here = Here(system, cluster.load(asked.cluster))
    scenarios = _loaded(asked.scenarios, here) or [each for each in _loaded(_ships()) if each.guard is not None]
    wanted = list(orders(scenarios, policies, system.policies[GUARDED], asked.seed))
    beside = list(controls(scenarios, policies, asked.seed))
    folder = new_folder(asked.results, "matrix")
    with _progress(asked, folder, len(wanted) + len(beside)) as (bench, note):
        matrix = fill(bench, wanted, asked.runs, note, beside)
    folder.text("matrix.html", page(matrix, "Scenarios against policies"))
    answer = _kept(folder, to_json(matrix))
    if not quiet:
        show(matrix, str(folder.path / "matrix.html"))
    return answer, matrix.exit_code


def run_dilemma(asked: Asked, *, quiet: bool) -> tuple[dict[str, Any], int]:
    """Play one scenario under every policy, keep the table and its picture; the JSON object and the exit code.

    Raises:
        UsageError: more than one scenario.
    """
    if len(asked.scenarios) > 1:
        raise UsageError("a dilemma is of one counterexample", next="name one scenario, or none for the one that ships")
    system, policies = asked.system()
    here = Here(system, cluster.load(asked.cluster))
    (played,) = _loaded(asked.scenarios or [shipped("scenarios", dilemma.SCENARIO)], here)
    folder = new_folder(asked.results, "dilemma")
    with _progress(asked, folder, len(policies)) as (bench, note):
        matrix, rows = dilemma.compare(bench, played, policies, asked.seed, note)
        found = [budget(bench, played, row.policy, row.history, asked.seed) for row in rows]
    budgets = [each for each in found if each is not None]
    picture = figure(rows)
    folder.text("dilemma.svg", picture)
    folder.text("matrix.html", page(matrix, "No policy without evidence keeps everything", specs=True, picture=picture))
    costs = {row.policy: row.cost for row in rows}
    answer = _kept(folder, to_json(matrix) | {"costs": costs, "budgets": msgspec.to_builtins(budgets)})
    if not quiet:
        console = Console()
        console.print(table(matrix, console.width, specs=True))
        for row in rows:
            console.print(f"{row.policy} keeps back at rest: {row.cost}")
        for each in budgets:
            console.print(f"fault budget of {each.in_words}", soft_wrap=True)
        console.print(f"picture  {folder.path / 'dilemma.svg'}", soft_wrap=True)
    return answer, matrix.exit_code


@contextmanager
def _progress(asked: Asked, folder: RunFolder, total: int) -> Iterator[tuple[Workbench, Callable[[Cell], None]]]:
    """A workbench, and a line on the terminal that says which cell was filled last."""
    done = 0
    console = Console(stderr=True)
    with (
        open_workbench(cluster.load(asked.cluster), asked.system()[0], folder.logs) as bench,
        console.status(f"0/{total}", spinner="dots") as status,
    ):

        def note(cell: Cell) -> None:
            nonlocal done
            done += 1
            folder.line("cells.jsonl", msgspec.to_builtins(cell))  # what was played is kept, whatever comes after
            status.update(f"{done}/{total}  {cell.scenario}  {cell.column}: {cell.verdict}")

        yield bench, note


def _kept(folder: RunFolder, answer: dict[str, Any]) -> dict[str, Any]:
    answer |= {"run_dir": str(folder.path)}
    folder.json("matrix.json", answer)
    folder.link_latest()
    return answer


def _ships() -> list[Path]:
    return sorted(shipped("scenarios").glob("*.yaml"))


def _loaded(paths: list[Path], here: Here | None = None) -> list[Scenario]:
    return [scenario.build(documents.read(path), here) for path in paths]


def to_json(matrix: Matrix) -> dict[str, Any]:
    """The contract of `matrix --json`."""
    return {
        "cells": msgspec.to_builtins(matrix.cells),
        "controls": msgspec.to_builtins(matrix.controls),
        "untested": matrix.untested,
        "redundant": matrix.redundant,
    }


def show(matrix: Matrix, file: str) -> None:
    """Print the table and what follows from it."""
    console = Console()
    console.print(table(matrix, console.width))
    odd = unexpected(matrix)
    console.print(f"cells that are not as expected: {len(odd) or 'none'}")
    for line in odd:
        console.print(f"  {line}", soft_wrap=True)
    spoilt = spoilt_controls(matrix)
    console.print(f"controls ({'; '.join(CONTROLS)}): {len(matrix.controls)}, not clean: {len(spoilt)}")
    for line in spoilt:
        console.print(f"  {line}")
    console.print(f"guards whose removal no scenario notices: {', '.join(matrix.untested) or 'none'}")
    console.print(f"scenarios that no single removal reproduces: {', '.join(matrix.redundant) or 'none'}")
    console.print(f"page  {file}", soft_wrap=True)

"""`racelab matrix`, between the command line and the matrix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from racelab import documents, scenario
from racelab.assembly import open_workbench
from racelab.campaign.matrix import GUARDED, Cell, Matrix, controls, fill, orders
from racelab.lab import cluster
from racelab.report.grid import page, spoilt_controls, table
from racelab.results import new_folder
from racelab.scenario import Scenario
from racelab.shipped import shipped
from racelab.targets import target


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
    dilemma: bool


def run_matrix(asked: Asked, *, quiet: bool) -> tuple[dict[str, Any], int]:
    """Fill a matrix on one warm lab, keep it as JSON and as a page; the JSON object and the exit code."""
    system = target(asked.target)
    policies = asked.policies or list(system.policies)
    for policy in policies:
        system.guards(policy)
    scenarios = _scenarios(asked)
    guards = system.policies[GUARDED] if not asked.dilemma else ()
    where = cluster.load(asked.cluster)
    folder = new_folder(asked.results, "matrix")
    wanted = list(orders(scenarios, policies, guards, asked.seed))
    beside = [] if asked.dilemma else list(controls(scenarios, policies, asked.seed))
    total = len(wanted) + len(beside)
    console = Console(stderr=True)
    with (
        open_workbench(where, system, folder.logs) as bench,
        console.status("", spinner="dots") as status,
    ):
        done: list[Cell] = []

        def note(cell: Cell) -> None:
            done.append(cell)
            status.update(f"{len(done)}/{total}  {cell.scenario}  {cell.column}: {cell.verdict}")

        status.update(f"0/{total}")
        matrix = fill(bench, wanted, asked.runs, note, beside)
    title = "Every local-only policy breaks something" if asked.dilemma else "Scenarios against policies"
    folder.text("matrix.html", page(matrix, title, specs=asked.dilemma))
    answer = to_json(matrix) | {"run_dir": str(folder.path)}
    folder.json("matrix.json", answer)
    folder.link_latest()
    if not quiet:
        show(matrix, asked.dilemma, str(folder.path / "matrix.html"))
    return answer, matrix.exit_code


def _scenarios(asked: Asked) -> list[Scenario]:
    paths = asked.scenarios or sorted(shipped("scenarios").glob("*.yaml"))
    loaded = [scenario.build(documents.read(path)) for path in paths]
    return loaded if asked.scenarios else [each for each in loaded if each.guard is not None]


def to_json(matrix: Matrix) -> dict[str, Any]:
    """The contract of `matrix --json`."""
    return {
        "cells": msgspec.to_builtins(matrix.cells),
        "controls": msgspec.to_builtins(matrix.controls),
        "untested": matrix.untested,
        "redundant": matrix.redundant,
    }


def show(matrix: Matrix, specs: bool, file: str) -> None:
    """Print the table and what follows from it."""
    console = Console()
    console.print(table(matrix, console.width, specs=specs))
    if not specs:
        spoilt = spoilt_controls(matrix)
        console.print(f"controls (no fault; held without reuse): {len(matrix.controls)}, not clean: {len(spoilt)}")
        for line in spoilt:
            console.print(f"  {line}")
        console.print(f"guards whose removal no scenario notices: {', '.join(matrix.untested) or 'none'}")
        console.print(f"scenarios that no single removal reproduces: {', '.join(matrix.redundant) or 'none'}")
    console.print(f"page  {file}", soft_wrap=True)

"""`racelab matrix`, between the command line and the matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from racelab import documents, running, scenario
from racelab.assembly import Order, Workbench, open_workbench
from racelab.campaign import dilemma
from racelab.campaign.budget import budget
from racelab.campaign.controls import CONTROLS
from racelab.campaign.kept import going_on, resting_on
from racelab.campaign.matrix import GUARDED, Cell, Matrix, controls, fill, orders, playing
from racelab.errors import UsageError
from racelab.lab import cluster
from racelab.report.dilemma import figure
from racelab.report.grid import page, spoilt_controls, table, unexpected
from racelab.results import RunFolder, new_folder
from racelab.scenario import Scenario
from racelab.shipped import shipped
from racelab.side_by_side import labs_beside
from racelab.surroundings import Here
from racelab.targets import target
from racelab.targets.own_policies import with_own
from racelab.targets.target import Target

AGAIN = 60
"""How often a cell that is off is to be played to see how far: luck of one in forty shows in as many."""


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
    labs: int = 1

    def system(self) -> tuple[Target, dict[str, str]]:
        """The target, with policies of the user's own, and the policies to play, each of which it has: by name, as it
        was asked for."""
        system, names = with_own(target(self.target), self.policies)
        policies = names or {name: name for name in system.policies}
        for policy in policies:
            system.guards(policy)
        return system, policies

    def read(self, here: Here) -> list[tuple[Path, Scenario]]:
        """The scenarios with their files: those named, held against what is `here`, or all that ship and name a
        guard (those that do not may need another cluster)."""
        return list(_read(self.scenarios, here)) or [(path, each) for path, each in _read(_ships()) if each.guard]

    def again(self, order: Order, path: Path, given: str, control: str | None = None) -> Order:
        """The order, with the command that plays it again, and often; `given` is its policy as it was asked for."""
        about = running.Asked(
            wanted=order.scenario,
            given=str(path),
            policies=[given],
            without=order.without,
            target=self.target,
            cluster=self.cluster,
            runs=self.runs,
            seed=self.seed,
            results=self.results,
            control=control,
        )
        return replace(order, replay=f"{running.replay_command(about, given)} --runs {AGAIN}")


def run_matrix(asked: Asked, *, quiet: bool) -> tuple[dict[str, Any], int]:
    """Fill a matrix on one warm lab, keep it as JSON and as a page; the JSON object and the exit code."""
    system, policies = asked.system()
    here = Here(system, cluster.load(asked.cluster))
    files = asked.read(here)
    wanted: list[Order] = []
    beside: list[tuple[str, Order]] = []
    for path, each in files:
        for order in orders([each], policies, system.policies[GUARDED], asked.seed):
            wanted.append(asked.again(order, path, policies[order.policy]))
        for kind, order in controls([each], policies, asked.seed):
            beside.append((kind, asked.again(order, path, policies[order.policy], kind)))
    of = resting_on(lambda order: system.guards(order.policy, order.without), system.name, asked.cluster, asked.runs)
    with going_on(asked.results, [*wanted, *(order for _, order in beside)], of) as kept:
        if kept and not quiet:
            Console(stderr=True).print(f"goes on with {len(kept)} cells of {kept.folder.path}", soft_wrap=True)
        with (
            labs_beside(asked.labs - 1, cluster.load(asked.cluster), system, kept.folder.logs) as labs,
            _progress(asked, kept.folder, len(wanted) + len(beside)) as (bench, note),
        ):
            matrix = fill(kept.playing(playing(bench, labs, asked.runs)), wanted, note, beside)
        kept.folder.text("matrix.html", page(matrix, "Scenarios against policies"))
        answer = _kept(kept.folder, to_json(matrix))
    if not quiet:
        show(matrix, str(kept.folder.path / "matrix.html"))
    return answer, matrix.exit_code


def run_dilemma(asked: Asked, *, quiet: bool) -> tuple[dict[str, Any], int]:
    """Play one scenario under every policy, keep the table and its picture; the JSON object and the exit code.

    Raises:
        UsageError: more than one scenario, or lab.
    """
    if asked.labs > 1:
        raise UsageError("a dilemma is played on one lab", next="leave --labs out")
    if len(asked.scenarios) > 1:
        raise UsageError("a dilemma is of one counterexample", next="name one scenario, or none for the one that ships")
    system, policies = asked.system()
    here = Here(system, cluster.load(asked.cluster))
    ((_, played),) = _read(asked.scenarios or [shipped("scenarios", dilemma.SCENARIO)], here)
    folder = new_folder(asked.results, "dilemma")
    with _progress(asked, folder, len(policies)) as (bench, note):
        matrix, rows = dilemma.compare(bench, played, list(policies), asked.seed, note)
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
            status.update(f"{done}/{total}  {cell.scenario}  {cell.column}: {cell.verdict}")

        yield bench, note


def _kept(folder: RunFolder, answer: dict[str, Any]) -> dict[str, Any]:
    answer |= {"run_dir": str(folder.path)}
    folder.json("matrix.json", answer)
    folder.link_latest()
    return answer


def _ships() -> list[Path]:
    return sorted(shipped("scenarios").glob("*.yaml"))


def _read(paths: list[Path], here: Here | None = None) -> Iterator[tuple[Path, Scenario]]:
    for path in paths:
        yield path, scenario.build(documents.read(path), here)


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

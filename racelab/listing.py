"""What `racelab list` shows: one row a thing, its name first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from racelab import fences, registry, scenario
from racelab.engine.guards import ALL_GUARDS, POLICIES
from racelab.errors import UsageError
from racelab.lab.cluster import load
from racelab.results import run_folders
from racelab.shipped import shipped
from racelab.targets import TARGETS

Rows = list[dict[str, Any]]


def rows(what: str, results: Path) -> Rows:
    """The rows of one kind of thing.

    Raises:
        UsageError: there is no such kind.
    """
    if what not in LISTS:
        raise UsageError(f"cannot list {what!r}", next=f"one of: {', '.join(LISTS)}")
    return LISTS[what](results)


def _scenarios(results: Path) -> Rows:
    folders = (shipped("scenarios"), shipped("scenarios", "catalog"))
    found = [scenario.load(file) for folder in folders for file in sorted(folder.glob("*.yaml"))]
    return [
        {
            "name": each.scenario,
            "spec": each.spec,
            "guard": each.guard,
            "race": each.race,
            "about": " ".join(each.about.split()),
        }
        for each in found
    ]


def _policies(results: Path) -> Rows:
    return [{"name": name, "guards": list(guards)} for name, guards in POLICIES.items()]


def _guards(results: Path) -> Rows:
    return [
        {
            "name": guard.name,
            "protects": guard.protects,
            "race_classes": list(guard.race_classes),
            "about": " ".join((guard.__doc__ or "").split()),
            "stands_for": guard.stands_for,
        }
        for guard in ALL_GUARDS.values()
    ]


def _injectors(results: Path) -> Rows:
    return [
        {
            "name": each.name,
            "holds": "processes" if each.subject == "process" else f"{each.subject}s",
            "stage": each.stage,
            "payload": each.payload,
            "mechanisms": list(each.mechanisms),
            "about": each.means,
        }
        for each in [*registry.injectors(), *(each.stream for each in TARGETS.values() if each.stream)]
    ]


def _checkers(results: Path) -> Rows:
    found = registry.checkers()
    return [{"name": name, "about": (checker.__doc__ or "").split("\n")[0]} for name, checker in found.items()]


def _clusters(results: Path) -> Rows:
    found = [load(str(file)) for file in sorted(shipped("clusters").glob("*.yaml"))]
    return [{"name": each.cluster, "transport": each.transport, "about": each.about} for each in found]


def _runs(results: Path) -> Rows:
    found = []
    for folder in run_folders(results):
        try:
            verdict = msgspec.json.decode((folder / "verdict.json").read_bytes())
        except (OSError, msgspec.DecodeError):
            verdict = {}
        row = {"name": str(folder)} | {key: verdict.get(key) for key in ("scenario", "policy", "verdict", "runs")}
        found.append(row)
    return found


def _targets(results: Path) -> Rows:
    return [
        {"name": each.name, "policies": list(each.policies), "guards": list(each.guards_known), "about": each.means}
        for each in TARGETS.values()
    ]


LISTS: dict[str, Callable[[Path], Rows]] = {
    "scenarios": _scenarios,
    "policies": _policies,
    "guards": _guards,
    "targets": _targets,
    "injectors": _injectors,
    "checkers": _checkers,
    "clusters": _clusters,
    "fences": lambda results: fences.rows(),
    "runs": _runs,
}

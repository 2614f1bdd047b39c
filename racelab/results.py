"""Run folders: `results/runs/<scenario>/<time>/`, with `latest` beside them.

    scenario.yaml  env.json  history.jsonl  certificates.json  verdict.json  report.html  logs/

With many runs one folder holds the first in full, every unexpected one under `unexpected/<n>/`,
and a line for each in `runs.jsonl`.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from racelab.errors import LabError, UsageError
from racelab.evidence.history import HISTORY_FILE, History

RUNS = "runs"
VERSIONS_KEPT = (
    "racelab-pd",
    "ray",
    "torch",
    "numpy",
    "aiomqtt",
    "amqtt",
    "xxhash",
    "mooncake-transfer-engine-non-cuda",
    "mooncake-transfer-engine",
    "mooncake-transfer-engine-cuda13",
)


class RunFolder:
    """One folder, made when it is first needed; a full disk is one clear error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with _writing(path):
            self.path.mkdir(parents=True, exist_ok=True)

    @property
    def logs(self) -> Path:
        """Where the lab's processes log."""
        logs = self.path / "logs"
        with _writing(logs):
            logs.mkdir(exist_ok=True)
        return logs

    def within(self, *parts: str) -> RunFolder:
        """A folder inside this one."""
        return RunFolder(self.path.joinpath(*parts))

    def text(self, name: str, content: str) -> Path:
        """Write a text file."""
        file = self.path / name
        with _writing(file):
            file.write_text(content, encoding="utf-8")
        return file

    def json(self, name: str, data: Any) -> Path:
        """Write a JSON file that people can read."""
        return self.text(name, msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n")

    def line(self, name: str, data: Any) -> None:
        """Append one JSON line; earlier lines stay whatever happens."""
        file = self.path / name
        with _writing(file), file.open("ab") as lines:
            lines.write(msgspec.json.encode(data) + b"\n")

    def history(self, history: History) -> Path:
        """Write the history."""
        file = self.path / HISTORY_FILE
        with _writing(file):
            history.write(file)
        return file

    def link_latest(self) -> None:
        """Let `latest` beside this folder point to it."""
        link = self.path.parent / "latest"
        fresh = self.path.parent / f".latest-{os.getpid()}"
        with _writing(link):
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(self.path.name)
            fresh.replace(link)


def new_folder(results: Path, scenario: str) -> RunFolder:
    """A fresh folder for a run of a scenario, named by the time to the second."""
    parent = results / RUNS / re.sub(r"[^\w.-]+", "-", scenario)
    name = datetime.now().strftime("%Y-%m-%dT%H-%M-%S")
    path, count = parent / name, 1
    while path.exists():
        count += 1
        path = parent / f"{name}-{count}"
    return RunFolder(path)


def environment(facts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What a run ran on: machine, versions, and what each process said of itself."""
    versions = {}
    for name in VERSIONS_KEPT:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "versions": versions,
        "processes": facts,
        "command": sys.argv,
    }


def run_folders(results: Path) -> list[Path]:
    """Every run folder under a results folder, oldest first."""
    return sorted(file.parent for file in (results / RUNS).glob(f"*/*/{HISTORY_FILE}") if file.parent.name != "latest")


def find_run(path: Path) -> Path:
    """The run folder that `path` means.

    Raises:
        UsageError: there is no run there.
    """
    for candidate in (path, path / "latest"):
        if (candidate / HISTORY_FILE).is_file():
            return candidate.resolve()
    raise UsageError(f"no run at {path}", next="`racelab list runs` shows those that are there")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "free some space" if error.errno == errno.ENOSPC else "check the folder, or give another one"
        raise LabError(f"cannot write: {error.strerror}", file=path, next=hint) from None

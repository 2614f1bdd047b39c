"""A warm workbench for the tests that play scenarios; they share it, as runs of a campaign would."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from racelab.assembly import Workbench, open_workbench
from racelab.lab.cluster import load
from racelab.targets import target


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    """A workbench on the local cluster."""
    with open_workbench(load("local"), target("reference"), tmp_path_factory.mktemp("logs")) as opened:
        yield opened


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return Path(__file__).resolve().parents[2]

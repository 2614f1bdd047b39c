"""Each row of tests/data/what-each-fault-does.yaml, played and compared with what it says."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import faults_of_memory
import faults_of_notifications
import faults_of_peers
import faults_of_writes
import pytest
import yaml

TABLE = yaml.safe_load((Path(__file__).parents[1] / "data" / "what-each-fault-does.yaml").read_text(encoding="utf-8"))
LATER = "0.3.14"
CASES = (faults_of_writes, faults_of_memory, faults_of_notifications, faults_of_peers)
"""Where the rows are played: each by the function of its name."""


@pytest.mark.parametrize("wanted", TABLE["rows"], ids=lambda wanted: wanted["id"])
def test_the_outcome_is_what_the_table_says(wanted: dict[str, Any]) -> None:
    if "needs" in wanted and not _has_tickets():
        pytest.skip(
            f"it needs Mooncake {wanted['needs']}, whose builds need libcuda.so.1; here is {_mooncake()}. "
            "python tests/without_cuda.py FOLDER plays it with a stub of that"
        )
    later = f"outcome-of-{LATER}"
    key = later if later in wanted and _has_tickets() else "outcome"
    name = wanted["id"].replace("-", "_")
    (play,) = (getattr(module, name) for module in CASES if hasattr(module, name))
    assert play() == wanted[key]


def _has_tickets() -> bool:
    """Whether the Mooncake that a process here would load follows a scattered write by a ticket."""
    code = "import mooncake.engine as engine; engine.ScatterTransferTicket"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False).returncode == 0


def _mooncake() -> str:
    for name in ("mooncake-transfer-engine-non-cuda", "mooncake-transfer-engine", "mooncake-transfer-engine-cuda13"):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return "none"

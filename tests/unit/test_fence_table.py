"""The fence table: its rows name tests that exist, and stop evidence counts only where it is a fence."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import histories
import pytest
import yaml

from checkers import conservation
from racelab import fences
from racelab.evidence.history import History

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("row", fences.table(), ids=lambda row: f"{row.rung}-{row.event}")
def test_an_answer_has_a_test(row: fences.Fence) -> None:
    assert (row.fences is not None) == bool(row.test)
    if row.test.endswith("]"):
        file, _, case = row.test.removesuffix("]").partition("[")
        table = yaml.safe_load((ROOT / "tests/data/what-each-fault-does.yaml").read_text(encoding="utf-8"))
        assert case in [each["id"] for each in table["rows"]]
        assert (ROOT / file).is_file()
    elif row.test:
        file, _, name = row.test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_each_rung_answers_the_same_questions() -> None:
    events = {
        rung: [row.event for row in fences.table() if row.rung == rung] for rung in ("tcp", "softhca", "softroce")
    }
    assert events["tcp"] == events["softhca"] == events["softroce"]


def evidence(kind: str, layers: int = 2, simulated: str | None = "softhca: a software device") -> History:
    """Serving in which decode's grants are closed by a fence, and its layers unregistered before."""
    base = histories.play(histories.CLEAN)
    history = histories.changed(base, histories.kind("grant-closed", "decode"), data={"evidence": kind})
    regions = [event for event in base.by_kind["region"] if event.instance == "decode"]
    for region in regions[:layers]:
        data = {"address": region.data["address"], "bytes": region.data["bytes"]}
        history = histories.with_extra(history, histories.kind("region", "decode"), kind="unregistered", data=data)
    history.header.simulated = simulated
    history.header.transport = "rdma" if simulated else "tcp"
    return history


def test_deregistration_counts_where_it_fences() -> None:
    assert conservation.check(evidence("deregistered")).outcome == "held"


@pytest.mark.parametrize(
    ("history", "says"),
    [
        (evidence("deregistered", simulated=None), "'deregistered' is no stop evidence"),
        (evidence("queue-pair-reset", simulated=None), "'queue-pair-reset' is no stop evidence"),
        (evidence("deregistered", layers=1), "1 region(s) were registered still"),
        (evidence("writer-died"), "'writer-died' is no stop evidence"),
    ],
)
def test_what_does_not_count(history: History, says: str) -> None:
    result = conservation.check(history)
    assert result.outcome == "violated"
    assert any(says in finding.what for finding in result.findings)


def test_a_reset_that_nobody_saw_is_not_known() -> None:
    result = conservation.check(evidence("queue-pair-reset"))
    assert result.outcome == "unknown"


def test_the_page_is_current() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "docs/make_faults.py"), "--check"], check=False)
    assert done.returncode == 0, "run: python docs/make_faults.py"

"""Faults in the glue between engine and ledger, on real processes: each is caught by its own rule.

Three ways to catch one: the precondition that the ledger looks at, the specification that the
history breaks, and the answer of `run`, which is not what the scenario says.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from racelab import scenario
from racelab.assembly import Order, Played, Workbench, open_workbench
from racelab.engine.glue_faults import GLUE_FAULTS
from racelab.evidence import history
from racelab.lab.cluster import load
from racelab.registry import checkers
from racelab.shipped import shipped
from racelab.targets import target
from racelab.verdict import judge

CAUGHT = {
    "completion-credited-to-wrong-generation": ("close", "conservation", "which was never given"),
    "release-skips-ledger": ("take", "conservation", "is given to"),
    "publish-before-commit": ("publish", "integrity", "publishes page"),
}
"""By fault: the transition whose precondition does not hold, the specification, and its story."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    with open_workbench(load("local"), target("reference"), tmp_path_factory.mktemp("logs")) as opened:
        yield opened


def play(bench: Workbench, fault: str | None) -> Played:
    wanted = scenario.load(shipped("scenarios", "normal-serving.yaml"))
    return bench.play(Order(wanted, "ledger", glue_fault=fault))


def test_every_fault_has_its_rule() -> None:
    assert set(CAUGHT) == set(GLUE_FAULTS)
    assert set(target("reference").glue_faults) == set(GLUE_FAULTS)


@pytest.mark.parametrize("fault", GLUE_FAULTS)
def test_a_fault_is_caught_by_the_rule_that_should(bench: Workbench, fault: str) -> None:
    transition, spec, story = CAUGHT[fault]
    played = play(bench, fault)
    noticed = played.history.by_kind["ledger-violation"]
    assert noticed[0].data["transition"] == transition
    assert {event.instance for event in noticed} == {"decode"}
    assert all(event.data["caller"].startswith("Decode.") for event in noticed)
    verdict = played.verdict
    assert verdict.specs[spec] == "violated"
    assert any(story in finding.what for finding in verdict.results[spec].findings)
    assert verdict.checks["ledger_violations"] >= len(noticed)
    assert verdict.exit_code != 0
    assert verdict.to_json()["glue_fault"] == fault


@pytest.mark.parametrize("fault", GLUE_FAULTS)
def test_a_schedule_ends_at_the_first_violation_if_asked(bench: Workbench, fault: str) -> None:
    wanted = scenario.load(shipped("scenarios", "normal-serving.yaml"))
    played = bench.play(Order(wanted, "ledger", glue_fault=fault, stop_on_violation=True))
    noticed = played.history.by_kind["ledger-violation"][0]
    halted = played.history.by_kind["halted"][0]
    last = max(event.data["n"] for event in played.history.by_kind["step"])
    assert halted.data["n"] == last < len(wanted.steps)
    assert halted.data["by"] == [noticed.instance, noticed.seq]
    verdict = played.verdict.to_json()
    assert verdict["halted_at"] == {
        "step": last,
        "event": f"{noticed.instance}:{noticed.seq}",
        "request": noticed.request,
        "attempt": noticed.attempt,
        "page": noticed.page,
        "gen": noticed.gen,
        **noticed.data,
    }
    assert noticed.data["caller"].startswith("Decode.")
    assert played.verdict.exit_code != 0
    assert len(played.history.by_kind["phase"]) == 5, "released, drained, probed and judged all the same"


def test_without_a_fault_nothing_is_caught(bench: Workbench) -> None:
    """After the faults, on the same warm lab: none of them outlives its run."""
    verdict = play(bench, None).verdict
    assert verdict.verdict == "not-reproduced", verdict.why
    assert verdict.checks["ledger_violations"] == 0


def test_the_evidence_is_in_the_file(bench: Workbench, tmp_path: Path) -> None:

    played = play(bench, "release-skips-ledger")
    played.history.write(tmp_path / "history.jsonl")
    assert judge(history.read(tmp_path), checkers()).to_json() == played.verdict.to_json()

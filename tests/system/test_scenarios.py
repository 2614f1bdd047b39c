"""Every shipped scenario on real processes, under every policy and with its own guard taken away."""

from __future__ import annotations

from pathlib import Path

import pytest

from racelab import scenario
from racelab.abilities import check_mechanisms
from racelab.assembly import Order, Workbench
from racelab.errors import UsageError
from racelab.evidence import history
from racelab.registry import checkers, injectors
from racelab.scenario import Scenario
from racelab.shipped import shipped
from racelab.verdict import judge


def _for_this_cluster(path: Path) -> bool:
    """Some actions need a gate of another transport (tests/system/test_softhca.py plays those)."""
    try:
        check_mechanisms(scenario.load(path), [each for each in injectors() if each.serves("tcp")])
    except UsageError:
        return False
    return True


FOLDERS = [shipped("scenarios"), shipped("scenarios", "catalog"), shipped("scenarios", "counterexamples")]
ALL = [path for folder in FOLDERS for path in sorted(folder.glob("*.yaml"))]
SCENARIOS = [path for path in ALL if _for_this_cluster(path)]


@pytest.fixture(params=SCENARIOS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def wanted(request: pytest.FixtureRequest) -> Scenario:
    return scenario.load(request.param)


@pytest.mark.parametrize("policy", ["eager", "ledger"])
def test_the_verdict_is_what_the_scenario_says(bench: Workbench, wanted: Scenario, policy: str, tmp_path: Path) -> None:
    """And the history alone gives it again."""
    if policy not in wanted.expected:
        pytest.skip("it says nothing of this policy")
    played = bench.play(Order(wanted, policy))
    assert played.failure is None
    assert played.verdict.verdict == wanted.expected[policy], played.verdict.why
    assert played.verdict.exit_code == 0
    assert {each.state for each in played.verdict.injections} <= {"confirmed", "not-reached", "met-nothing"}
    if played.verdict.verdict == "prevented":
        assert played.verdict.blocked_at is not None
        assert played.verdict.blocked_at["guard"] == wanted.guard
    file = tmp_path / "history.jsonl"
    played.history.write(file)
    assert judge(history.read(file), checkers()).to_json() == played.verdict.to_json()


def test_without_its_guard_the_race_is_back(bench: Workbench, wanted: Scenario) -> None:
    if wanted.guard is None:
        pytest.skip("it has no guard")
    bare = bench.play(Order(wanted, "ledger", without=(wanted.guard,)))
    assert bare.verdict.verdict == "reproduced", bare.verdict.why
    assert bare.verdict.specs[wanted.spec or ""] == "violated"


def test_the_victim_answers_wrongly_and_only_then(bench: Workbench) -> None:
    wanted = scenario.load(shipped("scenarios", "late-write-after-timeout.yaml"))
    for policy, wrong in (("eager", True), ("ledger", False)):
        tokens = {row["request"]: row for row in bench.play(Order(wanted, policy)).verdict.tokens}
        assert (tokens["r2"]["first_difference"] is not None) == wrong


def test_other_seeds_reproduce_too(bench: Workbench) -> None:
    wanted = scenario.load(shipped("scenarios", "late-write-after-timeout.yaml"))
    for seed in (1, 2):
        assert bench.play(Order(wanted, "eager", seed=seed)).verdict.verdict == "reproduced"


def test_a_warm_run_and_a_cold_one_agree(bench: Workbench) -> None:
    wanted = scenario.load(shipped("scenarios", "late-write-after-timeout.yaml"))
    warm = bench.play(Order(wanted, "eager"))
    bench.close()
    cold = bench.play(Order(wanted, "eager"))
    assert (warm.verdict.verdict, warm.verdict.specs) == (cold.verdict.verdict, cold.verdict.specs)
    for here, there in zip(warm.verdict.tokens, cold.verdict.tokens, strict=True):
        assert [here[key] for key in ("request", "got", "first_difference")] == [
            there[key] for key in ("request", "got", "first_difference")
        ]

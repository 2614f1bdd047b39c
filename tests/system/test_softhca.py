"""The same scenario files over Mooncake's real RdmaTransport, on the software device."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from processes import leaving_nothing

from racelab import scenario
from racelab.abilities import check_mechanisms
from racelab.assembly import Order, Workbench, open_workbench
from racelab.campaign.ladder import climb
from racelab.doctor import diagnose, write_into_another_process
from racelab.errors import UsageError
from racelab.evidence.events import Event
from racelab.lab.cluster import load
from racelab.registry import checkers, injectors
from racelab.scenario.steps import Drop, Hold, Release
from racelab.shipped import shipped
from racelab.targets import target
from racelab.verdict import judge

WANTED = ("late-write-after-timeout", "late-write-after-drain", "stale-notification-commits-retry", "clean-serving")


@pytest.fixture(scope="module")
def ready() -> None:
    missing = [finding for finding in diagnose(load("softhca")).findings if finding.needed and not finding.here]
    if missing:
        pytest.skip(f"{missing[0].part}: {missing[0].detail}")


@pytest.fixture(scope="module")
def rdma(ready: None, bench: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    """Ray is one to a process, so whatever other lab there is ends first; a workbench starts its lab again by need."""
    bench.close()
    with open_workbench(load("softhca"), target("reference"), tmp_path_factory.mktemp("logs")) as opened:
        yield opened


def wanted(name: str) -> scenario.Scenario:
    return scenario.load(shipped("scenarios", f"{name}.yaml"))


@pytest.mark.parametrize("policy", ["eager", "ledger"])
@pytest.mark.parametrize("name", WANTED)
def test_the_verdict_is_what_the_scenario_says(rdma: Workbench, name: str, policy: str) -> None:
    for _ in range(3):
        played = rdma.play(Order(wanted(name), policy))
        assert played.failure is None
        assert played.verdict.verdict == wanted(name).expected[policy], played.verdict.why
        assert played.verdict.exit_code == 0
        for certificate in played.verdict.injections:
            assert certificate.state in ("confirmed", "not-reached", "met-nothing"), certificate.why


def test_reads_are_held_before_the_doorbell(rdma: Workbench) -> None:
    played = rdma.play(Order(wanted("late-read-after-abort"), "eager"))
    assert played.verdict.verdict == "reproduced", played.verdict.why
    assert {each.state for each in played.verdict.injections} == {"confirmed"}
    assert {event.data["opcode"] for event in played.history.by_kind["work-request"]} == {"read"}


def test_it_is_labelled_as_simulated_and_proven_to_be_rdma(rdma: Workbench) -> None:
    played = rdma.play(Order(wanted("late-write-after-timeout"), "eager"))
    json = played.verdict.to_json()
    assert (json["transport"], json["cluster"]) == ("rdma", "softhca")
    assert json["simulated"].startswith("softhca")
    write = next(each for each in json["injections"] if each["id"] == "w1")
    assert (write["gate"], write["stage"], write["payload"]) == ("verbs", "posted, before the doorbell", "at-hold")
    assert write["achieved"]["transport_proven"]
    assert write["achieved"]["counts_equal"]
    rails = {event.instance: event.data for event in played.history.by_kind["rails"]}
    assert rails["prefill"]["landed"] == rails["prefill"]["expected"] > 0
    assert rails["decode"]["landed"] == rails["decode"]["expected"]  # what earlier runs of this lab pulled
    counts = next(event for event in played.history.by_kind["counted"] if event.data["gate"] == "verbs").data["counts"]
    assert (
        counts["bytes"]
        == counts["bytes_kernel"]
        == sum(event.data["bytes"] for event in played.history.by_kind["posted"])
    )


def test_a_device_that_counts_something_else_makes_it_inconclusive(rdma: Workbench) -> None:
    played = rdma.play(Order(wanted("late-write-after-timeout"), "eager"))
    for event in played.history.by_kind["rails"]:
        event.data["landed"] = 0  # as if Mooncake had gone over TCP
    verdict = judge(played.history, checkers())
    assert verdict.verdict == "inconclusive"
    assert "RDMA devices wrote 0 bytes" in verdict.why


def test_two_holds_take_queue_pairs_of_their_own(rdma: Workbench, tmp_path: Path) -> None:
    """What is held first is let go last: neither hold stands behind the other."""
    text = """
scenario: two-holds
about: Two requests held, let go in the other order.
lab: {decode-pages: 8}
requests: {r1: {prompt-tokens: 13}, r2: {prompt-tokens: 13}}
steps:
  - hold: {id: w1, write: {request: r1}, count: 2}
  - hold: {id: w2, write: {request: r2}, count: 2}
  - submit: r1
  - await: {event: held, hold: w1}
  - submit: r2
  - await: {event: held, hold: w2}
  - release: w2
  - await: {event: finished, request: r2}
  - release: w1
  - await: {event: finished, request: r1}
expected: {ledger: not-reproduced}
"""
    file = tmp_path / "two-holds.yaml"
    file.write_text(text)
    played = rdma.play(Order(scenario.load(file), "ledger"))
    assert played.verdict.verdict == "not-reproduced", played.verdict.why


def test_a_dropped_write_ends_its_queue_pair_and_the_transport_sends_it_again(rdma: Workbench) -> None:
    steps = [
        Drop(hold=step.hold) if isinstance(step, Release) and step.hold == "w1" else step
        for step in wanted("late-write-after-timeout").steps
    ]
    played = rdma.play(Order(msgspec.structs.replace(wanted("late-write-after-timeout"), steps=steps), "eager"))
    dropped = played.history.by_kind["dropped"]
    assert dropped, [event.kind for event in played.history.events if event.instance == "verbs"]
    again = rdma.play(Order(wanted("late-write-after-timeout"), "eager"))
    assert again.verdict.verdict == "reproduced", again.verdict.why


@pytest.mark.parametrize("victim", ["verbs", "decode"])
def test_a_process_that_is_killed_in_mid_hold_makes_it_inconclusive(rdma: Workbench, victim: str) -> None:
    def kill(event: Event) -> None:
        if event.kind == "held" and not killed:
            killed.append(rdma.lab.pids[victim])
            os.kill(rdma.lab.pids[victim], signal.SIGKILL)

    killed: list[int] = []
    played = rdma.play(Order(wanted("late-write-after-timeout"), "eager"), kill)
    assert killed
    assert played.verdict.verdict == "inconclusive"
    assert played.verdict.exit_code == 4
    assert rdma.play(Order(wanted("late-write-after-timeout"), "eager")).verdict.verdict == "reproduced"


def shaped(name: str, action: str) -> scenario.Scenario:
    """The scenario with what its hold `g1` does replaced."""
    steps = [
        msgspec.structs.replace(step, action=action) if isinstance(step, Hold) and step.id == "g1" else step
        for step in wanted(name).steps
    ]
    return msgspec.structs.replace(wanted(name), steps=steps)


@pytest.mark.parametrize("slice_timeout_s", [None, "1"], ids=["without-slice-timeout", "slice-timeout"])
@pytest.mark.parametrize(("rails", "verdict"), [(2, "reproduced"), (1, "not-reproduced")])
def test_a_ghost_lands_after_success_if_the_transport_goes_on_over_another_rail(
    rdma: Workbench, tmp_path: Path, rails: int, verdict: str, slice_timeout_s: str | None
) -> None:
    """Mooncake's success is false stop evidence with two rails; with one its reconnect is the fence."""
    rdma.close()
    cluster = load("softhca")
    environment = {"MC_SLICE_TIMEOUT": slice_timeout_s} if slice_timeout_s is not None else {}
    writer = msgspec.structs.replace(cluster.instances["prefill"], environment=environment)
    instances = cluster.instances | {"prefill": writer}
    cluster = msgspec.structs.replace(cluster, rails=rails, instances=instances)
    with open_workbench(cluster, target("reference"), tmp_path) as bench:
        played = bench.play(Order(wanted("ghost-write-after-retry"), "ledger"))
    assert played.verdict.verdict == verdict, played.verdict.why
    completed = [event for event in played.history.by_kind["completed"] if event.request == "r1"]
    assert {event.data["status"] for event in completed} == {"ok"}, "Mooncake says that every write landed"
    ghost = next(each for each in played.verdict.injections if each.id == "g1")
    assert ghost.state == "confirmed", ghost.why
    assert bool(ghost.achieved["landed_ms"]) == (rails == 2)
    assert bool(ghost.achieved["fenced_ms"]) == (rails == 1)
    assert (played.verdict.specs["conservation"] == "violated") == (rails == 2)


def test_a_write_that_fails_is_sent_again_and_harms_nobody(rdma: Workbench) -> None:
    played = rdma.play(Order(shaped("ghost-write-after-retry", "fail"), "ledger"))
    assert played.verdict.verdict == "not-reproduced", played.verdict.why
    assert next(each for each in played.verdict.injections if each.id == "g1").state == "confirmed"


HEAD = """\
scenario: small
about: One action.
requests: {r1: {prompt-tokens: 25}, r2: {prompt-tokens: 25}}
steps:
"""

ACTIONS = {
    "a completion that comes late": (
        """
- hold: {id: s, write: {request: r1}, count: 4, action: lose-completion}
- submit: r1
- await: {event: held, hold: s}
- advance: 10000
- await: {event: timed-out, request: r1}
- release: s
""",
        "lose-completion",
    ),
    "a control": (
        """
- pass: {id: s, write: {request: r1}, count: 4}
- submit: r1
- await: {event: finished, request: r1}
""",
        "pass",
    ),
    "a delay": (
        """
- delay: {id: s, write: {request: r1}, count: 4, ms: {uniform: [2, 6]}}
- submit: r1
- await: {event: finished, request: r1}
""",
        "delay",
    ),
    "a retransmission": (
        """
- hold: {id: s, write: {request: r1}, count: 4, payload: reread, mechanism: retransmission}
- submit: r1
- await: {event: held, hold: s}
- release: s
- await: {event: finished, request: r1}
""",
        "release",
    ),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_of_the_verbs_gate_is_certified(rdma: Workbench, name: str) -> None:
    steps, action = ACTIONS[name]
    played = rdma.play(Order(scenario.loads(HEAD + steps), "ledger"))
    assert played.failure is None
    (certificate,) = played.verdict.injections
    assert (certificate.action, certificate.state) == (action, "confirmed"), certificate.why
    assert played.verdict.verdict == "not-reproduced", played.verdict.why


def test_a_retransmission_carries_what_the_source_holds_by_then(rdma: Workbench) -> None:
    """r1 is given up and its source pages go to r2: what lands on r1's pages is r2's."""
    steps = """
- hold: {id: s, write: {request: r1}, count: 2, payload: reread, mechanism: retransmission}
- submit: r1
- await: {event: held, hold: s}
- advance: 10000
- await: {event: attempt-ended, request: r1}
- submit: r2
- await: {event: finished, request: r2}
- release: s
"""
    played = rdma.play(Order(scenario.loads(HEAD.replace("25", "17") + steps), "abort-notify"))
    (certificate,) = played.verdict.injections
    assert certificate.state == "confirmed", certificate.why
    posted = {event.data["write"]: event for event in played.history.by_kind["posted"]}
    of_r2 = {event.data["fingerprint"] for event in posted.values() if event.request == "r2"}
    looks = [event for event in played.history.by_kind["look"] if event.data["why"] == "after-landing"]
    assert len(looks) == 2
    for look_at in looks:
        assert look_at.data["fingerprint"] != posted[look_at.data["write"]].data["fingerprint"]
        assert look_at.data["fingerprint"] in of_r2


def test_what_a_gate_cannot_do_is_refused_before_anything_starts() -> None:
    wire = [injector for injector in injectors() if injector.serves("tcp")]
    with pytest.raises(UsageError, match="gate wire knows no mechanism 'rail-failover'"):
        check_mechanisms(wanted("ghost-write-after-retry"), wire)


def test_the_doctor_probes_what_the_device_needs() -> None:
    assert write_into_another_process() == "can be written"


def test_the_ladder_shows_the_rungs_side_by_side(rdma: Workbench, tmp_path: Path) -> None:
    rdma.close()
    file = shipped("scenarios", "late-write-after-timeout.yaml")
    rungs, code = climb(
        scenario.load(file),
        ["eager", "ledger"],
        seed=0,
        results=tmp_path,
        given=str(file),
        rungs=("local", "softhca"),  # that of the machine is played in tests/rdma
    )
    assert code == 0
    assert [(rung.cluster, rung.simulated, rung.policy, rung.verdict) for rung in rungs] == [
        ("local", False, "eager", "reproduced"),
        ("local", False, "ledger", "prevented"),
        ("softhca", True, "eager", "reproduced"),
        ("softhca", True, "ledger", "prevented"),
    ]


def test_a_rung_that_cannot_do_it_says_why(tmp_path: Path) -> None:
    file = shipped("scenarios", "ghost-write-after-retry.yaml")
    rungs, code = climb(scenario.load(file), ["ledger"], seed=0, results=tmp_path, given=str(file), rungs=("local",))
    assert code == 0
    assert [(rung.verdict, rung.missing) for rung in rungs] == [
        (None, "hold g1: gate wire knows no mechanism 'rail-failover'")
    ]


def test_the_command_leaves_nothing_behind(ready: None, root: Path, tmp_path: Path) -> None:
    with leaving_nothing():
        command = [sys.executable, "-m", "racelab.cli", "run", "scenarios/late-write-after-timeout.yaml"]
        command += ["--policy", "eager", "--cluster", "softhca", "--json", "--results", str(tmp_path)]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=110)
        assert done.returncode == 0, done.stdout + done.stderr
        assert '"simulated":"softhca' in done.stdout

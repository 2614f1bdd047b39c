"""Stop, continue, kill and restart as steps, on real processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import histories
import msgspec
import pytest

from checkers import finality
from racelab import scenario
from racelab.assembly import Order, Workbench
from racelab.evidence import history
from racelab.registry import checkers
from racelab.verdict import judge

HEAD = """
scenario: {name}
about: A test.
spec: isolation
requests: {{r1: {{prompt-tokens: 13, new-tokens: 2}}, r2: {{prompt-tokens: 13, new-tokens: 2}}}}
steps:
"""
HELD = """
  - hold: {id: w1, write: {request: r1}, count: 2}
  - submit: r1
  - await: {event: held, hold: w1}
"""
DEAD_WRITER = """
  - kill: prefill
  - advance: 10000
  - await: {event: timed-out, request: r1}
  - await: {event: page-free, request: r1}
  - release: w1
"""


def wanted(name: str, steps: str) -> scenario.Scenario:
    return scenario.loads(HEAD.format(name=name) + steps.strip("\n"))


def states(verdict: object) -> dict[str, str]:
    return {each.id: each.state for each in verdict.injections}  # type: ignore[attr-defined]


def test_what_is_sent_to_a_stopped_process_waits_for_it(bench: Workbench) -> None:
    steps = """
  - stop: prefill
  - submit: r1
  - await: {event: admitted, request: r1}
  - advance: 9999
  - continue: prefill
  - await: {event: finished, request: r1}
"""
    played = bench.play(Order(wanted("stopped", steps), "ledger"))
    assert played.verdict.verdict == "not-reproduced", played.verdict.why
    assert states(played.verdict) == {"stop-prefill": "confirmed", "continue-prefill": "confirmed"}
    (stopped,), (went_on,) = played.history.by_kind["stopped"], played.history.by_kind["continued"]
    acted = [event for event in played.history.events if event.instance == "prefill" and event.request == "r1"]
    assert acted
    assert all(event.hlc > went_on.hlc > stopped.hlc for event in acted)
    clocks = {event.instance: event.clock_ms for event in played.history.events if event.clock_ms}
    assert clocks["prefill"] == clocks["decode"], "the time that passed meanwhile has passed for it too"


def test_a_wait_for_a_stopped_process_is_no_hang(bench: Workbench) -> None:
    steps = """
  - stop: prefill
  - submit: r1
  - await: {event: finished, request: r1}
"""
    played = bench.play(Order(wanted("starved", steps), "ledger"))
    assert played.failure is None
    assert played.verdict.verdict == "diverged"
    assert "starved: the system is at rest" in played.verdict.why


def test_a_write_let_go_into_a_stopped_receiver_lands_when_that_goes_on(bench: Workbench) -> None:
    steps = "\n  - stop: decode\n  - release: w1\n  - continue: decode\n  - await: {event: finished, request: r1}"
    played = bench.play(Order(wanted("asleep", HELD + steps), "ledger"))
    assert played.verdict.verdict == "not-reproduced", played.verdict.why
    assert set(states(played.verdict).values()) == {"confirmed"}
    (went_on,) = played.history.by_kind["continued"]
    landed = played.history.by_kind["landed"]
    assert landed
    assert all(event.hlc > went_on.hlc for event in landed), "over TCP the target's own thread copies"


def test_the_death_of_a_writer_is_no_fence(bench: Workbench, tmp_path: Path) -> None:
    """Under `eager` it is reproduced: the last test runs that as a command."""
    played = bench.play(Order(wanted("dead-writer", HELD + DEAD_WRITER), "ledger"))
    assert played.failure is None
    assert played.verdict.verdict == "prevented", played.verdict.why
    assert states(played.verdict) == {"w1": "confirmed", "kill-prefill": "confirmed"}
    assert played.history.by_kind["killed"][0].data["idle"]
    probe = [event for event in played.history.by_kind["finished"] if event.request == "probe"]
    assert probe, "another prefill has served the probe"
    file = tmp_path / "history.jsonl"
    played.history.write(file)
    assert judge(history.read(file), checkers()).to_json() == played.verdict.to_json()


def test_a_receiver_is_replaced_at_its_address(bench: Workbench) -> None:
    steps = """
  - submit: r2
  - await: {event: finished, request: r2}
  - hold: {id: w1, write: {request: r1}, count: 2}
  - submit: r1
  - await: {event: held, hold: w1}
  - kill: decode
  - restart: decode
  - submit: r2
  - await: {event: finished, request: r2, count: 2}
"""
    played = bench.play(Order(wanted("replaced", steps), "ledger"))
    assert played.verdict.verdict == "not-reproduced", played.verdict.why
    assert states(played.verdict) == {"w1": "confirmed", "kill-decode": "confirmed", "restart-decode": "confirmed"}
    (restarted,) = played.history.by_kind["restarted"]
    assert restarted.data["segment"] == restarted.data["was_segment"]
    assert restarted.data["pid"] != restarted.data["was_pid"]
    pools = [event for event in played.history.by_kind["pool"] if event.instance == "decode"]
    assert [pool.data["generations_from"] for pool in pools] == [0, 100]
    assert pools[0].incarnation < pools[1].incarnation
    attempts = [event.attempt for event in played.history.by_kind["submitted"] if event.request == "r2"]
    assert attempts == [1, 2]


def test_a_request_ends_with_the_process_that_served_it(bench: Workbench) -> None:
    played = bench.play(Order(wanted("gone", HELD + "  - kill: decode\n  - release: w1"), "eager"))
    assert played.failure is None
    assert played.verdict.specs["finality"] == "held"
    assert played.verdict.results["finality"].coverage["ended_by_death"] == 1
    assert played.verdict.results["conservation"].coverage["pools_gone_by_death"] == 1
    assert states(played.verdict) == {"w1": "confirmed", "kill-decode": "confirmed"}


def test_a_stopped_process_that_reports_is_a_mismatch(bench: Workbench) -> None:
    played = bench.play(
        Order(wanted("asleep", HELD + "  - stop: prefill\n  - release: w1\n  - continue: prefill"), "ledger")
    )
    (stopped,) = played.history.by_kind["stopped"]
    stopped.data["state"] = "S"
    verdict = judge(played.history, checkers())
    assert verdict.verdict == "inconclusive"
    assert "stop-prefill is not confirmed: prefill is in state S" in verdict.why


def test_memory_that_was_unregistered_refuses_what_comes_later(bench: Workbench) -> None:
    steps = """
  - unregister: decode
  - release: w1
  - await: {event: failed, request: r1}
"""
    played = bench.play(Order(wanted("unregistered", HELD + steps), "ledger"))
    assert played.verdict.verdict == "not-reproduced", played.verdict.why
    assert states(played.verdict) == {"w1": "confirmed", "unregister-decode": "confirmed"}
    assert {event.data["code"] for event in played.history.by_kind["unlanded"]} == {1}


def test_memory_that_was_unmapped_takes_nothing_and_its_instance_lives_on(bench: Workbench) -> None:
    steps = """
  - unmap: decode
  - release: w1
  - await: {event: failed, request: r1}
"""
    played = bench.play(Order(wanted("unmapped", HELD + steps), "ledger"))
    assert played.verdict.verdict == "not-reproduced", played.verdict.why
    assert states(played.verdict) == {"w1": "confirmed", "unmap-decode": "confirmed"}
    assert [event for event in played.history.by_kind["unlanded"] if "code" in event.data] == []
    before, after = (
        [event.data["fingerprint"] for event in played.history.by_kind["look"] if event.data["why"] == why]
        for why in ("before-release", "after-landing")
    )
    assert before == after, "decode has the same pages elsewhere, and nothing came there"


@pytest.mark.parametrize(("policy", "verdict"), [("eager", "reproduced"), ("ledger", "prevented")])
def test_on_a_real_clock_timers_fire_by_themselves(bench: Workbench, policy: str, verdict: str) -> None:
    steps = """
  - advance: 300
  - await: {event: timed-out, request: r1}
  - await: {event: page-free, request: r1}
  - release: w1
"""
    lab = scenario.Lab(clock="real", request_timeout_ms=300, drain_timeout_ms=300)
    played = bench.play(Order(msgspec.structs.replace(wanted("real-time", HELD + steps), lab=lab), policy))
    assert played.verdict.verdict == verdict, played.verdict.why
    assert played.verdict.label == "shortened: request-timeout-ms 10000 -> 300, drain-timeout-ms 10000 -> 300"
    assert played.history.by_kind["timed-out"][0].data["waited_ms"] == 300


def test_the_command_prints_one_object_whatever_ray_says(root: Path, tmp_path: Path, bench: Workbench) -> None:
    bench.close()
    file = tmp_path / "dead-writer.yaml"
    file.write_text(HEAD.format(name="dead-writer") + (HELD + DEAD_WRITER).strip("\n"))
    command = [sys.executable, "-m", "racelab.cli", "run", str(file), "--policy", "eager", "--json"]
    done = subprocess.run([*command, "--results", str(tmp_path)], cwd=root, capture_output=True, text=True, timeout=110)
    assert msgspec.json.decode(done.stdout)["verdict"] == "reproduced", done.stderr


PULLED = """
scenario: reader-dies
about: A test.
spec: finality
lab: {transfer: pull}
requests: {r1: {}}
steps:
  - hold: {id: x1, read: {request: r1}, count: 4}
  - submit: r1
  - await: {event: held, hold: x1}
  - kill: decode
  - release: x1
"""


def test_a_request_ends_with_the_process_that_has_it_and_its_source_pages_stay_in_quarantine(bench: Workbench) -> None:
    played = bench.play(Order(scenario.loads(PULLED), "ledger"))
    assert played.verdict.verdict == "not-reproduced", played.verdict.why
    assert states(played.verdict) == {"x1": "confirmed", "kill-decode": "confirmed"}
    assert played.verdict.results["finality"].coverage["ended_by_death"] == 1
    quarantined = {(event.instance, event.page) for event in played.history.by_kind["page-quarantined"]}
    assert {instance for instance, _ in quarantined} == {"prefill"}
    assert len(quarantined) == 2


def test_a_request_that_decode_has_does_not_end_with_prefill(bench: Workbench) -> None:
    """It was submitted to prefill, and its client has been with decode since: what is not over there is stuck."""
    played = bench.play(Order(scenario.loads(PULLED.replace("kill: decode", "kill: prefill")), "ledger"))
    ends = [event for event in played.history.of("finished", "timed-out", "failed") if event.request == "r1"]
    assert [event.instance for event in ends] == ["decode"]
    hung = histories.without(played.history, lambda event: event in ends)
    result = finality.rules(hung)
    assert "ended_by_death" not in result.coverage
    assert any("r1 attempt 1 is not over" in finding.what for finding in result.findings)


REPLACED = """
scenario: pulled-from-a-new-one
about: A test.
lab: {transfer: pull}
requests: {r1: {}, r2: {}}
steps:
  - submit: r1
  - await: {event: finished, request: r1}
  - await: {event: attempt-ended, request: r1}
  - kill: prefill
  - restart: prefill
  - submit: r2
  - await: {event: finished, request: r2}
"""


def test_decode_reads_from_the_process_that_took_a_dead_prefills_place(bench: Workbench) -> None:
    for run in range(2):  # the second time the lab knows an address where two have been
        played = bench.play(Order(scenario.loads(REPLACED), "ledger"))
        assert played.verdict.verdict == "not-reproduced", (run, played.verdict.why)

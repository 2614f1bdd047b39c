"""Scenario files over kernel verbs: both gates of the machine, and what its results say of themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from racelab import scenario
from racelab.assembly import Order, Played, Workbench, check_mechanisms, open_workbench
from racelab.errors import LabError, UsageError
from racelab.lab.cluster import load
from racelab.registry import injectors
from racelab.scenario.steps import Advance
from racelab.shipped import shipped
from racelab.targets import target
from racelab.vm import client
from racelab.vm.machine import Machine

pytestmark = pytest.mark.timeout(600)

LATE = "late-write-after-timeout"


def wanted(name: str) -> scenario.Scenario:
    return scenario.load(shipped("scenarios", f"{name}.yaml"))


@pytest.fixture(scope="module", params=["softroce", "softroce-packets"])
def rdma(
    request: pytest.FixtureRequest, softroce: Machine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workbench]:
    """A workbench on the machine, with the gate before the doorbell or the one on the wire."""
    with open_workbench(load(request.param), target("reference"), tmp_path_factory.mktemp("logs")) as opened:
        yield opened


def checked(played: Played, gate: str) -> Played:
    """A run whose every injection is confirmed, the transport proven by the wire's own counts."""
    assert played.failure is None
    for certificate in played.verdict.injections:
        assert certificate.state in ("confirmed", "not-reached", "met-nothing"), certificate.why
        if certificate.id == "w1":
            assert certificate.gate == gate
            assert certificate.achieved["transport_proven"]
            assert certificate.achieved["counts_equal"]
    (rails,) = [event for event in played.history.by_kind["rails"] if event.instance == "prefill"]
    assert rails.data["landed"] == rails.data["expected"] > 0
    return played


def test_a_late_write_is_reproduced_and_prevented(rdma: Workbench) -> None:
    """On one lab, both policies: the race is in kernel memory here, and its bytes are what decode reads."""
    on_the_wire = rdma.cluster.write_gate == "packets"
    for policy, verdict in (("eager", "reproduced"), ("ledger", "prevented")):
        order = Order(wanted(LATE), policy)
        if on_the_wire:  # no packet is lost for 10 s and its requester still there, so the client is less patient
            impatient = msgspec.structs.replace(order.scenario.lab, request_timeout_ms=1000)
            steps = [
                msgspec.structs.replace(step, ms=1000) if isinstance(step, Advance) else step
                for step in order.scenario.steps
            ]
            order = replace(order, scenario=msgspec.structs.replace(order.scenario, lab=impatient, steps=steps))
        played = checked(rdma.play(order), "packets" if on_the_wire else "verbs")
        assert played.verdict.verdict == verdict, played.verdict.why
        said = played.verdict.to_json()
        assert "rdma_rxe" in said["machine"]
        assert said["simulated"] is None
        assert said["label"] == ("shortened: request-timeout-ms 10000 -> 1000" if on_the_wire else "default-timers")
        payloads = {certificate.id: certificate.payload for certificate in played.verdict.injections}
        assert payloads["w1"] == ("reread" if on_the_wire else "at-hold")


def test_clean_serving_is_clean(rdma: Workbench) -> None:
    played = rdma.play(Order(wanted("clean-serving"), "ledger"))
    assert played.failure is None
    assert played.verdict.verdict == "not-reproduced", played.verdict.why


def steps_of(name: str, steps: str) -> scenario.Scenario:
    requests = "{r1: {prompt-tokens: 13, new-tokens: 2}, r2: {prompt-tokens: 13, new-tokens: 2}}"
    held = "[{hold: {id: w1, write: {request: r1}, count: 2}}, {submit: r1}, {await: {event: held, hold: w1}}, "
    return scenario.loads(
        f"scenario: {name}\nabout: A test.\nspec: isolation\nrequests: {requests}\nsteps: {held}{steps}]\n"
    )


def test_a_delayed_write_comes_no_sooner_than_was_drawn(rdma: Workbench) -> None:
    """On the wire its packets are lost until the delay is over, and what is sent again after that passes."""
    delayed = scenario.loads(
        "scenario: delayed\nabout: A test.\nrequests: {r1: {prompt-tokens: 13, new-tokens: 2}}\nsteps:\n"
        "- delay: {id: w1, write: {request: r1}, ms: {uniform: [10, 60]}}\n- submit: r1\n"
        "- await: {event: finished, request: r1}\n"
    )
    played = checked(rdma.play(Order(delayed, "ledger")), rdma.cluster.write_gate or "verbs")
    assert played.verdict.verdict == "not-reproduced", played.verdict.why
    (late,) = played.verdict.injections
    assert (late.action, late.state, len(late.achieved["held"])) == ("delay", "confirmed", 2)
    assert min(late.achieved["waited_ms"]) >= min(late.achieved["drawn_ms"]) >= 10


PROCESSES = {
    "asleep": ("{stop: decode}, {release: w1}, {continue: decode}, {await: {event: finished, request: r1}}", "landed"),
    "forgotten": ("{unregister: decode}, {release: w1}", "unlanded"),
    "dead": ("{kill: prefill}, {advance: 10000}, {await: {event: timed-out, request: r1}}, {release: w1}", "dropped"),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_instances_stop_go_on_die_and_come_again(rdma: Workbench, name: str) -> None:
    """Each is two processes, the engine here and its agent there; a killed one comes again before the probe."""
    if rdma.cluster.write_gate:
        pytest.skip("seen with the other gate, whose holds end with their process")
    steps, end = PROCESSES[name]
    played = rdma.play(Order(steps_of(name, steps), "ledger"))
    assert played.failure is None
    assert played.verdict.verdict == "not-reproduced", played.verdict.why
    assert {each.state for each in played.verdict.injections} == {"confirmed"}
    assert {event.kind for event in played.history.of("landed", "unlanded", "dropped")} == {end}
    for event in played.history.of("stopped", "killed"):
        assert (event.data["agent_state"], event.data["agent_status"]) in (("T", None), ("", 9))
    for event in played.history.by_kind["restarted"]:
        assert event.data["segment"] == event.data["was_segment"]
        assert event.data["agent"] != event.data["was_agent"]


def test_one_lab_at_a_time(rdma: Workbench) -> None:
    """The wire's counts are those of one lab."""
    assert rdma.lab.pids
    with pytest.raises(LabError, match="in use by process"):
        client.lease("somebody else")


@pytest.mark.parametrize("name", ["softroce", "softroce-packets"])
def test_no_ghost_where_nobody_gives_up(name: str) -> None:
    with pytest.raises(UsageError, match="ghost"):
        check_mechanisms(wanted("ghost-write-after-retry"), load(name).gates(injectors()))

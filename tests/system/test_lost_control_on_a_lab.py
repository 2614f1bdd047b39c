"""A control message is lost on real processes, with a stop token: all guards end it, without the watchdog not."""

from __future__ import annotations

import msgspec
import pytest

from racelab import scenario
from racelab.assembly import Order, Workbench
from racelab.scenario import Scenario
from racelab.scenario.steps import Hold
from racelab.shipped import shipped

FIRST_TOKEN, LAST_SLOT = 0, 3


def losing(message: str, stop: int) -> Scenario:
    """r1's message of a type is lost; its client waits for ever, and it stops at a token."""
    return scenario.loads(
        f"""
scenario: lost-{message}
about: A control message is lost.
spec: {"conservation" if message == "complete" else "finality"}
guard: receive-watchdog
lab: {{request-timeout-ms: null}}
requests:
  r1: {{prompt-tokens: 13, new-tokens: 8, stop-at: {stop}}}
steps:
  - hold: {{id: m1, message: {{type: {message}, request: r1}}, mechanism: broker-backlog}}
  - submit: r1
  - await: {{event: held, hold: m1}}
  - drop: m1
finality-ms: 500000
expected: {{ledger: not-reproduced}}
"""
    )


@pytest.mark.parametrize("stop", [FIRST_TOKEN, LAST_SLOT])
@pytest.mark.parametrize("message", ["reserve", "written", "complete"])
def test_a_lost_message_is_outlived_with_the_watchdog_alone(bench: Workbench, message: str, stop: int) -> None:
    wanted = losing(message, stop)
    guarded = bench.play(Order(wanted, "ledger")).verdict
    assert guarded.verdict == "not-reproduced", guarded.why
    bare = bench.play(Order(wanted, "ledger", without=("receive-watchdog",))).verdict
    assert bare.verdict == "reproduced", bare.why
    answered = {row["request"]: row["got"] for row in guarded.tokens}
    assert len(answered.get("r1", [0] * (stop + 1))) == stop + 1


@pytest.mark.parametrize(("policy", "verdict"), [("eager", "reproduced"), ("ledger", "prevented")])
def test_a_late_notification_commits_another_attempt(bench: Workbench, policy: str, verdict: str) -> None:
    """As the late message of the shipped scenario does, by the transport's own path."""
    wanted = scenario.load(shipped("scenarios", "stale-notification-commits-retry.yaml"))
    (held, *rest) = wanted.steps
    assert isinstance(held, Hold)
    steps = [msgspec.structs.replace(held, mechanism="congestion"), *rest]
    lab = msgspec.structs.replace(wanted.lab, news="notify")
    played = bench.play(Order(msgspec.structs.replace(wanted, lab=lab, steps=steps), policy)).verdict
    assert played.verdict == verdict, played.why
    gates = {each.id: (each.gate, each.state) for each in played.injections}
    assert gates == {"n1": ("wire", "confirmed"), "w2": ("wire", "confirmed")}

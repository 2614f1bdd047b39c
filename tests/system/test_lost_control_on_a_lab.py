"""A control message is lost on real processes, with a stop token: all guards end it, without the watchdog not."""

from __future__ import annotations

import pytest

from racelab import scenario
from racelab.assembly import Order, Workbench
from racelab.scenario import Scenario

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

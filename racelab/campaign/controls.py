"""Controls: what is left of a scenario once its fault, or what makes the fault matter, is taken away.

    no-fault              its requests, one after another, with no gate armed
    held-without-reuse    what its gates hold is let go while its owner waits for it, so that no page changes hands

Nothing may be violated in a control under any policy; if something is, the scenario shows more than its fault,
and says so under `expected` (`eager no-fault: moved`).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from racelab.scenario import Lab, Request, Scenario
from racelab.steps import Arming, Await, Release, Step, Submit

ON_THE_WAY = ("reserve", "written", "complete")
"""Messages of every request that is served; a control in which nobody gives up sees no others."""

CONTROLS = ("no-fault", "held-without-reuse")


def control(scenario: Scenario, kind: str) -> Scenario:
    """The scenario's control of one kind; it names no specification."""
    steps = list(_serve(scenario, holding=kind == "held-without-reuse"))
    ending = f" {kind}"
    said = {policy.removesuffix(ending): word for policy, word in scenario.expected.items() if policy.endswith(ending)}
    return msgspec.structs.replace(
        scenario,
        scenario=f"{scenario.scenario}, {kind}",
        spec=None,
        guard=None,
        victim=None,
        requests={name: _acceptable(request, scenario.lab) for name, request in scenario.requests.items()},
        steps=steps,
        expected=said,
    )


def _acceptable(request: Request, lab: Lab) -> Request:
    """The request, cut to what prefill takes: a prompt over its limit is a fault of its own."""
    limit = lab.prefill_token_limit
    if limit is None or request.prompt_tokens <= limit:
        return request
    return msgspec.structs.replace(request, prompt_tokens=limit)


def _serve(scenario: Scenario, *, holding: bool) -> Iterator[Step]:
    """Each request once, served to its end before the next; its holds are let go as soon as they have held."""
    for request in dict.fromkeys(step.request for step in scenario.steps if isinstance(step, Submit)):
        holds = [hold for hold in scenario.holds().values() if holding and _is_reached(hold, request)]
        yield from holds
        yield Submit(request=request)
        for hold in holds:
            yield Await(event="held", hold=hold.id)
            yield Release(hold=hold.id)
        yield Await(event="finished", request=request)


def _is_reached(hold: Arming, request: str) -> bool:
    """Whether a request that is served without a fault comes to this gate, and goes on once let go."""
    if hold.action != "hold":
        return False
    match = hold.match
    if match is None or match.request != request or match.attempt not in (None, 1):
        return False
    return hold.message is None or hold.message.type in ON_THE_WAY

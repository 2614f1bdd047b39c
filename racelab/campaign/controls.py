"""Controls: what is left of a scenario once its fault, or what makes the fault matter, is taken away.

    no-fault              its requests, one after another, with no gate armed
    armed-but-passing     the same with its gates armed by the rules of its holds, and what matches passes
    held-without-reuse    what its gates hold is let go while its owner waits for it, so that no page changes hands

Nothing may be violated in a control under any policy; if something is, the scenario shows more than its fault,
and says so under `expected` (`eager no-fault: moved`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from racelab.scenario import Lab, Request, Scenario
from racelab.scenario.steps import Arming, Await, Hold, MessageMatch, Pass, Release, Step, Submit, WriteMatch

ON_THE_WAY = ("reserve", "written", "complete")
"""Messages of every request that is served; a control in which nobody gives up sees no others."""

KV = "kv"
"""The stream of the model's own KV."""

CONTROLS = ("no-fault", "armed-but-passing", "held-without-reuse")


def control(scenario: Scenario, kind: str) -> Scenario:
    """The scenario's control of one kind; it names no specification."""
    steps = list(_serve(scenario, kind))
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


def _serve(scenario: Scenario, kind: str) -> Iterator[Step]:
    """Each request once, served to its end before the next; its holds are let go as soon as they have held."""
    for request in dict.fromkeys(step.request for step in scenario.steps if isinstance(step, Submit)):
        holds = [hold for hold in scenario.holds().values() if kind == "held-without-reuse" and _holds(hold, request)]
        holds += _in_turn(scenario, request) if kind != "no-fault" else []
        holds.sort(key=_when)
        yield from holds
        if kind == "armed-but-passing":
            yield from _passes(scenario, request)
        yield Submit(request=request)
        for hold in holds:
            if hold.count:  # of whatever comes nobody can say that all of it is there
                yield Await(event="held", hold=hold.id)
            yield Release(hold=hold.id)
        yield Await(event="finished", request=request)


def _when(hold: Arming) -> int:
    """As which of what a request comes to, one after the other, it stops: until it is let go no later one comes."""
    if hold.message is None:
        return 0 if hold.write is None else ON_THE_WAY.index("written")
    return ON_THE_WAY.index(hold.message.type) + (hold.message.type != "reserve")


def _in_turn(scenario: Scenario, request: str) -> Iterator[Hold]:
    """Where streams travel beside the KV, holds of the news of each, the KV's own last: once a gate is armed it is luck
    which comes first, and an engine that commits by the KV's alone is right or wrong by that, without any fault."""
    lab = scenario.lab
    news = -(-scenario.requests[request].prompt_tokens // lab.chunk_tokens) * lab.ranks
    for stream in (*lab.streams, KV) if lab.streams else ():
        match = MessageMatch(type="written", request=request, stream=stream)
        yield Hold(id=f"{stream}-of-{request}", message=match, count=news, mechanism="broker-backlog")


def _holds(hold: Arming, request: str) -> bool:
    """Whether what it stops of a request that is served without a fault goes on once it is let go."""
    return hold.action == "hold" and _is_reached(hold, request)


def _passes(scenario: Scenario, request: str) -> Iterator[Step]:
    """The rules of the scenario's holds that the request comes to, each letting pass what it matches; one for all
    that its transfers write or read if there are none. What is held on a stream stands at no gate."""
    reached = [hold for hold in scenario.holds().values() if hold.work is None and _is_reached(hold, request)]
    for hold in reached:
        yield Pass(id=hold.id, write=hold.write, message=hold.message, count=hold.count)
    if not reached:
        op: Literal["read"] | None = "read" if scenario.lab.transfer == "pull" else None
        yield Pass(id=f"all-of-{request}", write=WriteMatch(op=op, request=request))


def _is_reached(hold: Arming, request: str) -> bool:
    """Whether a request that is served without a fault comes to this gate; the news of streams comes in turn."""
    match = hold.match
    if match is None or match.request != request or match.attempt not in (None, 1):
        return False
    return hold.message is None or (hold.message.type in ON_THE_WAY and hold.message.stream is None)

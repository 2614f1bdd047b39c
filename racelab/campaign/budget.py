"""How many faults a policy that keeps pages back can take before its queue starves: computed, and played.

A write that outlasts every timer costs a policy that does not reuse its page the page. Nothing is lost from the books
(conservation counts it), and nobody is hurt; but with enough such writes no page is left for the next request. That
one then waits until its own time-out ends it: finality holds under a budget of faults only in the sense that
every request ends, and the budget is the number of faults up to which the next one is served.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from racelab.assembly import Order, Workbench
from racelab.evidence.history import History
from racelab.scenario import Request, Scenario
from racelab.scenario.steps import Advance, Await, Hold, Step, Submit, WriteMatch

KEPT_BACK = ("DRAINING", "QUARANTINED")
HOLDS_MAX = 16
"""As many holds of writes as a gate has lanes for."""
NEXT = "next"


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Under `policy` each fault keeps `per_fault` of `pool` pages back, so that a request of `needs` pages is served
    after `faults` of them. `served` and `starved` say whether that was so after as many, and after one more; `specs`
    are those of the latter run, in which the next request ends after `within_ms` of waiting."""

    policy: str
    pool: int
    per_fault: int
    needs: int
    faults: int
    served: bool
    starved: bool
    within_ms: int
    specs: dict[str, str]

    @property
    def in_words(self) -> str:
        """Two sentences for people."""
        after = "is served" if self.served else "is NOT served, other than computed,"
        more = "waits until its own time-out ends it" if self.starved else "is served all the same, other than computed"
        said = "; ".join(f"{spec} {self.specs.get(spec, 'unknown')}" for spec in ("finality", "conservation"))
        return (
            f"{self.policy}: each such write costs {self.per_fault} of decode's {self.pool} pages. After {self.faults} "
            f"a request of {self.needs} page(s) {after}; after {self.faults + 1} it {more} ({self.within_ms:,} ms): "
            f"{said}"
        )


def budget(bench: Workbench, scenario: Scenario, policy: str, history: History, seed: int) -> Budget | None:
    """The budget of a policy under a counterexample of which `history` is its run, played at both sides of its edge.

    None where it keeps no page of decode back, where a request waits without an end, or the pool is too large.
    """
    rest = next((event for event in history.by_kind["quiesced"] if event.instance == "decode"), None)
    held = next((step for step in scenario.steps if isinstance(step, Hold) and step.write is not None), None)
    within_ms = scenario.lab.request_timeout_ms
    if rest is None or held is None or held.write is None or within_ms is None:
        return None
    per_fault = sum(rest.data["states"].get(state, 0) for state in KEPT_BACK)
    lost = scenario.requests.get(held.write.request or "")
    if not per_fault or lost is None or scenario.lab.transfer != "push":
        return None
    pool, needs = int(rest.data["pool"]), _pages(lost, scenario)
    faults = max(pool - needs, 0) // per_fault
    if faults + 1 > HOLDS_MAX:
        return None
    served = bench.play(Order(exhausting(scenario, lost, held.count, faults, starves=False), policy, seed=seed))
    starved = bench.play(Order(exhausting(scenario, lost, held.count, faults + 1, starves=True), policy, seed=seed))
    return Budget(
        policy=policy,
        pool=pool,
        per_fault=per_fault,
        needs=needs,
        faults=faults,
        served=_ends(served.history, "finished"),
        starved=_ends(starved.history, "timed-out") and not _ends(starved.history, "admitted"),
        within_ms=within_ms,
        specs=dict(starved.verdict.specs),
    )


def exhausting(scenario: Scenario, lost: Request, writes: int, faults: int, *, starves: bool) -> Scenario:
    """So many requests whose writes outlast every timer, and then one more, which is served or `starves`."""
    names = [f"lost-{number}" for number in range(1, faults + 1)]
    return msgspec.structs.replace(
        scenario,
        scenario=f"{scenario.scenario}, {faults} times",
        spec=None,
        guard=None,
        victim=None,
        expected={},
        requests=dict.fromkeys([*names, NEXT], lost),
        steps=list(_steps(scenario, names, writes, starves)),
    )


def _steps(scenario: Scenario, names: list[str], writes: int, starves: bool) -> Iterator[Step]:
    patience_ms = scenario.lab.request_timeout_ms
    assert patience_ms is not None
    for name in names:
        yield Hold(id=f"w-{name}", write=WriteMatch(request=name), count=writes)
        yield Submit(request=name)
        yield Await(event="held", hold=f"w-{name}")
    yield Advance(ms=patience_ms)
    yield Advance(ms=2 * scenario.lab.drain_timeout_ms)
    yield Submit(request=NEXT)
    if starves:
        yield Await(event="queued", request=NEXT)
        yield Advance(ms=patience_ms)
        yield Await(event="timed-out", request=NEXT)
    else:
        yield Await(event="finished", request=NEXT)


def _pages(request: Request, scenario: Scenario) -> int:
    return -(-(request.prompt_tokens + request.new_tokens) // scenario.lab.page_tokens)


def _ends(history: History, kind: str) -> bool:
    return any(event.request == NEXT for event in history.by_kind[kind])

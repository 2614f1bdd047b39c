"""Conservation: every page is accounted for, and none returns to FREE while somebody may still reach it.

docs/specifications.md states the rule. Judged are every transition of every page, the stop
evidence behind every return to FREE, the source pages that the writer's transport still reads,
and the sums and leftovers of every instance at rest.
"""

from __future__ import annotations

from collections import Counter

from checkers.granted_writes import GrantedWrites
from checkers.ledger_view import Ledger
from checkers.lives import Grant, Life
from checkers.ordinary.glance import held
from checkers.stop_evidence import Claims
from racelab.evidence.deaths import Deaths
from racelab.evidence.events import PAGE_STATES, STATE_AFTER, Event
from racelab.evidence.gaps import gaps
from racelab.evidence.history import History
from racelab.evidence.naming import attempt_name, numbers, when_ms
from racelab.evidence.result import Finding, SpecResult, concluded
from racelab.evidence.writes import Write

SPEC = "conservation"


def check(history: History) -> SpecResult:
    """Judge conservation."""
    return held(history, SPEC) or rules(history)


def rules(history: History) -> SpecResult:
    """Judge it by the full rules, whatever the history is."""
    judge = _Judge(history)
    judge.transitions()
    judge.returns()
    judge.sources()
    judge.rest()
    return concluded(SPEC, judge.findings, judge.coverage, judge.doubts, judge.coverage["transitions"])


class _Judge:
    def __init__(self, history: History) -> None:
        self.history = history
        self.ledger = history.derived(Ledger)
        self.findings: list[Finding] = []
        self.gaps = gaps(history, SPEC)
        moves = sum(len(history.by_kind[kind]) for kind in STATE_AFTER)
        deaths = history.derived(Deaths)
        self.doubts = self.gaps + deaths.doubts
        self.coverage = {"transitions": moves, "returns": 0, "grants": 0, "sources": 0, "instances_at_rest": 0}

        if deaths:
            self.coverage["pools_gone_by_death"] = len(deaths)

    def transitions(self) -> None:
        """The state machine's own rules: fresh generations, no double free, no way out of quarantine."""
        for fault in self.ledger.faults:
            note = self.absent if fault.may_lack else self.found
            note(fault.event, fault.what, fault.life)

    def returns(self) -> None:
        """Every page-free has stop evidence for every grant before it, and the evidence is true."""
        claims = self.history.derived(Claims)
        for life in self.ledger:
            self.coverage["grants"] += len(life.grants)
            if life.ended is None or life.ended.kind != "page-free":
                continue
            self.coverage["returns"] += 1
            for grant in life.grants:
                if grant.closed is None or grant.closed.seq > life.ended.seq:
                    self.absent(life.ended, _without_evidence(life, grant), life, grant)
                    continue
                claim = claims.judge(life, grant)
                if claim.false:
                    self.found(grant.closed, claim.false, life, grant)
                elif claim.doubt:
                    self.doubts.append(claim.doubt)

    def sources(self) -> None:
        """A source page that was never granted to the NIC stays until its writes have succeeded all the same."""
        granted = self.history.derived(GrantedWrites)
        for life in self.ledger:
            writes = granted.by_nic(life)
            self.coverage["sources"] += bool(writes)
            if life.ended is None or life.ended.kind != "page-free" or life.grants:
                continue
            for write in writes:
                if not write.succeeded or write.completed is None or write.completed.seq > life.ended.seq:
                    what = f"source page {life.page} gen {life.gen} becomes FREE under write {write.id}"
                    self.absent(life.ended, what, life, write=write)

    def rest(self) -> None:
        """At quiescence every page is in one state, and no request, grant, timer or write is left."""
        for instance in sorted({instance for instance, _ in self.ledger.pages} - self.ledger.pools.keys()):
            self.doubts.append(f"{instance} has pages and never reported its pool")
        last = {event.instance: event for event in self.history.by_kind["quiesced"]}
        for instance, pool in self.ledger.pools.items():
            event = last.get(instance)
            if event is None:
                self.doubts.append(f"{instance} never reported itself at rest")
                continue
            self.coverage["instances_at_rest"] += 1
            states = event.data["states"]
            total = sum(states.values())
            if total != pool.data["pages"]:
                self.found(
                    event,
                    f"{instance} at rest accounts for {total} pages ({_sum(states)}) of a pool of {pool.data['pages']}",
                )
            seen = self._states_seen(instance, int(pool.data["pages"]))
            for state in PAGE_STATES:
                if states.get(state, 0) != seen[state]:
                    self.absent(
                        event,
                        f"{instance} at rest counts {states.get(state, 0)} pages {state}; "
                        f"its transitions leave {seen[state]}",
                    )
            if not event.data["leftovers"].get("requests"):
                self._orphans(event)
            for name, count in event.data["leftovers"].items():
                if count:
                    self.found(event, f"{instance} at rest has {count} {name} left")

    def _orphans(self, event: Event) -> None:
        """Pages of requests, at rest, when no request is left that could ever give them back."""
        for life in self.ledger:
            if life.instance == event.instance and life.ended is None and life.state in ("PRIVATE", "DUP"):
                what = (
                    f"page {life.page} gen {life.gen} is {life.state} of {life.owner} at rest, and no request is left"
                )
                self.absent(event, what, life)

    def _states_seen(self, instance: str, pages: int) -> Counter[str]:
        seen: Counter[str] = Counter()
        for page in range(pages):
            life = self.ledger.last(instance, page)
            seen[life.state if life is not None and life.ended is None else "FREE"] += 1
        return seen

    def absent(
        self, event: Event, what: str, life: Life | None = None, grant: Grant | None = None, write: Write | None = None
    ) -> None:
        """A finding that rests on something not being there: none while something is lost or not reported."""
        if not self.gaps:
            self.found(event, what, life, grant, write)

    def found(
        self,
        event: Event,
        what: str,
        life: Life | None = None,
        grant: Grant | None = None,
        write: Write | None = None,
    ) -> None:
        """Note a violation at `event`."""
        writer = grant.writer if grant is not None else None
        if write is not None:
            writer = attempt_name(write.posted.request, write.posted.attempt, write.posted.gen)
        shown = numbers(
            life.born if life is not None else None,
            grant.opened if grant is not None else None,
            write.posted if write is not None else None,
            event,
        )
        self.findings.append(
            Finding(
                spec=SPEC,
                grade="unaccounted",
                instance=event.instance,
                page=event.page,
                gen=event.gen,
                owner=life.owner if life is not None else None,
                writer=writer,
                when=when_ms(self.history, event),
                what=what,
                events=list(dict.fromkeys(shown)),
            )
        )


def _without_evidence(life: Life, grant: Grant) -> str:
    held = ""
    if grant.excuse is not None:
        held = f"; {grant.excuse.data['evidence']!r} is no stop evidence"
    elif grant.closed is not None:
        held = "; evidence came only later"
    return f"page {life.page} gen {life.gen} becomes FREE without stop evidence for its grant to {grant.writer}{held}"


def _sum(states: dict[str, int]) -> str:
    return " + ".join(f"{count} {state}" for state, count in states.items())

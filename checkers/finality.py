"""Finality: every request and every draining page is terminal within its bound, or shown stuck.

docs/specifications.md states the rule. Bounds are virtual time of the instance: a request has the
request and the drain time-out, a draining page the drain time-out. Once the conductor has drained
the lab, whatever is not terminal is stuck, and the finding is its wait graph.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

from checkers.ledger_view import Ledger
from checkers.lives import Life
from checkers.ordinary.glance import held
from checkers.wait_graph import WaitGraph
from racelab.evidence.deaths import Deaths
from racelab.evidence.events import TERMINAL_KINDS, Event
from racelab.evidence.gaps import gaps
from racelab.evidence.history import History
from racelab.evidence.labels import VirtualTime
from racelab.evidence.naming import attempt_name, numbers, when_ms
from racelab.evidence.result import Finding, SpecResult, concluded
from racelab.scenario import PROBE

SPEC = "finality"
AFTERWARDS = "ended only with what the conductor did for the probe request"


def check(history: History) -> SpecResult:
    """Judge finality."""
    return held(history, SPEC) or rules(history)


def rules(history: History) -> SpecResult:
    """Judge it by the full rules, whatever the history is."""
    judge = _Judge(history)
    judge.requests()
    judge.pages()
    looked_at = judge.coverage["requests"] + judge.coverage["draining_pages"]
    return concluded(SPEC, judge.findings, judge.coverage, judge.doubts, looked_at)


class _Judge:
    def __init__(self, history: History) -> None:
        self.history = history
        self.scenario = history.header.scenario
        self.drain_ms = self.scenario.lab.drain_timeout_ms
        self.drained = any(event.data["phase"] == "drain" for event in history.by_kind["phase"])
        self.graph = WaitGraph(history)
        self.findings: list[Finding] = []
        self.gaps = gaps(history, SPEC)
        self.deaths = history.derived(Deaths)
        self.doubts = self.gaps + self.deaths.doubts
        self.coverage = {"requests": 0, "draining_pages": 0}

    @cached_property
    def now(self) -> dict[str, int]:
        """Where each instance's virtual clock stands at the end."""
        return {event.instance: event.clock_ms for event in self.history.events}

    def bound_ms(self, submitted: Event) -> int:
        """When a request must be over, from its submission on."""
        if self.scenario.finality_ms is not None:
            return max(self.schedule_ms - submitted.clock_ms, 0) + self.scenario.finality_ms
        patience_ms = self.scenario.timeout_ms(submitted.request or "")
        return (self.scenario.lab.receive_timeout_ms if patience_ms is None else patience_ms) + self.drain_ms

    @cached_property
    def schedule_ms(self) -> int:
        """Where the virtual clock stands when the schedule is over and the drain begins."""
        drains = [event for event in self.history.by_kind["phase"] if event.data["phase"] == "drain"]
        return self.history.derived(VirtualTime).at(drains[0].hlc) if drains else 0

    def requests(self) -> None:
        """Exactly one terminal event each, in time, and nothing after it."""
        ends: dict[tuple[str | None, int | None], list[Event]] = defaultdict(list)
        for event in self.history.of(*TERMINAL_KINDS):
            ends[event.request, event.attempt].append(event)
        for submitted in self.history.by_kind["submitted"]:
            self.coverage["requests"] += 1
            terminal = ends.get((submitted.request, submitted.attempt), [])
            if not terminal:
                if not self._client_lost(submitted):
                    self._not_terminal(submitted)
                continue
            took = terminal[0].clock_ms - submitted.clock_ms
            bound_ms = self.bound_ms(submitted)
            if took > bound_ms:
                what = f"{_who(submitted)} ended after {took:,} ms, more than {bound_ms:,}"
                self._found(submitted, terminal[0], what)
            elif submitted.request != PROBE and self._probed(terminal[0]) and not self._probed(submitted):
                self._found(submitted, terminal[0], f"{_who(submitted)} was stuck after the drain, and {AFTERWARDS}")
            if len(terminal) > 1:
                kinds = " and ".join(event.kind for event in terminal)
                self._found(terminal[0], terminal[1], f"{_who(submitted)} ended twice: {kinds}")
        for kind in ("committed", "read"):
            for event in self.history.by_kind[kind]:
                terminal = ends.get((event.request, event.attempt), [])
                if terminal and terminal[0].instance == event.instance and terminal[0].seq < event.seq:
                    self._found(terminal[0], event, f"{_who(event)} goes on ({kind}) after it {terminal[0].kind}")

    def _probed(self, event: Event) -> bool:
        """Whether an event is of the time after the drain."""
        probes = [phase for phase in self.history.by_kind["phase"] if phase.data["phase"] == "probe"]
        return bool(probes) and event.hlc > probes[0].hlc

    def _died(self, event: Event) -> bool:
        """Whether what waits went with the process that had it: its client sees the connection end."""
        return self._counted(self.deaths.after(event) is not None)

    def _counted(self, died: bool) -> bool:
        if died:
            self.coverage["ended_by_death"] = self.coverage.get("ended_by_death", 0) + 1
        return died

    def _client_lost(self, submitted: Event) -> bool:
        """Whether a request went with the process that its client was with: the one that took it last.

        A client whose reference nobody took found its next process dead, or that died before it looked.
        """
        serving = self._serving(submitted)
        if serving is submitted and self._of(submitted, "referenced"):
            return self._counted(self.deaths.of_another(submitted.instance))
        return self._died(serving)

    def _serving(self, submitted: Event) -> Event:
        """Where the client of a request was last: where it sent it, or took it with the reference that it got."""
        return (self._of(submitted, "forwarded") or [submitted])[-1]

    def _of(self, submitted: Event, kind: str) -> list[Event]:
        attempt = (submitted.request, submitted.attempt)
        return [event for event in self.history.by_kind[kind] if (event.request, event.attempt) == attempt]

    def _not_terminal(self, submitted: Event) -> None:
        serving = self._serving(submitted)
        waited = self.now[serving.instance] - submitted.clock_ms
        graph = self.graph.of_request(serving)
        bound_ms = self.bound_ms(submitted)
        if waited > bound_ms:
            what = f"{_who(submitted)} is not over after {waited:,} ms, more than {bound_ms:,}: {graph}"
        elif self.drained:
            what = f"{_who(submitted)} is stuck after the drain: {graph}"
        else:
            self.doubts.append(f"{_who(submitted)} was not over when the run stopped, before its bound")
            return
        self._absent(submitted, None, what)

    def pages(self) -> None:
        """Every draining page becomes FREE or QUARANTINED in time."""
        ledger = self.history.derived(Ledger)
        ends = {
            (event.instance, event.page, event.gen): event
            for kind in ("page-free", "page-quarantined")
            for event in self.history.by_kind[kind]
        }
        for draining in self.history.by_kind["page-draining"]:
            self.coverage["draining_pages"] += 1
            end = ends.get((draining.instance, draining.page, draining.gen))
            life = ledger.life(draining.instance, draining.page, draining.gen)
            until = end.clock_ms if end is not None else self.now[draining.instance]
            took = until - draining.clock_ms
            if end is None and self._died(draining):
                continue
            page = f"page {draining.page} gen {draining.gen} of {_who(draining)}"
            if took > self.drain_ms:
                how = "drained for" if end is not None else "has been draining for"
                note = self._found if end is not None else self._absent
                note(draining, end, f"{page} {how} {took:,} ms, more than {self.drain_ms:,}", life)
            elif end is None and self.drained:
                self._absent(draining, None, f"{page} is stuck draining: {self.graph.of_page(life)}", life)
            elif end is None:
                self.doubts.append(f"{page} was still draining when the run stopped, before its bound")

    def _absent(self, first: Event, then: Event | None, what: str, life: Life | None = None) -> None:
        if not self.gaps:
            self._found(first, then, what, life)

    def _found(self, first: Event, then: Event | None, what: str, life: Life | None = None) -> None:
        self.findings.append(
            Finding(
                spec=SPEC,
                grade="stuck",
                instance=first.instance,
                page=first.page,
                gen=first.gen,
                owner=life.owner if life is not None else _who(first),
                when=when_ms(self.history, then or first),
                what=what,
                events=numbers(first, then),
            )
        )


def _who(event: Event) -> str:
    return attempt_name(event.request, event.attempt)

"""Ordinary histories: those in which every single thing is plainly right, as nearly all of serving is.

One pass over the file, in which each event is forgotten at once. It never says that something is wrong: at
the first thing that it does not know, or that the rules in docs/specifications.md would have to think about
(a gate lost a write or its writer heard too early, a write failed, two attempts at once, an event missing or out of
order), it gives up, and the full rules judge the history. Where it does not give up, the four specifications held,
with the coverage that the rules would state; tests/quality holds it to that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from checkers.ordinary import events as seen
from checkers.ordinary.pages import Extraordinary, Pages
from checkers.ordinary.requests import Requests
from racelab.evidence import collector
from racelab.evidence.events import PAGE_STATES
from racelab.evidence.history import History
from racelab.evidence.result import SpecResult

Coverage = dict[str, dict[str, int]]
"""By specification."""


def held(history: History, spec: str) -> SpecResult | None:
    """What the full rules would answer, if the history is an ordinary one; else None."""
    coverage = history.derived(look)
    return SpecResult(spec=spec, outcome="held", coverage=coverage[spec]) if coverage is not None else None


def look(history: History) -> Coverage | None:
    """The coverage of each specification; None if a history is not ordinary, or in no file."""
    if history.lines is None or history.header.scenario.finality_ms is not None or history.header.unreported:
        return None
    glance = Glance(history)
    try:
        with collector.paused():
            for records in history.lines.decoded(seen.DECODER):
                glance.take(records)
        return glance.coverage()
    except (Extraordinary, msgspec.DecodeError):
        return None


class Glance:
    """Sees each event once, in the order of the file."""

    def __init__(self, history: History) -> None:
        scenario = history.header.scenario
        self._heard: dict[str, dict[str, int]] = defaultdict(dict)
        self._following: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self._reading = -1
        self._rest: dict[str, seen.RestData] = {}
        self.pages = Pages(self._heard, scenario.lab.drain_timeout_ms)
        self.requests = Requests(self.pages, scenario)
        self._handlers = self._handled()

    def _handled(self) -> dict[type, Callable[[Any], None]]:
        pages, requests = self.pages, self.requests
        return {
            seen.Pool: pages.pool,
            seen.Region: pages.memory.region,
            seen.Private: pages.private,
            seen.Shared: pages.share,
            seen.Dup: pages.share,
            seen.Draining: pages.drain,
            seen.Quarantined: pages.quarantine,
            seen.Free: pages.free,
            seen.Dropped: pages.dropped,
            seen.Posted: pages.post,
            seen.Completed: pages.complete,
            seen.Sent: pages.acknowledge,
            seen.Granted: self._granted,
            seen.Closed: requests.close,
            seen.Hit: requests.hit,
            seen.Phase: requests.phase,
            seen.Submitted: requests.submit,
            seen.Finished: requests.finish,
            seen.Committed: requests.commit,
            seen.Published: requests.publish,
            seen.Read: requests.read,
            seen.Received: requests.receive,
            seen.Ignored: requests.current,
            seen.AttemptEnded: requests.ended,
            seen.Admitted: self._holds,
            seen.Accepted: self._holds,
            seen.Refused: self._refused,
            seen.Counted: self._counted,
            seen.Quiesced: self._quiesced,
            seen.TimedOut: requests.end,
            seen.Aborted: requests.end,
            seen.Failed: requests.end,
            seen.Held: pages.gated,
            seen.Released: pages.gated,
            seen.Landed: pages.gated,
        }

    def take(self, records: list[seen.Record]) -> None:
        """Take some events: numbered without a gap, each later than the last, after all that its process had heard."""
        following, handle, reading = self._following, self._handlers.get, self._reading
        for record in records:
            instance, seq, hlc = record.instance, record.seq, record.hlc
            if hlc <= reading:
                raise Extraordinary
            if following.get(instance) != seq:
                self._begin(instance, seq)
            reading = hlc
            following[instance] = seq + 1
            if record.after:
                self._hear(record)
            handler = handle(record.__class__)
            if handler is not None:
                handler(record)
        self._reading = reading

    def _begin(self, instance: str, seq: int) -> None:
        """The first event of an instance: others may have heard of what it did before the run, and of nothing later."""
        if instance in self._following or seq <= self._before.get(instance, 0):
            raise Extraordinary

    def _hear(self, record: seen.Record) -> None:
        heard = self._heard[record.instance]
        for other, known in (record.after or {}).items():
            following = self._following.get(other)
            if following is None:
                self._before[other] = max(known, self._before.get(other, 0))
            elif known >= following:
                raise Extraordinary
            if known > heard.get(other, 0):
                heard[other] = known

    def _granted(self, event: seen.Granted) -> None:
        self.pages.grant(event)
        self.requests.get(event)

    def _holds(self, event: seen.Admitted | seen.Accepted) -> None:
        self.requests.current(event)
        self.pages.holds(event)

    def _refused(self, event: seen.Refused) -> None:
        self.requests.current(event)
        self.pages.refused(event)

    def _counted(self, event: seen.Counted) -> None:
        if event.data.counts.get("unannounced"):
            raise Extraordinary

    def _quiesced(self, event: seen.Quiesced) -> None:
        self._rest[event.instance] = event.data

    # -- at the end

    def coverage(self) -> Coverage:
        """What the rules would have looked at.

        Raises:
            Extraordinary: something is not over, or was never looked at.
        """
        if any(since is not None for since in self.requests.submitted.values()):
            raise Extraordinary
        if self.pages.at_gates or any(page.state == "DRAINING" for page in self.pages.pages.values()):
            raise Extraordinary
        for instance, pool in self.pages.pools.items():
            self._check_rest(instance, pool)
        coverage = self._coverage()
        looked_at = (
            coverage["isolation"]["writes"],
            coverage["integrity"]["fingerprints_compared"],
            coverage["finality"]["requests"] + coverage["finality"]["draining_pages"],
            coverage["conservation"]["transitions"],
        )
        if not all(looked_at):
            raise Extraordinary
        return coverage

    def _check_rest(self, instance: str, pool: seen.PoolData) -> None:
        """Its books agree with what was seen, and nothing is left."""
        rest = self._rest.get(instance)
        if rest is None or any(rest.leftovers.values()):
            raise Extraordinary
        states = Counter({"FREE": pool.pages})
        for (whose, number), page in self.pages.pages.items():
            if whose == instance and number is not None and number < pool.pages:
                states.subtract(("FREE",))
                states[page.state] += 1
        if sum(rest.states.values()) != pool.pages:
            raise Extraordinary
        if any(rest.states.get(state, 0) != states[state] for state in PAGE_STATES):
            raise Extraordinary

    def _coverage(self) -> Coverage:
        pages, requests = self.pages, self.requests
        return {
            "isolation": {
                "writes": len(pages.writes),
                "messages": requests.messages,
                "generations": pages.generations,
            },
            "integrity": {
                "fingerprints_compared": requests.compared,
                "mismatches": 0,
                "commits": requests.commits,
                "reads": requests.reads,
                "hits": requests.hits,
            },
            "finality": {"requests": len(requests.submitted), "draining_pages": pages.draining},
            "conservation": {
                "transitions": pages.generations + pages.moves + pages.returns,
                "returns": pages.returns,
                "grants": pages.grants,
                "sources": pages.sources,
                "instances_at_rest": len(pages.pools),
            },
        }

"""What an instance does to its own memory, in the order in which it was asked for: as on a GPU's stream.

    forward      compute keys and values (prefill: of a chunk, or of a layer of it; decode: of one token of everybody)
    zero-fill    clear pages that a request has just been given
    register     make a transfer known to whoever takes its news (decode: in a queue of its own)

A transfer does not wait for a stream: a NIC writes and reads past it. So whoever lets a peer at memory
while work on it is still queued has a race. A hold stops one piece of work at the head of its stream and
with it everything behind, as a long kernel in front would. On a CPU that is simulated: nothing is
queued as long as no hold wants anything, and `add` then is a call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from racelab.evidence.recorder import Recorder
from racelab.scenario.steps import WorkMatch
from racelab.transport.rules import Rules

Evidence = Callable[[], dict[str, Any]]


def _nothing() -> dict[str, Any]:
    return {}


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of local work, as holds match it."""

    on: str
    op: str
    request: str | None = None
    attempt: int | None = None
    chunk: int | None = None
    layer: int | None = None


@dataclass
class _Item:
    """Work that waits: `hold` while it may not start, `what` it is called."""

    work: Work
    run: Callable[[], None]
    pages: frozenset[int]
    left_behind: Evidence
    what: str
    hold: str | None
    held: bool = field(init=False)

    def __post_init__(self) -> None:
        self.held = self.hold is not None


class LocalWork:
    """The stream of one instance. Single-threaded, as the engine is."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._rules: Rules[Work] = Rules(WorkMatch)
        self._queue: deque[_Item] = deque()
        self._count = 0

    # -- the engine's side

    def add(
        self,
        op: str,
        run: Callable[[], None],
        *,
        of: Sequence[tuple[str, int]],
        chunk: int | None = None,
        layer: int | None = None,
        pages: Iterable[int] = (),
        left_behind: Evidence = _nothing,
    ) -> None:
        """Queue work for some requests and attempts: it runs at once unless a hold stops it, or something before it.

        `left_behind` is asked once work that had to wait has run: what is to be recorded of its result.
        """
        if not self._queue and not self._rules:
            run()
            return
        work, hold = self._chosen(op, of, chunk, layer)
        if hold is None and not self._queue:
            run()
            return
        self._count += 1
        what = f"{op}-{self._recorder.incarnation}-{self._count}"
        item = _Item(work, run, frozenset(pages), left_behind, what, hold)
        self._queue.append(item)
        if item.held:
            self._record("work-held", item)

    def _chosen(
        self, op: str, of: Sequence[tuple[str, int]], chunk: int | None, layer: int | None
    ) -> tuple[Work, str | None]:
        """The work under the name of the first request for which a hold wants it, and that hold."""
        about: dict[str, Any] = {"on": self._recorder.instance, "op": op, "chunk": chunk, "layer": layer}
        works = [Work(request=request, attempt=attempt, **about) for request, attempt in of]
        for work in works:
            hold = self._rules.choose(work)
            if hold is not None:
                return work, hold
        return works[0], None

    def behind(self, run: Callable[[], None]) -> None:
        """Run this once everything that is queued has run: as after an event on the stream."""
        if self._queue:
            work = Work(on=self._recorder.instance, op="")
            self._queue.append(_Item(work, run, frozenset(), _nothing, "", None))
        else:
            run()

    @property
    def stopped(self) -> bool:
        """Whether anything waits."""
        return bool(self._queue)

    @property
    def waiting(self) -> int:
        """Pieces of work that have not run."""
        return sum(item.what != "" for item in self._queue)

    def queued(self, op: str, pages: Iterable[int]) -> int:
        """How much work of a kind is still to be done on any of these pages."""
        if not self._queue:
            return 0
        wanted = set(pages)
        return sum(item.work.op == op and not item.pages.isdisjoint(wanted) for item in self._queue)

    # -- the conductor's side

    def arm(self, hold: str, match: Mapping[str, Any], count: int) -> None:
        """From now on the next `count` pieces of work that agree with `match` stop under `hold`."""
        self._rules.arm(hold, match, count)
        self._recorder.record("armed", hold=hold, gate="stream", match=dict(match), count=count)

    def release(self, hold: str) -> str | None:
        """What the hold stopped may start. Returns the hold that still stands before it, if one does."""
        self._rules.disarm(hold)
        for item in self._queue:
            item.held = item.held and item.hold != hold
        self._go_on()
        waits = any(item.hold == hold for item in self._queue)
        return self._queue[0].hold if waits else None

    def _go_on(self) -> None:
        while self._queue and not self._queue[0].held:
            item = self._queue.popleft()
            if item.hold is not None:
                self._record("work-released", item)
            item.run()
            if item.what:
                self._record("work-done", item, **item.left_behind())

    def _record(self, kind: str, item: _Item, **data: Any) -> None:
        work = item.work
        about = {key: value for key, value in (("chunk", work.chunk), ("layer", work.layer)) if value is not None}
        self._recorder.record(
            kind, work.request, work.attempt, hold=item.hold, what=item.what, op=work.op, **about, **data
        )

"""The requests of an ordinary history: what each may read and has read, and that each comes to its end."""

from __future__ import annotations

import msgspec

from checkers.ordinary import events as seen
from checkers.ordinary.pages import Extraordinary, Page, Pages, Reader
from racelab.scenario import PROBE, Scenario

Where = tuple[str, str | None, int | None]
"""Instance, request, attempt."""


class Attempt(msgspec.Struct, eq=False, gc=False):
    """What one attempt has on one instance, and what it last was seen to read, page by page."""

    granted: dict[tuple[int | None, int | None], int] = {}
    rows: list[seen.Row] = []
    pages: list[Page] = []
    committed: list[seen.Row] | None = None
    read: list[seen.Row] | None = None


OVER = Attempt()
"""Stands for every attempt that came to its end."""


class Requests:
    """Counts what was looked at."""

    def __init__(self, pages: Pages, scenario: Scenario) -> None:
        self.compared = self.commits = self.reads = self.hits = self.messages = 0
        self.submitted: dict[Reader, int | None] = {}
        self._pages = pages
        self._scenario = scenario
        self._attempts: dict[Where, Attempt] = {}
        self._current: dict[tuple[str, str | None], int] = {}
        self._over: set[tuple[str, str | None]] = set()
        self._home: dict[Reader, str] = {}

    # -- from submission to the end

    def submit(self, event: seen.Submitted) -> None:
        """Once for each attempt."""
        reader = (event.request, event.attempt)
        if reader in self.submitted:
            raise Extraordinary
        self.submitted[reader] = event.clock_ms

    def phase(self, event: seen.Phase) -> None:
        """When the probe is sent, whatever came before it is over."""
        if event.data.phase == "probe":
            waiting = [reader for reader, since in self.submitted.items() if since is not None and reader[0] != PROBE]
            if waiting:
                raise Extraordinary

    def end(self, event: seen.Record) -> None:
        """Once and in time."""
        self.current(event)
        self._over.add((event.instance, event.request))
        reader = (event.request, event.attempt)
        since = self.submitted.get(reader)
        if since is None or event.clock_ms - since > self._bound_ms(event.request or ""):
            raise Extraordinary
        self.submitted[reader] = None
        where = (event.instance, *reader)
        if where in self._attempts:
            self._attempts[where] = OVER

    def _bound_ms(self, request: str) -> int:
        lab, patience_ms = self._scenario.lab, self._scenario.timeout_ms(request)
        return (lab.receive_timeout_ms if patience_ms is None else patience_ms) + lab.drain_timeout_ms

    def finish(self, event: seen.Finished) -> None:
        """When all that it was granted or found was seen to be committed, and to be read."""
        attempt = self._attempts.get((event.instance, event.request, event.attempt))
        self.end(event)
        if attempt is None or attempt.committed is None or attempt.read is None:
            raise Extraordinary
        layers = range(self._pages.pools[event.instance].layers)
        self._check_complete(attempt, attempt.committed, layers)
        if attempt.read != attempt.committed:
            self._check_complete(attempt, attempt.read, layers)

    @staticmethod
    def _check_complete(attempt: Attempt, rows: list[seen.Row], layers: range) -> None:
        """Each layer of what it was granted or found, from its first byte to its last, is among the rows."""
        taken = {(number, gen, layer, end) for number, gen, layer, start, end, _ in rows if not start}
        for (page, gen), size in attempt.granted.items():
            for layer in layers:
                if size and (page, gen, layer, size) not in taken:
                    raise Extraordinary

    def get(self, event: seen.Granted | seen.Hit) -> None:
        """A page that the attempt has to read before it finishes."""
        where = (event.instance, event.request, event.attempt)
        attempt = self._attempts.get(where)
        if attempt is None:
            attempt = self._attempts[where] = Attempt()
        if attempt is OVER:
            raise Extraordinary
        attempt.granted[event.page, event.gen] = event.data.bytes

    # -- what it reads

    def consume(self, event: seen.Rows) -> Attempt:
        """Each range is readable by its reader, and equals what was written for it, which has arrived."""
        reader, rows = (event.request, event.attempt), event.data.fingerprints
        attempt = self._attempts.get((event.instance, *reader))
        if attempt is None or attempt is OVER or self._home.setdefault(reader, event.instance) != event.instance:
            raise Extraordinary
        if rows != attempt.rows:
            attempt.pages = self._compare(event.instance, reader, rows)
            attempt.rows = rows
        for page in attempt.pages:
            if not page.readable(reader):
                raise Extraordinary
        self.compared += len(rows)
        return attempt

    def _compare(self, instance: str, reader: Reader, rows: list[seen.Row]) -> list[Page]:
        pages: list[Page] = []
        heard = self._pages.heard[instance].get
        before: int | None = None
        for number, gen, layer, start, end, fingerprint in rows:
            if number != before:
                page = self._pages.pages.get((instance, number))
                if page is None:
                    raise Extraordinary
                pages.append(page)
                before, content = number, page.content.get
            if page is None or page.gen != gen:
                raise Extraordinary
            written = content((layer, start, end))
            if written is None or written.fingerprint != fingerprint:
                raise Extraordinary
            known = written.done if written.instance == instance else heard(written.instance, 0)
            if not 0 < written.done <= known:
                raise Extraordinary
        return pages

    def commit(self, event: seen.Committed) -> None:
        """Decode takes the KV as complete."""
        attempt = self.consume(event)
        self._by(event, event.data.by)
        self.commits += 1
        if attempt.committed is None:
            attempt.committed = attempt.rows

    def read(self, event: seen.Read) -> None:
        """Attention reads it."""
        attempt = self.consume(event)
        self.reads += 1
        if attempt.read is None:
            attempt.read = attempt.rows

    def publish(self, event: seen.Published) -> None:
        """Each page under one key."""
        self.consume(event)
        for number, gen, key in event.data.keys:
            page = self._pages.pages.get((event.instance, number))
            if page is None or page.gen != gen or page.key not in (None, key):
                raise Extraordinary
            page.key = key

    def hit(self, event: seen.Hit) -> None:
        """A page that is found in place of a transfer."""
        self._pages.hit(event)
        self.get(event)
        self.hits += 1

    # -- what it is told

    def current(self, event: seen.Record) -> None:
        """An instance is told of one attempt of a request after the other, each over before the next."""
        whose = (event.instance, event.request)
        attempt = event.attempt if event.attempt is not None else -1
        current = self._current.setdefault(whose, attempt)
        if current != attempt:
            if attempt < current or whose not in self._over:
                raise Extraordinary
            self._over.remove(whose)
            self._current[whose] = attempt

    def ended(self, event: seen.AttemptEnded) -> None:
        """The attempt that there is, and no other."""
        whose = (event.instance, event.request)
        if self._current.get(whose) != event.attempt:
            raise Extraordinary
        self._over.add(whose)
        self._by(event, event.data.by)

    def receive(self, event: seen.Received) -> None:
        """Nothing of another attempt is closed by it."""
        attempt = event.attempt
        if attempt is None or self._current.get((event.instance, event.request)) != attempt:
            self.current(event)
        self._by(event, event.data.id)
        self.messages += 1

    def _by(self, event: seen.Record, message: str | None) -> None:
        """Nothing is done because of a message to another attempt, by its sender or whoever names it first."""
        if message is None:
            return
        whose = self._pages.sent.get(message) or self._pages.unsent[message].setdefault(event.instance, event)
        if whose.request != event.request or whose.attempt != event.attempt:
            raise Extraordinary

    def close(self, event: seen.Closed) -> None:
        """By a message of the same attempt, if by a message."""
        self._by(event, event.data.by)
        self._pages.close(event, (event.request, event.attempt))

"""The prefix cache: full pages of prompts, found by what they hold.

A page's content key is a hash chain over whole pages of tokens, so it stands for the page's tokens,
their positions and everything before them. The cache knows which page is published under a key;
what that means for the page (references, states, eviction) is the ledger's business.
"""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

from racelab.engine.guards import Guards, PublishPages, Ticket
from racelab.engine.ledger import Ledger
from racelab.engine.pool import PagePool
from racelab.evidence.recorder import Recorder


def content_keys(tokens: Sequence[int], page_tokens: int) -> list[str]:
    """The key of every full page of `tokens`: 32 hex digits each."""
    keys: list[str] = []
    chain = b"racelab-kv-float32/1"
    for end in range(page_tokens, len(tokens) + 1, page_tokens):
        chain = xxhash.xxh3_128_digest(
            chain + b"".join(token.to_bytes(4, "little") for token in tokens[end - page_tokens : end])
        )
        keys.append(chain.hex())
    return keys


class PrefixCache:
    """One decode instance's cache. Without keys to look for or to publish it does nothing."""

    def __init__(self, ledger: Ledger, guards: Guards, recorder: Recorder, pool: PagePool) -> None:
        self._ledger = ledger
        self._guards = guards
        self._recorder = recorder
        self._pool = pool
        self._published: dict[str, Ticket] = {}
        self._keys: dict[int, str] = {}

    # -- taking pages

    def take(self, keys: Sequence[str], pages: int, request: str, attempt: int) -> tuple[list[Ticket], int] | None:
        """`pages` tickets for a request, and how many of them, at the front, hold its content already.

        The others are FREE pages under fresh generations; SHARED pages that nobody reads are evicted
        for them, the longest unread first. None if there is not enough room.
        """
        found = self._find(keys)
        fresh = pages - len(found)
        spare = len(self._ledger.unread) - sum(ticket.page in self._ledger.unread for ticket in found)
        if len(self._ledger.free) + spare < fresh:
            return None
        size = self._pool.page_bytes
        hits = [
            self._ledger.join(ticket, request, attempt, key, size) for key, ticket in zip(keys, found, strict=False)
        ]
        while len(self._ledger.free) < fresh and self._ledger.unread:
            self._evict(next(iter(self._ledger.unread)))
        taken = self._ledger.take(fresh, request, attempt)
        if taken is None:  # what was evicted drains
            for ticket in reversed(hits):
                self._ledger.release(ticket, "no room")
            return None
        return hits + taken, len(hits)

    def _find(self, keys: Sequence[str]) -> list[Ticket]:
        """The published pages of the longest known prefix."""
        found = []
        for key in keys:
            ticket = self._published.get(key)
            if ticket is None:
                break
            found.append(ticket)
        return found

    def _evict(self, page: int) -> None:
        self._published.pop(self._keys.pop(page, ""), None)  # without guards a page may have been lost before
        self._ledger.evict(page)

    # -- publishing

    def publish(self, tickets: Sequence[Ticket], keys: Sequence[str], *, committed: bool) -> None:
        """Let others find these pages of one attempt; what is SHARED or DUP already stays as it is."""
        pages = zip(tickets, keys, strict=False)
        fresh = [(ticket, key) for ticket, key in pages if not self._ledger.is_shared(ticket)]
        if not fresh:
            return
        about = (fresh[0][0].request, fresh[0][0].attempt)
        if self._guards.refuse(PublishPages(*about, None, None, "page-shared", committed=committed)):
            return
        self._record(about, [(ticket, key) for ticket, key in fresh if key not in self._published])
        for ticket, key in fresh:
            of = self._published.get(key)
            if of is not None:
                self._ledger.duplicate(ticket, key, of)
            else:
                self._published[key] = ticket
                self._keys[ticket.page] = key
                self._ledger.share(ticket, key)

    def _record(self, about: tuple[str, int], new: list[tuple[Ticket, str]]) -> None:
        if new:
            tickets = [ticket for ticket, _ in new]
            seen = self._pool.fingerprints(tickets, len(new) * self._pool.page_tokens)
            keys = [[ticket.page, ticket.gen, key] for ticket, key in new]
            self._recorder.record("published", *about, keys=keys, fingerprints=seen)

    # -- giving pages back

    def release(self, tickets: Sequence[Ticket], why: str) -> None:
        """A request is done with its pages: shared ones from the back, so that no eviction cuts a
        prefix short while pages behind it stay; then the others as they were taken."""
        shared = [ticket for ticket in tickets if self._ledger.is_shared(ticket)]
        for ticket in reversed(shared):
            self._ledger.release(ticket, why)
        for ticket in tickets:
            if ticket not in shared:
                self._ledger.release(ticket, why)

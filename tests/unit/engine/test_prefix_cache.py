"""The prefix cache: what is found under a key, what is evicted for whom, and when pages are published."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from racelab.engine.clock import VirtualClock
from racelab.engine.guards import GUARDS, Ticket
from racelab.engine.guards import guarded as guarded_by
from racelab.engine.ledger import Ledger
from racelab.engine.pool import PagePool
from racelab.engine.prefix_cache import PrefixCache, content_keys
from racelab.engine.prompts import prompt
from racelab.evidence.events import Event
from racelab.evidence.recorder import Recorder

PAGE_TOKENS = 4
PAGES = 6


class Cached:
    """A decode side's books of six pages, with a cache."""

    def __init__(self, guards: Sequence[str] = tuple(GUARDS)) -> None:
        self.recorder = Recorder("decode")
        asked = guarded_by(guards, self.recorder)
        self.ledger = Ledger(PAGES, self.recorder, asked, VirtualClock(), 100, lambda: None)
        self.cache = PrefixCache(self.ledger, asked, self.recorder, PagePool(PAGES, 1, PAGE_TOKENS))

    def serve(self, name: str, keys: Sequence[str], pages: int) -> list[Ticket]:
        """A request from its pages to its commit; its tickets."""
        taken = self.cache.take(keys, pages, name, 1)
        assert taken is not None
        self.cache.publish(taken[0], keys, committed=True)
        return taken[0]

    def events(self, kind: str) -> list[Event]:
        return [event for event in self.recorder.drain() if event.kind == kind]


@pytest.fixture
def cached() -> Cached:
    return Cached()


def keys_of(salt: str, tokens: int, prefix_tokens: int = 0) -> list[str]:
    return content_keys(prompt(salt, tokens, 0, "p" if prefix_tokens else None, prefix_tokens), PAGE_TOKENS)


def test_a_key_stands_for_everything_before_it() -> None:
    a, b = keys_of("a", 12, 8), keys_of("b", 12, 8)
    assert a[:2] == b[:2]
    assert a[2] != b[2]
    assert len(set(a)) == 3
    assert len(keys_of("a", 11)) == 2
    # the same tokens at another place are other content
    assert len(set(content_keys([1, 2, 3, 4] * 3, PAGE_TOKENS))) == 3


def test_the_longest_known_prefix_is_taken_and_the_rest_is_fresh(cached: Cached) -> None:
    first = cached.serve("a", keys_of("a", 12, 8), 3)
    taken = cached.cache.take(keys_of("b", 12, 8), 3, "b", 1)
    assert taken is not None
    tickets, hits = taken
    assert hits == 2
    assert [ticket.page for ticket in tickets[:2]] == [ticket.page for ticket in first[:2]]
    assert tickets[2].page not in {ticket.page for ticket in first}
    assert [event.data["references"] for event in cached.events("cache-hit")] == [2, 2]


def test_content_that_is_there_already_is_a_duplicate(cached: Cached) -> None:
    keys = keys_of("a", 8)
    first, second = cached.cache.take(keys, 2, "a", 1), cached.cache.take(keys, 2, "b", 1)
    assert first is not None
    assert second is not None
    cached.cache.publish(first[0], keys, committed=True)
    cached.cache.publish(second[0], keys, committed=True)
    assert cached.ledger.counts() == {"SHARED": 2, "DUP": 2, "FREE": 2}
    cached.cache.release(second[0], "finished")
    assert cached.ledger.counts() == {"SHARED": 2, "FREE": 4}


def test_single_pages_make_room_the_back_of_the_longest_unread_first(cached: Cached) -> None:
    old, new = keys_of("a", 8), keys_of("b", 8)
    for name, keys in (("a", old), ("b", new)):
        cached.cache.release(cached.serve(name, keys, 2), "finished")
    assert cached.ledger.counts() == {"SHARED": 4, "FREE": 2}
    assert cached.cache.take([], 3, "c", 1) is not None
    assert len(cached.events("page-free")) == 1
    assert [hits for _, hits in [cached.cache.take(old, 2, "d", 1) or ([], 0)]] == [1]


def test_pages_that_somebody_reads_are_never_evicted(cached: Cached) -> None:
    keys = keys_of("a", 16)
    tickets = cached.serve("a", keys, 4)
    assert cached.cache.take([], 3, "b", 1) is None
    cached.cache.release(tickets, "finished")
    assert cached.cache.take([], 3, "b", 1) is not None


def test_hits_are_not_evicted_for_the_request_that_takes_them(cached: Cached) -> None:
    keys = keys_of("a", 24)
    cached.cache.release(cached.serve("a", keys, 6), "finished")
    taken = cached.cache.take(keys_of("a", 16), 6, "b", 1)
    assert taken is not None
    assert taken[1] == 4
    assert cached.ledger.counts() == {"SHARED": 4, "PRIVATE": 2, "FREE": 0}


def test_too_little_room_changes_nothing(cached: Cached) -> None:
    keys = keys_of("a", 8)
    cached.serve("a", keys, 2)
    cached.recorder.drain()
    assert cached.cache.take(keys, 7, "b", 1) is None
    assert cached.recorder.drain() == []


def test_before_the_commit_the_guard_refuses_and_without_it_the_pages_can_be_found() -> None:
    keys = keys_of("a", 8)
    for guards, found in ((tuple(GUARDS), 0), (tuple(set(GUARDS) - {"publish-after-commit"}), 2)):
        cached = Cached(guards)
        taken = cached.cache.take(keys, 2, "a", 1)
        assert taken is not None
        cached.cache.publish(taken[0], keys, committed=False)
        other = cached.cache.take(keys, 2, "b", 1)
        assert other is not None
        assert other[1] == found
        assert bool(cached.events("refused")) == (found == 0)


def test_what_is_published_is_fingerprinted_page_by_page(cached: Cached) -> None:
    keys = keys_of("a", 8)
    tickets = cached.serve("a", keys, 2)
    (event,) = cached.events("published")
    assert event.data["keys"] == [[ticket.page, ticket.gen, key] for ticket, key in zip(tickets, keys, strict=True)]
    assert [row[:2] for row in event.data["fingerprints"]] == [[ticket.page, ticket.gen] for ticket in tickets]

"""The ledger's books: LIFO, generations, drains, and what each guard changes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from racelab.engine.clock import VirtualClock
from racelab.engine.guards import GUARDS, Guards, Ticket
from racelab.engine.ledger import Ledger
from racelab.evidence.recorder import Recorder

DRAIN_MS = 100


class Books:
    """A ledger of four pages with its clock and its record."""

    def __init__(self, guards: Iterable[str]) -> None:
        self.recorder = Recorder("decode")
        self.clock = VirtualClock()
        self.expired = 0
        guarded = Guards(guards, self.recorder)
        self.ledger = Ledger(4, self.recorder, guarded, self.clock, DRAIN_MS, self._note)

    def _note(self) -> None:
        self.expired += 1

    def take_granted(self, request: str) -> Ticket:
        tickets = self.ledger.take(1, request, 1)
        assert tickets is not None
        self.ledger.grant(tickets[0], "prefill", 64)
        return tickets[0]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.recorder.drain()]


@pytest.fixture
def guarded() -> Books:
    return Books(GUARDS)


@pytest.fixture
def eager() -> Books:
    return Books(())


def test_what_was_freed_last_is_taken_first_under_a_fresh_generation(guarded: Books) -> None:
    first = guarded.ledger.take(2, "r1", 1)
    assert first is not None
    guarded.ledger.release(first[0], "finished")
    again = guarded.ledger.take(1, "r2", 1)
    assert again == [Ticket(first[0].page, first[0].gen + 1, "r2", 1)]


def test_too_few_pages_take_none(guarded: Books) -> None:
    assert guarded.ledger.take(5, "r1", 1) is None
    assert guarded.ledger.counts() == {"FREE": 4}


def test_a_granted_page_drains_and_evidence_frees_it(guarded: Books) -> None:
    ticket = guarded.take_granted("r1")
    guarded.ledger.release(ticket, "timed-out")
    assert guarded.ledger.counts() == {"FREE": 3, "DRAINING": 1}
    guarded.ledger.close(ticket, "completions", "m1")
    assert guarded.ledger.counts() == {"FREE": 4}
    assert guarded.kinds()[-4:] == ["refused", "page-draining", "grant-closed", "page-free"]


def test_an_expired_drain_quarantines_for_good(guarded: Books) -> None:
    ticket = guarded.take_granted("r1")
    guarded.ledger.release(ticket, "timed-out")
    guarded.clock.advance(DRAIN_MS)
    assert guarded.ledger.counts() == {"FREE": 3, "QUARANTINED": 1}
    assert guarded.expired == 1
    guarded.ledger.close(ticket, "completions", "m1")
    assert guarded.ledger.counts() == {"FREE": 3, "QUARANTINED": 1}


def test_evidence_in_time_stops_the_drain_clock(guarded: Books) -> None:
    ticket = guarded.take_granted("r1")
    guarded.ledger.release(ticket, "timed-out")
    guarded.ledger.close(ticket, "completions", "m1")
    guarded.take_granted("r2")
    guarded.clock.advance(DRAIN_MS)
    assert guarded.ledger.counts() == {"FREE": 3, "PRIVATE": 1}


def test_without_quarantine_an_expired_drain_frees(guarded: Books) -> None:
    books = Books(set(GUARDS) - {"quarantine-on-expiry"})
    ticket = books.take_granted("r1")
    books.ledger.release(ticket, "timed-out")
    books.clock.advance(DRAIN_MS)
    assert books.ledger.counts() == {"FREE": 4}


def test_eager_frees_under_a_writer(eager: Books) -> None:
    ticket = eager.take_granted("r1")
    eager.ledger.release(ticket, "timed-out")
    assert eager.ledger.counts() == {"FREE": 4}
    assert "refused" not in eager.kinds()


def test_a_second_release_is_refused_by_the_generation_and_a_double_free_without_it(
    guarded: Books, eager: Books
) -> None:
    for books, free in ((guarded, 4), (eager, 5)):
        tickets = books.ledger.take(1, "r1", 1)
        assert tickets is not None
        books.ledger.release(tickets[0], "finished")
        books.ledger.release(tickets[0], "aborted")
        assert books.ledger.counts() == {"FREE": free}


def test_a_stale_ticket_does_not_free_the_next_owners_page(guarded: Books) -> None:
    old = guarded.ledger.take(1, "r1", 1)
    assert old is not None
    guarded.ledger.release(old[0], "finished")
    new = guarded.ledger.take(1, "r2", 1)
    assert new is not None
    assert new[0].page == old[0].page
    guarded.ledger.release(old[0], "finished")
    assert guarded.ledger.state[new[0].page] == "PRIVATE"
    refusal = next(event for event in guarded.recorder.drain() if event.kind == "refused")
    assert refusal.data["guard"] == "control-carries-generation"
    assert refusal.data["refuses"] == "page-free"
    assert (refusal.request, refusal.gen) == ("r1", old[0].gen)

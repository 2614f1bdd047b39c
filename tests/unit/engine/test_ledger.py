"""The ledger's books: LIFO, generations, drains, and what each guard changes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from racelab.engine.clock import VirtualClock
from racelab.engine.guards import GUARDS, Ticket
from racelab.engine.guards import guarded as guarded_by
from racelab.engine.ledger import Ledger
from racelab.evidence.recorder import Recorder

DRAIN_MS = 100


class Books:
    """A ledger of four pages with its clock and its record."""

    def __init__(self, guards: Iterable[str]) -> None:
        self.recorder = Recorder("decode")
        self.clock = VirtualClock()
        self.expired = 0
        asked = guarded_by(guards, self.recorder)
        self.ledger = Ledger(4, self.recorder, asked, self.clock, DRAIN_MS, self._note)

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


def violations(books: Books) -> list[tuple[str, str]]:
    events = [event for event in books.recorder.drain() if event.kind == "ledger-violation"]
    return [(event.data["transition"], event.data["rule"]) for event in events]


def test_a_shared_page_lives_as_long_as_its_references_and_then_until_it_is_evicted(guarded: Books) -> None:
    ledger = guarded.ledger
    owner = ledger.take(1, "r1", 1)
    assert owner is not None
    ledger.share(owner[0], "k")
    reader = ledger.join(owner[0], "r2", 1, "k", 64)
    ledger.release(owner[0], "finished")
    assert (ledger.counts(), ledger.referenced, ledger.unread) == ({"FREE": 3, "SHARED": 1}, 1, {})
    ledger.release(reader, "finished")
    assert (ledger.counts(), ledger.referenced) == ({"FREE": 3, "SHARED": 1}, 0)
    ledger.evict(owner[0].page)
    assert ledger.counts() == {"FREE": 4}
    assert violations(guarded) == []


def test_a_duplicate_goes_with_its_owner(guarded: Books) -> None:
    ledger = guarded.ledger
    first, second = ledger.take(1, "r1", 1), ledger.take(1, "r2", 1)
    assert first is not None
    assert second is not None
    ledger.share(first[0], "k")
    ledger.duplicate(second[0], "k", first[0])
    assert ledger.counts() == {"FREE": 2, "SHARED": 1, "DUP": 1}
    ledger.release(second[0], "finished")
    assert ledger.counts() == {"FREE": 3, "SHARED": 1}
    freed = [event for event in guarded.recorder.drain() if event.kind == "page-free"]
    assert [event.data["from"] for event in freed] == ["DUP"]


def test_an_eviction_under_a_writer_drains(guarded: Books) -> None:
    ticket = guarded.take_granted("r1")
    guarded.ledger.share(ticket, "k")
    guarded.ledger.release(ticket, "timed-out")
    guarded.ledger.evict(ticket.page)
    assert guarded.ledger.counts() == {"FREE": 3, "DRAINING": 1}


def test_what_a_transition_needs_is_looked_at_and_said(guarded: Books) -> None:
    ledger = guarded.ledger
    granted = guarded.take_granted("r1")
    ledger.share(granted, "k")
    ledger.release(granted._replace(request="r9"), "finished")
    ledger.close(granted._replace(gen=granted.gen + 1), "completions", "m1")
    ledger.free.append(granted.page)
    ledger.take(1, "r2", 1)
    assert violations(guarded) == [
        ("publish", "a grant is outstanding: it is not complete"),
        ("drop", "it holds no reference"),
        ("close", "nothing was granted under this generation"),
        ("take", "only a FREE page is taken, this one is SHARED"),
    ]


def test_a_violation_names_who_asked(guarded: Books) -> None:
    guarded.ledger.close(Ticket(0, 1, "r1", 1), "completions", "m1")
    (event,) = (event for event in guarded.recorder.drain() if event.kind == "ledger-violation")
    assert event.data["caller"] == "test_a_violation_names_who_asked (test_ledger.py)"
    assert (event.request, event.attempt, event.page, event.gen) == ("r1", 1, 0, 1)


def test_a_second_proof_of_a_closed_grant_is_no_violation(guarded: Books) -> None:
    ticket = guarded.take_granted("r1")
    guarded.ledger.close(ticket, "completions", "m1")
    guarded.ledger.close(ticket, "acknowledged", "m2")
    assert violations(guarded) == []


def test_eager_frees_under_a_writer_and_the_ledger_says_so(eager: Books) -> None:
    eager.ledger.release(eager.take_granted("r1"), "timed-out")
    assert violations(eager) == [("free", "a grant is outstanding")]

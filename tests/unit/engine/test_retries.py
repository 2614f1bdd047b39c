"""A router's retry on another prefill: into the same pages, or, with the guard, anew; and rooms that are another's."""

from __future__ import annotations

from duet import Duet

from checkers import conservation, finality, integrity, isolation
from racelab.engine.guards import GUARDS
from racelab.evidence.history import History
from racelab.scenario import Lab, Request

OWN = "retry-takes-other-pages"


def retried(*without: str) -> History:
    """r1 goes to another prefill while the writes of the first are under way."""
    guards = [name for name in GUARDS if name not in without]
    duet = Duet({"r1": Request(prompt_tokens=25)}, Lab(prefills=2), guards)
    duet.wire.held = True
    duet.submit("r1")
    duet.play(until=lambda event: event.kind == "posted")
    duet.decode.retry("r1", "prefill-2")
    duet.play()
    return duet.history()


def test_the_retry_begins_anew_in_other_pages() -> None:
    history = retried()
    first, second = history.by_kind["admitted"]
    assert (first.attempt, second.attempt) == (1, 2)
    assert not {page for page, _ in first.data["tickets"]} & {page for page, _ in second.data["tickets"]}
    refusal = next(event for event in history.by_kind["refused"] if event.data["guard"] == OWN)
    assert (refusal.data["refuses"], refusal.attempt) == ("retried", 1)
    ends = {(event.attempt, event.kind) for event in history.of("finished", "failed")}
    assert ends == {(1, "failed"), (2, "finished")}
    for checker in (isolation, integrity, finality, conservation):
        assert checker.check(history).outcome == "held"


def test_without_its_guard_the_pages_have_two_writers_and_go_back_under_one_of_them() -> None:
    history = retried(OWN)
    (moved,) = history.by_kind["retried"]
    assert (moved.data["before"], moved.data["to"]) == ("prefill", "prefill-2")
    writers = {event.data["to"] for event in history.by_kind["granted"] if event.instance == "decode"}
    assert writers == {"prefill", "prefill-2"}
    assert [event.kind for event in history.of("finished", "failed")] == ["finished"]
    judged = conservation.check(history)
    assert judged.outcome == "violated"
    assert all("it is the word of prefill-2, and prefill may write" in finding.what for finding in judged.findings)


def test_a_retry_of_what_waits_for_pages_changes_who_will_fill_them() -> None:
    duet = Duet({"r1": Request(prompt_tokens=60), "r2": Request(prompt_tokens=60)}, Lab(prefills=2))
    duet.wire.held = True
    duet.submit("r1", "r2")
    duet.play()
    duet.decode.retry("r2", "prefill-2")
    history = duet.history()
    assert {event.request: event.instance for event in history.by_kind["posted"]} == {
        "r1": "prefill",
        "r2": "prefill-2",
    }
    assert not [event for event in history.by_kind["refused"] if event.data["guard"] == OWN]


def test_a_retry_of_what_has_ended_changes_nothing() -> None:
    duet = Duet({"r1": Request()}, Lab(prefills=2))
    duet.submit("r1")
    duet.play()
    duet.decode.retry("r1", "prefill-2")
    assert not duet.history().by_kind["retried"]


def test_the_abort_of_an_attempt_that_got_no_room_leaves_who_is_in_it_alone() -> None:
    """Found with two decodes: prefill turned the second attempt down, and took its abort for the first one's."""
    duet = Duet({"r1": Request(prompt_tokens=13), "r2": Request(prompt_tokens=13)}, Lab())
    duet.transfers = {"r1": "7"}
    duet.wire.held = True
    duet.submit("r1")
    duet.play()
    other = duet.decode
    other._transfers.clear()  # what another decode would know
    duet.transfers = {"r2": "7"}
    duet.submit("r2")
    duet.play()
    ended = [(event.instance, event.request) for event in duet.events if event.kind in ("attempt-ended", "failed")]
    assert ended == [("decode", "r2")]
    acks = [event for event in duet.events if event.kind == "sent" and event.data["type"] == "abort-ack"]
    assert [(event.request, event.data["clean"]) for event in acks] == [("r2", True)]

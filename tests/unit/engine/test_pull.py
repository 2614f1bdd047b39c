"""Pulled transfers: references, claims, leases, and what each guard of them stops."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from duet import Duet

from racelab.engine.guards import GUARDS
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.result import SpecResult
from racelab.registry import checkers
from racelab.scenario import Lab, Request

PULL = Lab(transfer="pull")


def duet(guards: Iterable[str] = tuple(GUARDS), lab: Lab = PULL, **requests: Request) -> Duet:
    return Duet(requests or {name: Request() for name in ("r1", "r2", "r3")}, lab, guards)


def kinds(made: Duet, request: str, instance: str) -> list[str]:
    return [event.kind for event in made.events if (event.request, event.instance) == (request, instance)]


def of(made: Duet, kind: str, request: str) -> list[Event]:
    return [event for event in made.events if (event.kind, event.request) == (kind, request)]


def judged(history: History) -> dict[str, SpecResult]:
    return {spec: check(history) for spec, check in checkers().items()}


def outcomes(history: History) -> dict[str, str]:
    return {spec: result.outcome for spec, result in judged(history).items()}


ALL_HELD = dict.fromkeys(("conservation", "finality", "integrity", "isolation"), "held")


@pytest.mark.parametrize("guards", [tuple(GUARDS), ()])
def test_a_pulled_request_answers_what_a_pushed_one_does(guards: tuple[str, ...]) -> None:
    answers = []
    for lab in (PULL, Lab()):
        made = duet(guards, lab)
        made.submit("r1", "r2")
        made.play()
        answers.append([of(made, "finished", name)[0].data["tokens"] for name in ("r1", "r2")])
        assert outcomes(made.history()) == ALL_HELD
    assert answers[0] == answers[1]


def test_with_a_prefix_cache_the_rest_alone_is_read_and_all_of_it_is_given_back() -> None:
    request = Request(prompt_tokens=40, prefix="system", prefix_tokens=32)
    made = duet(lab=Lab(transfer="pull", prefix_cache=True), r1=request, r2=request)
    made.submit("r1")
    made.play()
    made.submit("r2")
    made.play()
    assert len({event.page for event in of(made, "posted", "r2")}) == 1
    assert outcomes(made.history()) == ALL_HELD


def test_the_source_stays_until_it_is_acknowledged() -> None:
    made = duet()
    made.reads.held = True
    made.submit("r1")
    made.play()
    assert made.prefill.ledger.counts()["PRIVATE"] == 2
    assert "attempt-ended" not in kinds(made, "r1", "prefill")
    made.reads.held = False
    made.play()
    assert made.prefill.ledger.counts() == {"FREE": 8}
    assert [event.data["evidence"] for event in of(made, "grant-closed", "r1")] == ["completions"] * 2 + [
        "acknowledged"
    ] * 2


def test_a_waiting_reader_renews_the_lease_and_without_the_guard_it_lapses() -> None:
    for guards, lapses in ((tuple(GUARDS), 0), (tuple(set(GUARDS) - {"renew-lease"}), 1)):
        made = duet(guards)
        made.reads.held = True
        made.submit("r1")
        made.play()
        made.pass_time(9_000)
        assert len(of(made, "lease-expired", "r1")) == lapses
        assert made.prefill.ledger.counts().get("DRAINING", 0) == 2 * lapses


def test_pages_whose_lease_ended_before_any_claim_are_free_and_the_claim_is_stale() -> None:
    made = duet()
    made.submit("r1")
    made.play(until=lambda event: event.kind == "referenced")
    made.clock.advance(5_000)
    assert made.prefill.ledger.counts() == {"FREE": 8}
    made.play()
    assert of(made, "failed", "r1")[0].data["why"] == "the reference is stale"
    made.submit("r2")
    made.play()
    assert outcomes(made.history()) == ALL_HELD


@pytest.mark.parametrize(("taken", "reads"), [("", 0), ("reference-names-generation", 2)])
def test_an_old_reference_is_honoured_only_without_its_guard(taken: str, reads: int) -> None:
    made = duet(set(GUARDS) - {taken}, **dict.fromkeys(("r1", "r2", "r3"), Request(prompt_tokens=13)))
    made.submit("r1")
    made.play()
    made.submit("r2")
    made.play()
    made.present("r3", "r1")
    made.play()
    assert len(of(made, "posted", "r3")) == reads
    found = judged(made.history())
    if not reads:
        assert {spec: result.outcome for spec, result in found.items()} == ALL_HELD
        return
    assert [each.grade for each in found["isolation"].findings] == ["consumed"] * 2
    assert "was never granted to it" in found["isolation"].findings[0].what
    assert "these are the bytes of r2 attempt 1" in found["integrity"].findings[0].what


def test_a_live_reference_of_somebody_else_is_not_honoured() -> None:
    made = duet()
    made.submit("r1")
    made.play(until=lambda event: event.kind == "referenced")
    made.present("r3", "r1")
    made.play()
    assert [event.data["why"] for event in of(made, "refused", "r3")] == ["the reference was made for r1 attempt 1"]
    assert [event.data["why"] for event in of(made, "failed", "r3")] == ["the reference is stale"]
    assert of(made, "finished", "r1")
    assert outcomes(made.history()) == ALL_HELD


@pytest.mark.parametrize("guards", [tuple(GUARDS), ("renew-lease", "tell-peer-of-end")])
def test_a_reader_that_aborts_drains_its_pages_and_then_gives_the_source_back(guards: tuple[str, ...]) -> None:
    made = duet(guards)
    made.reads.held = True
    made.submit("r1")
    made.play()
    made.decode.abort("r1")
    made.play()
    drains = "drain-before-free" in guards
    assert made.decode.ledger.counts().get("DRAINING", 0) == 2 * drains
    assert made.prefill.ledger.counts()["PRIVATE"] == 2
    made.reads.held = False
    made.play()
    assert made.prefill.ledger.counts() == {"FREE": 8}
    # no gate orders the landing against the end, so without the drain nobody can tell
    assert outcomes(made.history())["isolation"] == ("held" if drains else "unknown")


def test_a_request_that_ends_while_it_queues_gives_the_source_back() -> None:
    made = duet(lab=Lab(transfer="pull", decode_pages=2))
    made.reads.held = True
    made.submit("r1", "r2")
    made.play()
    made.decode.abort("r2")
    made.play()
    assert [event.data["type"] for event in of(made, "sent", "r2")][-1] == "release-source"
    assert made.prefill.ledger.counts()["PRIVATE"] == 2
    assert outcomes(made.history()) == ALL_HELD


def test_a_client_can_give_up_while_prefill_has_no_pages() -> None:
    made = duet(lab=Lab(transfer="pull", prefill_pages=2))
    made.reads.held = True
    made.submit("r1", "r2", "r3")
    made.play()
    made.prefill.abort("r2")
    made.pass_time(10_000)
    made.submit("r1")
    made.reads.held = False
    made.play()
    assert kinds(made, "r2", "prefill")[-2:] == ["aborted", "attempt-ended"]
    assert "timed-out" in kinds(made, "r3", "prefill")
    assert outcomes(made.history()) == ALL_HELD


def test_an_abort_that_has_no_effect_says_so_and_why() -> None:
    made = duet()
    made.prefill.abort("r1")
    made.submit("r1")
    made.play()
    made.prefill.abort("r1")
    made.decode.abort("r1")
    made.decode.abort("r3")
    ignored = [(event.instance, event.attempt, event.data["why"]) for event in of(made, "abort-ignored", "r1")]
    assert ignored == [
        ("prefill", None, "no such request here"),
        ("prefill", 1, "it is over here"),
        ("decode", 1, "it is over here"),
    ]
    assert of(made, "abort-ignored", "r3")[0].data["why"] == "no such request here"
    assert outcomes(made.history()) == ALL_HELD


def test_a_client_that_has_its_reference_cannot_give_up_at_prefill() -> None:
    made = duet()
    made.reads.held = True
    made.submit("r1")
    made.play()
    made.prefill.abort("r1")
    assert of(made, "abort-ignored", "r1")[0].data["why"] == "its client has the reference: it is for decode to end it"
    made.reads.held = False
    made.play()
    assert "finished" in kinds(made, "r1", "decode")


def test_an_acknowledgement_that_ends_a_drain_lets_the_next_request_in_although_its_attempt_was_over() -> None:
    lab = Lab(transfer="pull", prefill_pages=2, request_timeout_ms=None)
    made = duet(set(GUARDS) - {"renew-lease"}, lab)
    made.reads.held = True
    made.submit("r1")
    made.play()
    made.pass_time(5_000)
    made.submit("r2")
    made.play()
    assert of(made, "lease-expired", "r1")
    assert kinds(made, "r2", "prefill")[-1] == "queued"
    made.reads.held = False
    made.play()
    assert of(made, "finished", "r2")
    assert made.prefill.ledger.counts() == {"FREE": 2}


@pytest.mark.parametrize("ranks", [2, 4])
def test_each_rank_reads_its_own_share_and_the_answer_is_the_same(ranks: int) -> None:
    answers = []
    for lab in (Lab(transfer="pull", ranks=ranks), Lab(ranks=ranks)):
        made = duet(lab=lab)
        made.submit("r1", "r2")
        made.play()
        answers.append([of(made, "finished", name)[0].data["tokens"] for name in ("r1", "r2")])
        assert outcomes(made.history()) == ALL_HELD
    assert answers[0] == answers[1]


@pytest.mark.parametrize("guarded", [True, False])
def test_one_ranks_failed_read_says_nothing_of_the_others(guarded: bool) -> None:
    guards = [name for name in GUARDS if guarded or name != "every-handle-stopped"]
    made = duet(guards, Lab(transfer="pull", ranks=2), r1=Request(prompt_tokens=13))
    made.reads.fails = lambda read: read.identity.rank == 0
    made.submit("r1")
    made.play()
    closed = [event.data["evidence"] for event in of(made, "grant-closed", "r1") if event.instance == "decode"]
    assert ("failure-report" in closed) != guarded
    assert of(made, "failed", "r1")


@pytest.mark.parametrize("guarded", [True, False])
def test_a_prompt_one_token_over_the_limit_is_a_reference_to_less(guarded: bool) -> None:
    guards = [name for name in GUARDS if guarded or name != "lengths-agree"]
    requests = {"at": Request(prompt_tokens=39), "over": Request(prompt_tokens=40)}
    made = duet(guards, Lab(transfer="pull", prefill_token_limit=39), **requests)
    made.submit("at", "over")
    made.play()
    assert of(made, "finished", "at")
    refused = [event for event in of(made, "refused", "over") if event.data["guard"] == "lengths-agree"]
    assert bool(refused) == guarded
    assert bool(of(made, "committed", "over")) != guarded
    history = made.history()
    assert outcomes(history)["integrity"] == ("held" if guarded else "violated")
    assert outcomes(history)["conservation"] == "held"

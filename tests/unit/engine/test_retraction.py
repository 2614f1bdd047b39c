"""Retraction: pages go back for others, whatever is under way, and the request waits for pages again."""

from __future__ import annotations

import pytest
from duet import Duet

from checkers import conservation, finality, integrity, isolation
from racelab.engine.guards import GUARDS
from racelab.evidence.events import Event
from racelab.scenario import Lab, Request
from racelab.verdict import judge

CHECKERS = {module.SPEC: module.check for module in (isolation, integrity, finality, conservation)}
OWN = "retraction-renews-attempt"
ONE = Lab(decode_pages=1)


def duet(lab: Lab = ONE, guards: set[str] | None = None) -> Duet:
    asked = {name: Request(prompt_tokens=13, new_tokens=3) for name in ("r1", "r2")}
    return Duet(asked, lab, set(GUARDS) if guards is None else guards)


def of(duet: Duet, kind: str) -> list[Event]:
    return [event for event in duet.events if event.kind == kind]


def alone(name: str) -> list[int]:
    made = duet()
    made.submit(name)
    made.play()
    tokens: list[int] = of(made, "finished")[0].data["tokens"]
    return tokens


@pytest.mark.parametrize("lab", [ONE, Lab(decode_pages=1, metadata_slots=1), Lab(decode_pages=1, prefix_cache=True)])
@pytest.mark.parametrize("when", ["posted", "committed", "read"])
def test_whoever_waits_is_served_first_and_both_answer_right(lab: Lab, when: str) -> None:
    made = duet(lab)
    made.submit("r1", "r2")
    made.play(until=lambda event: event.kind == when and event.request == "r1")
    assert made.decode.retract("r1")
    made.play()
    assert [event.data["again"] for event in of(made, "retracted")] == [2]
    answers = {(event.request, event.attempt): event.data["tokens"] for event in of(made, "finished")}
    assert list(answers) == [("r2", 1), ("r1", 2)]
    assert answers == {("r2", 1): alone("r2"), ("r1", 2): alone("r1")}
    history = made.history()
    assert {spec: check(history).outcome for spec, check in CHECKERS.items()} == dict.fromkeys(CHECKERS, "held")


def test_a_write_that_is_under_way_keeps_the_page() -> None:
    made = duet()
    made.submit("r1", "r2")
    made.wire.held = True
    made.play(until=lambda event: event.kind == "posted" and event.request == "r1")
    made.play()
    assert made.decode.retract("r1")
    made.play()
    assert made.decode.ledger.counts() == {"DRAINING": 1, "FREE": 0}
    made.wire.held = False
    made.play()
    assert [(event.request, event.attempt) for event in of(made, "finished")] == [("r2", 1), ("r1", 2)]
    history = made.history()
    assert {spec: check(history).outcome for spec, check in CHECKERS.items()} == dict.fromkeys(CHECKERS, "held")


def test_its_client_waits_no_longer_for_that() -> None:
    made = duet()
    made.submit("r1")
    made.wire.held = True
    made.play()
    made.pass_time(6000)
    assert made.decode.retract("r1")
    made.pass_time(3999)
    assert of(made, "timed-out") == []
    made.pass_time(1)
    assert [(event.attempt, event.data["waited_ms"]) for event in of(made, "timed-out")] == [(2, 10_000)]


def test_only_who_has_pages_can_give_them_back() -> None:
    made = duet()
    made.submit("r1", "r2")
    assert not made.decode.retract("r2"), "it waits"
    made.play()
    assert not made.decode.retract("r1"), "it has ended"


def test_without_an_attempt_of_its_own_the_old_news_counts() -> None:
    made = duet(guards=set())
    made.submit("r1", "r2")
    late = []
    made.lose = lambda message: (
        message.type == "written" and message.request == "r1" and not late and late.append(message) is None
    )
    made.play(until=lambda event: event.kind == "admitted" and event.request == "r1")
    made.play()
    assert made.decode.retract("r1")
    made.play()
    assert [event.data["again"] for event in of(made, "requeued")] == [1]
    assert len([event for event in of(made, "admitted") if event.request == "r1"]) == 2
    made.decode.on_message(late[0])
    made.play()
    verdict = judge(made.history(), CHECKERS)
    assert any(
        "which was never written for it" in found.what for found in verdict.evidence if found.spec == "integrity"
    )
    assert of(made, "finished")[-1].data["tokens"] != alone("r1")


@pytest.mark.parametrize("kind", ["written", "abort-ack"])
def test_news_of_an_ended_attempt_frees_its_pages_while_the_next_one_waits(kind: str) -> None:
    made = duet()
    made.submit("r1")
    made.wire.held = True
    made.play()
    made.lose = lambda message: message.type in {"written", "abort-ack"} - {kind}
    made.decode.abort("r1")
    made.submit("r1")
    made.wire.held = False
    made.play()
    assert [(event.request, event.attempt) for event in of(made, "admitted")] == [("r1", 1), ("r1", 2)]
    assert of(made, "grant-closed")[-1].data["evidence"] in ("completions", "acknowledged")

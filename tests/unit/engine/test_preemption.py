"""Preemption for lack of pages, and batches of a size: each boundary to the token, and the race that it opens."""

from __future__ import annotations

import pytest
from duet import Duet

from checkers import conservation, finality, integrity, isolation
from racelab.engine.guards import GUARDS
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.scenario import Lab, Request

ON_DEMAND = Lab(decode_pages=4, preemption=True)
LONG = Request(prompt_tokens=33, new_tokens=20)  # 3 pages, a 4th from its token 16 on
SHORT = Request(prompt_tokens=9, new_tokens=6)  # 1 page to its end


def played(*requests: str, lab: Lab = ON_DEMAND) -> History:
    duet = Duet({"long": LONG, "short": SHORT}, lab)
    duet.submit(*requests)
    duet.play()
    return duet.history()


def answers(history: History) -> dict[str | None, list[int]]:
    return {event.request: event.data["tokens"] for event in history.by_kind["finished"]}


def test_a_page_is_taken_by_the_token_that_needs_it() -> None:
    for prompt, token in ((31, 2), (32, 1), (33, 16)):
        duet = Duet({"r": Request(prompt_tokens=prompt, new_tokens=17)}, ON_DEMAND)
        duet.submit("r")
        duet.play()
        grown = duet.history().by_kind["grown"]
        assert grown[0].data["token"] == token
        (admitted,) = [event for event in duet.events if event.kind == "admitted"]
        assert len(admitted.data["tickets"]) == -(-prompt // 16)


def test_the_youngest_is_preempted_goes_on_where_it_was_and_answers_as_alone() -> None:
    """`short` is served beside `long` until that needs a fourth page; then it comes again with what it has said."""
    alone = {name: answers(played(name))[name] for name in ("long", "short")}
    longer = Request(prompt_tokens=9, new_tokens=23)  # 1 page until its token 8
    duet = Duet({"long": LONG, "short": longer}, ON_DEMAND)
    duet.submit("long", "short")
    duet.play()
    history = duet.history()
    (gone,) = history.by_kind["preempted"]
    assert (gone.request, gone.attempt, gone.data["needed_by"]) == ("short", 1, "short")  # its own 9th token found none
    again = [event for event in history.by_kind["submitted"] if event.request == "short"][1]
    assert again.data["prompt_tokens"] == 9 + gone.data["answered"]
    assert again.data["new_tokens"] == 23 - gone.data["answered"]
    assert answers(history)["long"] == alone["long"]
    assert answers(history)["short"][:6] == alone["short"]
    solo = Duet({"short": longer}, ON_DEMAND)
    solo.submit("short")
    solo.play()
    assert answers(history)["short"] == answers(solo.history())["short"]
    for checker in (isolation, integrity, finality, conservation):
        assert checker.check(history).outcome == "held", checker.check(history).findings


def test_an_older_request_takes_the_pages_of_a_younger_one() -> None:
    small = Request(prompt_tokens=9, new_tokens=60)
    lab = Lab(decode_pages=5, preemption=True)
    duet = Duet({"long": LONG, "short": small}, lab)
    duet.submit("long", "short")
    duet.play()
    history = duet.history()
    taken = [(event.request, event.data["needed_by"]) for event in history.by_kind["preempted"]]
    assert ("short", "long") in taken or ("short", "short") in taken
    assert set(answers(history)) == {"long", "short"}
    assert conservation.check(history).outcome == "held"


def preempted_in_transfer(*without: str) -> tuple[Duet, list[Event]]:
    """`short`'s bytes are under way when `long` needs a page."""
    guards = [name for name in GUARDS if name not in without]
    duet = Duet({"long": LONG, "short": SHORT}, ON_DEMAND, guards)
    duet.submit("long")
    duet.play(until=lambda event: event.kind == "committed")
    duet.wire.held = True
    duet.submit("short")
    duet.play()
    return duet, [event for event in duet.events if event.kind == "grown"]


def test_a_page_with_a_write_in_flight_is_not_given_to_whoever_preempts() -> None:
    duet, grown = preempted_in_transfer()
    assert not grown
    history = duet.history()
    assert [event.request for event in history.by_kind["page-draining"] if event.instance == "decode"] == ["short"]
    assert set(answers(history)) == {"long", "short"}
    for checker in (isolation, integrity, finality, conservation):
        assert checker.check(history).outcome == "held", checker.check(history).findings


def test_without_the_drain_it_is() -> None:
    duet, grown = preempted_in_transfer("drain-before-free", "ack-when-drained")
    assert [event.request for event in grown] == ["long"]
    judged = conservation.check(duet.history())
    assert judged.outcome == "violated"
    assert any("without stop evidence for its grant to short" in finding.what for finding in judged.findings)


@pytest.mark.parametrize("size", [1, 2])
def test_a_batch_has_room_for_so_many_and_the_next_joins_when_one_has_left(size: int) -> None:
    requests = {name: Request(prompt_tokens=9, new_tokens=count) for name, count in (("a", 3), ("b", 5), ("c", 2))}
    duet = Duet(requests, Lab(max_batch=size))
    duet.submit(*requests)
    duet.play()
    history = duet.history()
    joined = {event.request: event.data for event in history.by_kind["batched"]}
    assert max(data["size"] for data in joined.values()) == size
    before, tokens = ("b", 5) if size == 1 else ("a", 3)  # whose last token makes room for c
    assert joined["c"]["step"] == joined[before]["step"] + tokens
    assert set(answers(history)) == set(requests)
    assert finality.check(history).outcome == "held"


def test_who_comes_while_a_step_is_under_way_is_in_the_next_one() -> None:
    """The batch of the first step is closed when that is asked for, however long it takes to begin."""
    steps = {}
    for closed, kind in ((False, "committed"), (True, "batched")):
        duet = Duet({"a": SHORT, "b": SHORT}, Lab(max_batch=2))
        duet.submit("a")
        duet.play(until=lambda event, kind=kind: event.kind == kind)  # type: ignore[misc]
        duet.decode.work.arm("f", {"on": "decode", "op": "forward", "request": "a"}, 1)
        duet.submit("b")
        duet.play()
        duet.decode.work.release("f")
        duet.play()
        steps[closed] = {event.request: event.data["step"] for event in duet.history().by_kind["batched"]}
    assert steps[True]["b"] > steps[False]["a"] == 1
    assert set(steps[True]) == {"a", "b"}

"""Guards of the control plane: what both engines do with each of them, and without it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from duet import Duet

from checkers import conservation, finality, integrity, isolation
from racelab.engine.guards import ALL_GUARDS, GUARDS, POLICIES
from racelab.evidence.events import Event
from racelab.scenario import Lab, Request

R1 = {"r1": Request(prompt_tokens=40, new_tokens=2), "r2": Request(prompt_tokens=40, new_tokens=2)}
"""Three pages, three chunks each."""

FOREVER = Lab(request_timeout_ms=None)


def duet(*without: str, lab: Lab | None = None) -> Duet:
    return Duet(R1, lab or Lab(), set(GUARDS) - set(without))


def seen(duet: Duet, kind: str, request: str = "r1") -> list[Event]:
    return [event for event in duet.events if event.kind == kind and event.request == request]


def sent(duet: Duet, kind: str) -> list[Event]:
    return [event for event in duet.events if event.kind == "sent" and event.data["type"] == kind]


def refusals(duet: Duet) -> list[tuple[str, str]]:
    return [(event.data["guard"], event.data["refuses"]) for event in duet.events if event.kind == "refused"]


def abort_after(duet: Duet, kind: str, count: int = 1) -> None:
    """r1 is given up right after so many events of a kind."""
    duet.submit("r1")
    duet.play(until=lambda event: len(seen(duet, kind)) >= count)
    duet.decode.abort("r1")


def test_policies_are_made_of_known_guards() -> None:
    assert {name for guards in POLICIES.values() for name in guards} <= set(ALL_GUARDS)
    assert set(POLICIES["ledger"]) == set(GUARDS)


# -- tell-peer-of-end


def test_prefill_is_told_of_an_abort_and_lets_its_pages_go() -> None:
    played = duet()
    abort_after(played, "posted", 2)
    assert conservation.check(played.history()).outcome == "held"
    assert sent(played, "abort")
    assert ("tell-peer-of-end", "silence") in refusals(played)


def test_without_the_notice_prefill_keeps_the_attempt() -> None:
    played = duet("tell-peer-of-end")
    abort_after(played, "posted", 2)
    judged = conservation.check(played.history())
    assert not sent(played, "abort")
    assert "prefill at rest has 1 requests left" in [finding.what for finding in judged.findings]


# -- stop-posting-on-abort


def chunks_posted(duet: Duet) -> set[int]:
    return {event.data["chunk"] for event in seen(duet, "posted")}


def abort_between_chunks(duet: Duet) -> None:
    """r1's first chunk has arrived and its second is being computed; r1's pages go to r2 if they are free."""
    duet.submit("r1")
    duet.play(until=lambda event: event.kind == "posted")
    duet.computing = True
    duet.play()
    duet.decode.abort("r1")
    duet.play()
    duet.submit("r2")
    duet.play()
    duet.computing = False
    duet.play()


def test_after_an_abort_no_further_chunk_is_posted() -> None:
    played = duet()
    abort_between_chunks(played)
    history = played.history()
    assert chunks_posted(played) == {0}
    assert ("stop-posting-on-abort", "posted") in refusals(played)
    assert isolation.check(history).outcome == "held"


def test_without_it_prefill_goes_on_and_its_acknowledgement_was_false() -> None:
    played = duet("stop-posting-on-abort")
    abort_between_chunks(played)
    assert chunks_posted(played) == {0, 1, 2}
    history = played.history()
    assert any("is posted after it" in finding.what for finding in conservation.check(history).findings)
    assert any("r2 attempt 1 took the bytes" in finding.what for finding in isolation.check(history).findings)


# -- ack-when-drained


@pytest.mark.parametrize(("without", "early"), [((), False), (("ack-when-drained",), True)])
def test_an_abort_is_acknowledged_when_nothing_is_outstanding(without: Iterable[str], early: bool) -> None:
    played = duet(*without)
    played.wire.held = True
    abort_after(played, "posted", 2)
    played.play()
    assert bool(sent(played, "abort-ack")) == early
    freed = [event for event in seen(played, "page-free") if event.instance == "decode"]
    assert len(freed) == (3 if early else 0)
    judged = conservation.check(played.history())
    assert judged.outcome == ("violated" if early else "held")
    assert len(sent(played, "abort-ack")) == 1


def test_after_a_failure_it_is_not_clean() -> None:
    for without, clean in (((), False), (("ack-when-drained",), True)):
        played = duet(*without)
        played.wire.fails = lambda write: write.identity.chunk == 0
        played.submit("r1")
        played.play()
        assert [event.data["clean"] for event in sent(played, "abort-ack")] == [clean]


# -- commit-when-whole


def test_a_failed_part_fails_the_request() -> None:
    played = duet()
    played.wire.fails = lambda write: write.identity.chunk == 1
    played.submit("r1")
    history = played.history()
    assert seen(played, "failed")
    assert ("commit-when-whole", "committed") in refusals(played)
    assert integrity.check(history).outcome != "violated"


def test_without_it_a_failed_part_counts_as_arrived() -> None:
    played = duet("commit-when-whole")
    played.wire.fails = lambda write: write.identity.chunk == 1
    played.submit("r1")
    history = played.history()
    assert seen(played, "finished")
    assert integrity.check(history).outcome == "violated"


# -- lengths-agree


SHORT = Lab(prefill_token_limit=39)


def test_a_shorter_transfer_is_no_transfer() -> None:
    played = duet(lab=SHORT)
    played.submit("r1")
    history = played.history()
    assert [event.data["why"] for event in seen(played, "failed")] == ["prefill transfers 1 of 39 tokens"]
    for check in (conservation.check, isolation.check):
        assert check(history).outcome == "held"


def test_without_it_decode_answers_over_pages_that_nobody_filled() -> None:
    played = duet("lengths-agree", lab=SHORT)
    played.submit("r1")
    judged = integrity.check(played.history())
    assert seen(played, "finished")
    assert judged.outcome == "violated"
    assert "which was never written for it" in judged.findings[0].what


def test_a_prompt_at_the_limit_is_served() -> None:
    played = duet(lab=Lab(prefill_token_limit=40))
    played.submit("r1")
    assert integrity.check(played.history()).outcome == "held"
    assert seen(played, "finished")


# -- receive-watchdog


@pytest.mark.parametrize("lost", ["reserve", "written"])
def test_decode_ends_a_request_whose_transfer_is_not_heard_of(lost: str) -> None:
    for without, outcome in (((), "held"), (("receive-watchdog",), "violated")):
        played = duet(*without, lab=FOREVER)
        played.lose = lambda message: message.type == lost
        played.submit("r1")
        played.play()
        played.pass_time(FOREVER.receive_timeout_ms)
        assert bool(seen(played, "failed")) == (not without)
        assert finality.check(played.history()).outcome == outcome


def test_prefill_lets_its_pages_go_when_decode_never_says_that_it_is_done() -> None:
    for without, outcome in (((), "held"), (("receive-watchdog",), "violated")):
        played = duet(*without, lab=FOREVER)
        played.lose = lambda message: message.type == "complete"
        played.submit("r1")
        played.play()
        played.pass_time(FOREVER.source_hold_ms)
        assert seen(played, "finished")
        assert conservation.check(played.history()).outcome == outcome


# -- hold-without-end


def test_a_drain_without_an_end_is_never_over() -> None:
    played = Duet(R1, Lab(), POLICIES["hold-forever"])
    assert set(POLICIES["hold-forever"]) - set(GUARDS) == {"hold-without-end"}
    played.lose = lambda message: message.type in ("abort", "written")
    played.wire.held = True
    abort_after(played, "posted", 2)
    history = played.history()
    assert not seen(played, "page-quarantined")
    assert finality.check(history).outcome == "violated"
    assert isolation.check(history).outcome == "held"

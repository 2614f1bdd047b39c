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


# -- unique-transfer-id


def share_an_id(*without: str) -> Duet:
    """r1's news is on its way when r2 comes with the same transfer id; then r1's client gives up."""
    played = duet(*without, lab=Lab(decode_pages=8))
    played.transfers = {"r1": "k", "r2": "k"}
    played.lose = lambda message: (message.type, message.request) == ("written", "r1")
    played.submit("r1")
    played.play()
    played.wire.held = True
    played.submit("r2")
    played.play()
    played.decode.abort("r1")
    played.play()
    return played


def test_a_transfer_id_in_use_is_refused() -> None:
    played = share_an_id()
    assert [event.data["why"] for event in seen(played, "failed", "r2")] == ["its transfer id k is in use"]
    assert ("unique-transfer-id", "admitted") in refusals(played)
    history = played.history()
    for check in (isolation.check, conservation.check, finality.check):
        assert check(history).outcome == "held"


def test_without_it_the_end_of_one_request_ends_the_other() -> None:
    played = share_an_id("unique-transfer-id")
    history = played.history()
    told = [finding.what for finding in isolation.check(history).findings]
    assert "message 'abort' of r1 attempt 1 ends r2 attempt 1" in told
    lost = [finding.what for finding in conservation.check(history).findings]
    assert any("of r1 attempt 1 gen 1 at rest, and no request is left" in what for what in lost)


# -- remember-ended, and a router


ROUTER = Lab(router=True, request_timeout_ms=None, bootstrap_timeout_ms=5_000)


def late_reserve(*without: str) -> Duet:
    """Prefill has given up waiting for decode's pages when decode says which they are."""
    played = duet(*without, lab=ROUTER)
    late = []

    def delayed(message: object) -> bool:
        if getattr(message, "type", "") == "reserve" and not late:
            late.append(message)
            return True
        return False

    played.lose = delayed
    played.submit("r1")
    played.play()
    played.pass_time(ROUTER.bootstrap_timeout_ms)
    played.prefill.on_message(late[0])
    played.play()
    return played


def test_a_router_sends_a_request_to_both() -> None:
    played = duet(lab=ROUTER)
    played.submit("r1")
    history = played.history()
    assert seen(played, "offered")
    assert seen(played, "finished")
    for check in (isolation.check, integrity.check, conservation.check, finality.check):
        assert check(history).outcome == "held"


def test_a_late_reserve_is_answered_with_the_end_of_its_room() -> None:
    played = late_reserve()
    assert ("remember-ended", "accepted") in refusals(played)
    assert [event.data["why"].partition(":")[0] for event in seen(played, "failed")] == ["prefill has ended it"]
    assert finality.check(played.history()).outcome == "held"


def test_without_the_memory_decode_waits_for_a_sender_that_is_not_there() -> None:
    played = late_reserve("remember-ended")
    assert not seen(played, "failed")
    assert not seen(played, "posted")
    assert finality.check(played.history()).outcome == "violated"


def test_an_abort_that_overtakes_its_reserve_is_remembered_and_acknowledged() -> None:
    for without, posts in (((), False), (("remember-ended",), True)):
        played = duet(*without)
        late = []
        played.lose = lambda message, late=late: message.type == "reserve" and (late.append(message) or True)
        abort_after(played, "sent")
        played.play()
        played.prefill.on_message(late[0])
        played.play()
        assert bool(seen(played, "posted")) == posts
        assert bool(sent(played, "abort-ack")) == (not posts)
        assert conservation.check(played.history()).outcome == ("violated" if posts else "held")


def test_a_router_gives_up_at_prefill_and_decode_is_told() -> None:
    for without, ended in (((), True), (("tell-peer-of-end",), False)):
        played = duet(*without, lab=ROUTER)
        played.wire.held = True
        played.submit("r1")
        played.play()
        played.wire.held = False
        played.prefill.abort("r1")
        played.lose = lambda message: message.type == "written"
        played.play()
        assert bool(seen(played, "failed")) == ended
        assert finality.check(played.history()).outcome == ("held" if ended else "violated")


def test_prefill_gives_up_waiting_for_decode_pages() -> None:
    played = duet(lab=ROUTER)
    played.prefill.offer("r1", 1, [1, 2, 3])
    played.pass_time(ROUTER.bootstrap_timeout_ms)
    assert [event.data["why"] for event in seen(played, "attempt-ended")] == ["no pages from decode in time"]
    assert not sent(played, "failed")


def test_a_second_copy_of_a_reserve_changes_nothing() -> None:
    played = duet()
    copies: list[object] = []
    played.lose = lambda message: message.type == "reserve" and bool(copies.append(message))  # type: ignore[func-returns-value]
    played.submit("r1")
    played.play()
    played.prefill.on_message(copies[0])  # type: ignore[arg-type]
    assert conservation.check(played.history()).outcome == "held"
    assert len(seen(played, "accepted")) == 1


# -- register-before-send


def test_news_for_an_unregistered_transfer_is_dropped() -> None:
    for without, heard in (((), True), (("register-before-send",), False)):
        played = duet(*without, lab=FOREVER)
        played.decode.registrations.arm("busy", {"on": "decode", "op": "register"}, 1)
        played.submit("r1")
        played.play()
        assert bool(sent(played, "reserve")) == (not heard)
        played.decode.registrations.release("busy")
        played.play()
        assert bool(seen(played, "finished")) == heard


# -- check-incarnation


def test_decode_gives_up_what_was_with_a_prefill_that_was_replaced() -> None:
    for without, ended in (((), True), (("check-incarnation",), False)):
        played = duet(*without, lab=FOREVER)
        played.lose = lambda message: message.type == "reserve"
        played.submit("r1")
        played.play()
        played.prefill.greet()
        played.play()
        assert bool(seen(played, "failed")) == ended
        assert finality.check(played.history()).outcome == ("held" if ended else "violated")


def test_prefill_gives_up_what_was_for_a_decode_that_was_replaced() -> None:
    played = duet(lab=FOREVER)
    played.lose = lambda message: message.type == "complete"
    played.submit("r1")
    played.play()
    played.decode.greet()
    played.play()
    assert [event.data["why"] for event in seen(played, "attempt-ended")] == ["decode has been replaced"]

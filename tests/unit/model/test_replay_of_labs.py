"""Histories of labs that pull, have ranks, slots, a router or transfer ids: every event is explained."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from duet import Duet

from racelab.engine.guards import GUARDS
from racelab.model import boundary
from racelab.model.replay import Replay
from racelab.scenario import Lab, Request

REQUESTS = {"r1": Request(prompt_tokens=25), "r2": Request(prompt_tokens=13)}
PULL = Lab(transfer="pull")


def plain(duet: Duet) -> None:
    duet.submit("r1", "r2")


def an_old_reference(duet: Duet) -> None:
    duet.submit("r1")
    duet.play()
    duet.present("r2", "r1")


def an_abort_amid_reads(duet: Duet) -> None:
    duet.reads.held = True
    duet.submit("r1")
    duet.play()
    duet.decode.abort("r1")


def a_long_read(duet: Duet) -> None:
    duet.reads.held = True
    duet.submit("r1")
    duet.play()
    duet.pass_time(16_000)


def a_read_that_fails(duet: Duet) -> None:
    duet.reads.fails = lambda read: read.identity.request == "r1"
    plain(duet)


def an_abort_before_the_reference(duet: Duet) -> None:
    duet.submit("r1")
    duet.prefill.abort("r1")


def a_rank_that_fails(duet: Duet) -> None:
    duet.wire.fails = lambda write: (write.identity.request, write.identity.rank) == ("r1", 0)
    plain(duet)


def an_abort(duet: Duet) -> None:
    plain(duet)
    duet.decode.abort("r1")


def a_reserve_that_is_lost(duet: Duet) -> None:
    duet.lose = lambda message: (message.type, message.request) == ("reserve", "r1")
    plain(duet)
    duet.play()
    duet.pass_time(2_000)


def one_transfer_id(duet: Duet) -> None:
    duet.transfers = {"r1": "t", "r2": "t"}
    duet.wire.held = True
    duet.submit("r1")
    duet.play()
    duet.submit("r2")
    duet.play()
    duet.decode.abort("r1")


def an_abort_that_overtakes_its_reserve(duet: Duet) -> None:
    duet.submit("r1")
    reserve = duet._mail.popleft()
    duet.decode.abort("r1")
    duet.play()
    duet._mail.append(reserve)


ROUTER = Lab(router=True, bootstrap_timeout_ms=1_000)
CASES: dict[str, tuple[Lab, Callable[[Duet], None], str]] = {
    "a pull": (PULL, plain, "Refer"),
    "a pull beside a prefix cache": (Lab(transfer="pull", prefix_cache=True), plain, "Forward"),
    "an old reference": (PULL, an_old_reference, "Present"),
    "an abort amid reads": (PULL, an_abort_amid_reads, "Abort"),
    "a read that is longer than the lease": (PULL, a_long_read, "CompleteRead"),
    "a read that fails": (PULL, a_read_that_fails, "CompleteRead"),
    "an abort before there is a reference": (PULL, an_abort_before_the_reference, "AbortAway"),
    "two ranks": (Lab(ranks=2), plain, "Post"),
    "a rank that fails": (Lab(ranks=2), a_rank_that_fails, "Receive"),
    "slots": (Lab(metadata_slots=1), plain, "LandSlot"),
    "slots and an abort": (Lab(metadata_slots=2), an_abort, "LandSlot"),
    "a router": (ROUTER, plain, "Offer"),
    "a router whose request decode never asks for": (ROUTER, a_reserve_that_is_lost, "GiveUpOffer"),
    "a batch of one": (Lab(max_batch=1), plain, "Enter"),
    "an abort that overtakes": (Lab(), an_abort_that_overtakes_its_reserve, "Receive"),
}


@pytest.mark.parametrize("without", ["nothing", "everything", "one"])
@pytest.mark.parametrize("case", CASES)
def test_every_event_is_explained(case: str, without: str) -> None:
    lab, play, action = CASES[case]
    off = {"nothing": (), "everything": tuple(GUARDS), "one": ("remember-ended", "renew-lease", "every-handle-stopped")}
    duet = Duet(REQUESTS, lab, guards=[guard for guard in GUARDS if guard not in off[without]])
    play(duet)
    duet.play()
    replay = Replay(duet.history())
    refused = replay.run()
    assert refused is None, (refused.why, refused.event, refused.expected)
    assert replay.accepted == sum(boundary.is_boundary(event.kind) for event in duet.events)
    assert action in {taken.step.action.name for taken in replay.taken}


def test_a_lease_that_nobody_renews_ends() -> None:
    duet = Duet(REQUESTS, PULL, guards=[guard for guard in GUARDS if guard != "renew-lease"])
    a_long_read(duet)
    replay = Replay(duet.history())
    assert replay.run() is None
    assert "Lapse" in {taken.step.action.name for taken in replay.taken}


def test_whoever_takes_over_a_transfer_id_is_aborted_in_its_last_owners_place() -> None:
    duet = Duet(REQUESTS, Lab(), guards=[guard for guard in GUARDS if guard != "unique-transfer-id"])
    one_transfer_id(duet)
    duet.play()
    replay = Replay(duet.history())
    assert replay.run() is None
    assert [stray.what for stray in replay.state.strays] == ["message"]


def test_a_slot_that_is_said_to_hold_another_word_is_refused() -> None:
    duet = Duet(REQUESTS, Lab(metadata_slots=1))
    plain(duet)
    history = duet.history()
    next(event for event in history.events if event.kind == "slot-read").data["owner"] = "r9"
    refused = Replay(history).run()
    assert refused is not None
    assert (refused.event is not None and refused.event.kind, refused.gap) == ("slot-read", "engine bug")

"""Seeded illegal histories: what no reliable connection does is found, and what one may do is not flagged."""

from __future__ import annotations

import pytest
from rc_histories import HERE, KEY, MEMORY, SIZE, THERE, Script

from racelab.evidence.rc import contradiction
from racelab.verdict import judge

RETRIES, FLUSHED, ACCESS = 12, 5, 10

HELD = ((1, "queued"), (2, "queued"))
THROUGH = ((1, "doorbell"), (1, "completed"), (2, "doorbell"), (2, "completed"))
GHOST = ((1, "queued"), (1, "doorbell"), (1, "completed", RETRIES))


def script() -> Script:
    return Script()


LEGAL = {
    "held, stalled behind it, and both go on": script().moves(*HELD, *THROUGH).landed(),
    "two under way at once": script().moves(
        *HELD, (1, "doorbell"), (2, "doorbell"), (1, "completed"), (2, "completed")
    ),
    "flushed with its queue pair": script()
    .moves(*HELD)
    .pair("prefill", HERE, "ERR", THERE)
    .moves((1, "flushed", FLUSHED), (2, "flushed", FLUSHED)),
    "handed to a queue pair in ERR, and flushed by it": script()
    .pair("prefill", HERE, "ERR", THERE)
    .moves((1, "queued"), (1, "doorbell"), (1, "completed", FLUSHED)),
    "a ghost lands while the responder is what it was": script().moves(*GHOST, (1, "late")).landed(),
    "a ghost lands after its requester has ended": script()
    .moves(*GHOST)
    .pair("prefill", HERE, "DESTROYED", THERE)
    .moves((1, "late")),
    "a ghost of one rail, while another rail goes on": script()
    .connect(33, 44, "rail1")
    .register(device="rail1", key=KEY + 1)
    .moves(*GHOST)
    .move(1, "queued", device="rail1", qp=33, peer=44, key=KEY + 1)
    .move(1, "doorbell", device="rail1", qp=33, peer=44, key=KEY + 1)
    .move(1, "completed", device="rail1", qp=33, peer=44, key=KEY + 1)
    .moves((1, "late")),
    "a ghost after a reconnect is fenced": script()
    .moves(*GHOST)
    .pair("decode", THERE, "RESET")
    .moves((1, "late", RETRIES)),
    "a refused access": script().register(valid=False).moves((1, "queued"), (1, "doorbell"), (1, "completed", ACCESS)),
    "the responder ended while it was under way, and it had landed": script()
    .moves((1, "queued"), (1, "doorbell"))
    .register(valid=False)
    .moves((1, "completed")),
    "a completion that is kept back and told": script().moves(
        (1, "queued"), (1, "doorbell"), (1, "completed"), (1, "withheld"), (0, "told")
    ),
}

ILLEGAL = {
    "a later one overtakes what is held": (
        script().moves(*HELD, (2, "doorbell")),
        "leaves before request 1, which is stopped on its queue pair",
    ),
    "it leaves twice": (script().moves((1, "queued"), *THROUGH[:2], (1, "doorbell")), "leaves twice"),
    "it completes and had not left": (script().moves((1, "queued"), (1, "completed")), "completes and had not left"),
    "completions out of order": (
        script().moves(*HELD, (1, "doorbell"), (2, "doorbell"), (2, "completed")),
        "completes before request 1",
    ),
    "it leaves in ERR and lands": (
        script().moves((1, "queued")).pair("prefill", HERE, "ERR", THERE).moves((1, "doorbell"), (1, "completed")),
        "was handed to a queue pair in ERR",
    ),
    "it leaves after an error completion and lands": (
        script().moves(*HELD, (1, "doorbell"), (1, "completed", RETRIES), (2, "doorbell"), (2, "completed")),
        "was handed to a queue pair in ERR",
    ),
    "it leaves in RESET and lands": (
        script().moves((1, "queued")).pair("prefill", HERE, "RESET").moves((1, "doorbell"), (1, "completed")),
        "was handed to a queue pair in RESET",
    ),
    "it lands through a dead responder": (
        script().pair("decode", THERE, "ERR", HERE).moves((1, "queued"), *THROUGH[:2]),
        "no live queue pair 22 is connected to it",
    ),
    "it lands through a destroyed responder": (
        script().pair("decode", THERE, "DESTROYED", HERE).moves((1, "queued"), *THROUGH[:2]),
        "no live queue pair",
    ),
    "it lands through a responder that is connected elsewhere": (
        script()
        .pair("decode", THERE, "RESET")
        .pair("decode", THERE, "INIT")
        .pair("decode", THERE, "RTR", 99)
        .moves((1, "queued"), *THROUGH[:2]),
        "no live queue pair",
    ),
    "it lands after its key has ended": (
        script().register(valid=False).moves((1, "queued"), *THROUGH[:2]),
        "is not valid there",
    ),
    "it lands with a key of another device": (
        script().register(valid=False).register(device="rail1").moves((1, "queued"), *THROUGH[:2]),
        "is not valid there",
    ),
    "it lands beyond its region": (
        script()
        .move(1, "queued", address=MEMORY + 4 * SIZE - 1)
        .move(1, "doorbell", address=MEMORY + 4 * SIZE - 1)
        .move(1, "completed", address=MEMORY + 4 * SIZE - 1),
        "is not valid there",
    ),
    "a ghost that was never given up": (script().moves((1, "queued"), (1, "late")), "was never given up"),
    "a ghost of a request that was refused": (
        script().moves((1, "queued"), (1, "doorbell"), (1, "completed", ACCESS), (1, "late")),
        "was never given up",
    ),
    "a ghost lands through the same queue pair after a reconnect": (
        script()
        .moves(*GHOST)
        .pair("decode", THERE, "RESET")
        .pair("decode", THERE, "INIT")
        .pair("decode", THERE, "RTR", 55)
        .moves((1, "late")),
        "no live queue pair",
    ),
    "a ghost that left in ERR": (
        script()
        .moves((1, "queued"))
        .pair("prefill", HERE, "ERR", THERE)
        .moves((1, "doorbell"), (1, "completed", FLUSHED), (1, "late")),
        "was handed to a queue pair in ERR",
    ),
    "a flush without an error": (script().moves((1, "queued"), (1, "flushed", FLUSHED)), "its queue pair is in RTS"),
    "a landing that no request made": (script().moves((1, "queued"), (1, "doorbell")).landed(), "no request of it has"),
    "a state that cannot follow": (script().pair("prefill", HERE, "RTR", THERE), "goes from RTS to RTR"),
    "a request on no queue pair": (script().move(1, "queued", qp=77), "which there is not"),
    "a completion told that nobody kept back": (script().moves((0, "told")), "nobody kept back"),
    "a completion told twice": (
        script().moves((1, "queued"), (1, "doorbell"), (1, "completed"), (1, "withheld"), (0, "told"), (0, "told")),
        "nobody kept back",
    ),
}


@pytest.mark.parametrize("name", LEGAL)
def test_what_a_reliable_connection_may_do_is_not_flagged(name: str) -> None:
    assert contradiction(LEGAL[name].history()) is None


@pytest.mark.parametrize("name", ILLEGAL)
def test_what_no_reliable_connection_does_is_found(name: str) -> None:
    played, words = ILLEGAL[name]
    found = contradiction(played.history())
    assert found is not None
    assert words in found
    assert found.startswith("verbs:"), "it names the event"


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_history_makes_the_run_inconclusive(name: str) -> None:
    played, words = ILLEGAL[name]
    verdict = judge(played.history(), {})
    assert verdict.verdict == "inconclusive"
    assert verdict.exit_code == 3
    assert "no reliable connection does that" in verdict.why
    assert words in verdict.why


def test_a_history_over_tcp_has_no_connections_to_judge() -> None:
    history = ILLEGAL["it leaves twice"][0].history()
    history.header.transport = "tcp"
    assert contradiction(history) is None

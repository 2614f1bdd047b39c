"""Labels: reachable with default timers, with shortened ones, or with none."""

from __future__ import annotations

import histories
import pytest
from histories import kind

from racelab.evidence.history import History
from racelab.evidence.labels import TRANSPORT_DEADLINES_MS, label


def held_for(text: str, ms: int) -> History:
    return histories.play(text.replace("advance: 2000", f"advance: {ms}"))


def test_within_every_bound() -> None:
    assert label(histories.play(histories.LATE_WRITE)) == "default-timers"
    assert label(histories.play(histories.CLEAN)) == "default-timers"


def test_shortened_timers_are_named() -> None:
    text = histories.LATE_WRITE.replace("requests:", "lab: {request-timeout-ms: 500}\nrequests:", 1)
    assert label(histories.play(text)) == "shortened: request-timeout-ms 10000 -> 500"


def test_longer_timers_are_no_shortening() -> None:
    text = histories.CLEAN.replace("requests:", "lab: {request-timeout-ms: 50000}\nrequests:", 1)
    assert label(histories.play(text)) == "default-timers"


@pytest.mark.parametrize("ms", [29_999, 30_000])
def test_a_transports_deadline_has_an_effect(ms: int) -> None:
    history = held_for(histories.LATE_BUT_RIGHTFUL, ms)
    assert min(TRANSPORT_DEADLINES_MS["tcp"].values()) == 30_000
    if ms < 30_000:
        assert label(history) == "default-timers"
    else:
        assert label(history).startswith("synthetic: hold w1 lasts 30,000 ms, past MC_TRANSFER_TIMEOUT")


def test_a_deadline_that_had_its_effect() -> None:
    history = held_for(histories.LATE_BUT_RIGHTFUL, 40_000)
    for event in history.by_kind["completed"]:
        event.data = event.data | {"status": "timeout", "code": -2}
    assert label(history) == "default-timers"


def test_a_deadline_that_came_early_was_shortened() -> None:
    history = histories.play(histories.LATE_BUT_RIGHTFUL)
    history = histories.changed(history, kind("completed", writes=["w1"]), data={"status": "failed", "code": -1})
    history = histories.moved(history, kind("completed", writes=["w1"]), behind=kind("held", hold="w1"))
    assert label(history) == "shortened: MC_TRANSFER_TIMEOUT 30000 -> 2000"


def test_a_reset_is_no_deadline() -> None:
    assert label(histories.play(histories.LOST_WRITE)) == "default-timers"


def test_longer_than_its_mechanism_can_last() -> None:
    history = histories.play(histories.LATE_WRITE)
    history.header.mechanisms["w1"]["bound_ms"] = 9_999
    assert label(history) == "synthetic: hold w1 lasts 10,000 ms; congestion lasts 9,999 ms at most"


def test_a_messages_mechanism_is_bounded_too() -> None:
    text = histories.STALE_MESSAGE.replace("advance: 10000", "advance: 61000")
    assert label(histories.play(text)).startswith("synthetic: hold m1 lasts 61,000 ms; congestion lasts 60,000 ms")


def test_synthetic_outweighs_shortened() -> None:
    text = histories.LATE_WRITE.replace("requests:", "lab: {request-timeout-ms: 500}\nrequests:", 1)
    history = histories.play(text)
    history.header.mechanisms["w1"]["bound_ms"] = 1
    assert label(history).startswith("synthetic")


def test_a_message_that_later_ones_of_its_topic_overtook_is_synthetic() -> None:
    history = histories.play(histories.LATE_WRITE)
    delivered = history.by_kind["delivered"][0]
    delivered.data["overtaken"] = 2
    assert label(history).startswith(f"synthetic: hold {delivered.data['hold']} lets 2 later message(s)")

"""The verbs gate's book: a write is held and lands as a whole, however many requests its transport makes of it."""

from __future__ import annotations

import pytest

from injectors.verbs.holds import Holds, Watched
from injectors.verbs.layout import MOVES, Kind, Message
from racelab.errors import LabError
from racelab.evidence.events import KINDS, Event
from racelab.evidence.recorder import Recorder
from racelab.transport.lanes import WriteIdentity

SLICE = 65_536
NUMBERS = {word: number for number, word in MOVES.items()}


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def holds(events: list[Event]) -> Holds:
    return Holds(Recorder("verbs", sink=events.append))


def write(name: str = "w1", request: str = "r1", size: int = SLICE) -> WriteIdentity:
    return WriteIdentity(
        write=name, request=request, attempt=1, chunk=0, layer=0, page=3, gen=2, address=0x1000, bytes=size
    )


def armed(holds: Holds, action: str = "hold", size: int = SLICE) -> Watched:
    holds.arm("h1", {"request": "r1"}, 1, action, "at-hold")
    ((watched, got, payload),) = holds.announce("prefill", [write("w0", "r2"), write(size=size)])
    assert (got, payload) == (action, "at-hold")
    return watched


def move(holds: Holds, watched: Watched, word: str, size: int = SLICE, status: int = 0, pair: int = 1) -> None:
    state = NUMBERS[word]
    holds.moved(Message(Kind.REQUEST, watch=watched.watch, state=state, size=size, status=status, queue_pair=pair))


def kinds(events: list[Event]) -> list[str]:
    for event in events:
        assert set(KINDS[event.kind].data) <= event.data.keys()
    return [event.kind for event in events]


def test_a_write_of_three_slices_is_held_and_lands_once(holds: Holds, events: list[Event]) -> None:
    watched = armed(holds, size=3 * SLICE)
    for _ in range(3):
        assert "held" not in kinds(events)
        move(holds, watched, "queued")
    assert kinds(events) == ["armed", "held"]
    assert holds.let_go("h1", "release") == [watched]
    for _ in range(3):
        assert "landed" not in kinds(events)
        move(holds, watched, "doorbell")
        move(holds, watched, "completed")
    assert kinds(events) == ["armed", "held", "released", "landed"]
    assert holds.reset(2) == {"held": [], "armed": 0}


def test_a_write_that_is_announced_after_the_hold_is_over_passes(holds: Holds) -> None:
    holds.arm("h1", {"request": "r1"}, 2, "hold", "at-hold")
    holds.let_go("h1", "release")
    assert holds.announce("prefill", [write()]) == []


@pytest.mark.parametrize(("word", "why"), [("flushed", "went into ERR"), ("lost", "reset or destroyed")])
def test_what_ends_with_its_queue_pair_did_not_land(holds: Holds, events: list[Event], word: str, why: str) -> None:
    watched = armed(holds)
    move(holds, watched, "queued")
    move(holds, watched, word, status=5)
    assert kinds(events) == ["armed", "held", "unlanded"]
    assert why in events[-1].data["why"]
    assert holds.let_go("h1", "release") == []


def test_a_drop_is_lost_and_its_error_completion_says_nothing_more(holds: Holds, events: list[Event]) -> None:
    watched = armed(holds)
    move(holds, watched, "queued")
    holds.let_go("h1", "drop")
    for word, status in (("doorbell", 0), ("completed", 12), ("lost", 12)):
        move(holds, watched, word, status=status)
    assert kinds(events) == ["armed", "held", "dropped"]


@pytest.mark.parametrize(("status", "end"), [(0, "landed"), (12, "dropped")])
def test_a_ghost_is_held_while_its_sender_knows_of_a_failure(
    holds: Holds, events: list[Event], status: int, end: str
) -> None:
    watched = armed(holds, "ghost")
    for word, code in (("queued", 0), ("doorbell", 0), ("completed", 12)):
        move(holds, watched, word, status=code)
    assert kinds(events) == ["armed", "held"]
    assert events[-1].data["action"] == "ghost"
    holds.let_go("h1", "release")
    move(holds, watched, "late", status=status)
    assert kinds(events) == ["armed", "held", "released", end]
    assert ("fenced" in events[-1].data) == (status != 0)


def test_what_a_dead_process_held_has_not_landed(holds: Holds, events: list[Event]) -> None:
    watched = armed(holds)
    move(holds, watched, "queued")
    holds.process_ended("decode")
    assert "dropped" not in kinds(events)
    holds.process_ended("prefill")
    assert kinds(events)[-1] == "dropped"
    assert "queue pair" in events[-1].data["fenced"]


def test_what_a_process_had_let_go_when_it_died_may_have_landed(holds: Holds, events: list[Event]) -> None:
    watched = armed(holds)
    move(holds, watched, "queued")
    holds.let_go(watched.hold, "release")
    holds.process_ended("prefill")
    assert kinds(events)[-1] == "unlanded"


def test_a_reset_names_what_is_still_held(holds: Holds) -> None:
    watched = armed(holds)
    move(holds, watched, "queued")
    assert holds.reset(2)["held"] == ["w1"]
    with pytest.raises(LabError, match="still holds writes of before"):
        holds.arm("h1", {"request": "r1"}, 1, "hold", "at-hold")


def test_a_hold_that_nobody_armed(holds: Holds) -> None:
    with pytest.raises(LabError, match="no hold 'nope' at the verbs gate"):
        holds.let_go("nope", "release")


def test_a_completion_is_kept_back_once_all_of_a_write_has_landed(holds: Holds, events: list[Event]) -> None:
    watched = armed(holds, "lose-completion", size=2 * SLICE)
    for pair in (1, 2):
        for word in ("queued", "doorbell", "completed", "withheld"):
            assert "withheld" not in kinds(events)
            move(holds, watched, word, pair=pair)
    assert kinds(events) == ["armed", "landed", "withheld"]
    assert holds.reset(2)["held"] == ["w1"]
    assert holds.let_go("h1", "release") == [watched]
    for pair in (1, 2):
        move(holds, watched, "told", pair=pair)
    assert kinds(events) == ["armed", "landed", "withheld", "told"]
    assert (events[-1].kind, events[-1].data["as"]) == ("told", "completed")
    assert holds.reset(3)["held"] == []


def test_a_completion_that_is_dropped_is_told_as_a_loss(holds: Holds, events: list[Event]) -> None:
    watched = armed(holds, "lose-completion")
    for word in ("queued", "doorbell", "completed", "withheld"):
        move(holds, watched, word)
    holds.let_go("h1", "drop")
    move(holds, watched, "lost", status=12)
    assert kinds(events) == ["armed", "landed", "withheld", "told"]
    assert events[-1].data["as"] == "lost"


def test_a_completion_that_came_after_the_hold_was_over_is_none_of_its(holds: Holds, events: list[Event]) -> None:
    watched = armed(holds, "lose-completion")
    move(holds, watched, "queued")
    holds.let_go("h1", "release")
    move(holds, watched, "completed")
    assert kinds(events) == ["armed", "landed"]
    assert holds.reset(2)["held"] == []


def test_a_delayed_write_goes_when_its_time_has_come_and_not_before(events: list[Event]) -> None:
    waiting: list[tuple[float, Watched]] = []
    holds = Holds(Recorder("verbs", sink=events.append), lambda delay_ms, write: waiting.append((delay_ms, write)))
    holds.arm("h1", {"request": "r1"}, 1, "delay", "at-hold", iter([7.5]))
    ((watched, _, _),) = holds.announce("prefill", [write()])
    move(holds, watched, "queued")
    assert waiting == [(7.5, watched)]
    assert holds.let_go("h1", "release") == []
    assert holds.due(watched)
    assert not holds.due(watched)
    move(holds, watched, "completed")
    assert kinds(events) == ["armed", "held", "released", "landed"]
    assert events[1].data["delay_ms"] == 7.5


def test_a_control_passes_and_lands(holds: Holds, events: list[Event]) -> None:
    watched = armed(holds, "pass")
    for word in ("queued", "doorbell", "completed"):
        move(holds, watched, word)
    assert kinds(events) == ["armed", "passed", "landed"]
    assert holds.let_go("h1", "release") == []

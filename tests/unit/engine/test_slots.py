"""Metadata slots: the first token comes from one, and what is written for another is not believed."""

from __future__ import annotations

import pytest
from duet import Duet

from checkers import isolation
from racelab.engine.guards import GUARDS
from racelab.engine.slots import Content, SlotMemory
from racelab.evidence.events import Event
from racelab.scenario import Lab, Request

OWN = "slot-carries-owner"
TWO = {name: Request(prompt_tokens=17, new_tokens=3) for name in ("r1", "r2")}


def duet(slots: int | None, guards: set[str] | None = None) -> Duet:
    return Duet(TWO, Lab(metadata_slots=slots), set(GUARDS) if guards is None else guards)


def of(duet: Duet, kind: str) -> list[Event]:
    return [event for event in duet.events if event.kind == kind]


def test_a_slot_gives_back_what_was_written() -> None:
    memory = SlotMemory(2)
    memory.fill(1, Content("r1", 3, 77))
    assert memory.read(1) == Content("r1", 3, 77)
    assert memory.read(0).owner is None
    assert memory.fingerprint(0) != memory.fingerprint(1)
    memory.clear()
    assert memory.read(1).owner is None


def test_the_first_token_is_prefills() -> None:
    answers = []
    for slots in (None, 2):
        served = duet(slots)
        served.submit("r1")
        served.play()
        answers.append(of(served, "finished")[0].data["tokens"])
    assert answers[0] == answers[1]
    (read,) = of(served, "slot-read")
    assert (read.data["owner"], read.data["token"]) == ("r1", answers[0][0])
    assert isolation.check(served.history()).outcome == "held"


def test_whoever_finds_no_slot_waits_for_one() -> None:
    served = duet(1)
    served.submit("r1", "r2")
    assert [event.request for event in of(served, "queued")] == ["r2"]
    served.play()
    assert {event.request for event in of(served, "finished")} == {"r1", "r2"}
    assert served.decode.leftovers()["slots"] == 0


@pytest.mark.parametrize("guarded", [True, False])
def test_what_is_written_for_another_is_taken_only_without_the_guard(guarded: bool) -> None:
    served = duet(1, set(GUARDS) - (set() if guarded else {OWN}))
    served.submit("r1")
    last = of(served, "sent")[-1]
    assert last.data["type"] == "reserve"
    served.play(until=lambda event: event.kind == "completed")
    served.wire.slots["decode"].fill(0, Content("r0", 1, 99))  # lands late
    served.play()
    refused = [event for event in of(served, "refused") if event.data["guard"] == OWN]
    result = isolation.check(served.history())
    if guarded:
        assert [event.data["refuses"] for event in refused] == ["slot-read"]
        assert result.outcome == "held"
    else:
        assert of(served, "finished")[0].data["tokens"][0] == 99
        assert result.outcome == "violated"
        assert result.findings[0].grade == "consumed"
        assert "holds what was written for r0 attempt 1" in result.findings[0].what

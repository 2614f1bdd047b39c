"""Guards of metadata slots: whose word decode takes."""

from __future__ import annotations

from dataclasses import dataclass

from racelab.engine.guards.guard import Guard, Question


@dataclass(frozen=True)
class UseSlot(Question):
    """May an attempt take its first token from what its slot holds?"""

    slot: int
    owner: str | None
    owner_attempt: int


class SlotCarriesOwner(Guard):
    """Decode takes from a slot what was written for the very attempt that has it."""

    name = "slot-carries-owner"
    protects = "isolation"
    race_classes = ("stale-control",)
    stands_for = "the bootstrap room stored in the metadata buffer and compared before it is used (SGLang)"
    judges = (UseSlot,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, UseSlot)
        if (question.owner, question.owner_attempt) == (question.request, question.attempt):
            return None
        owner = f"{question.owner} attempt {question.owner_attempt}" if question.owner else "nobody"
        return f"slot {question.slot} holds what was written for {owner}"

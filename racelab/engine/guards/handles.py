"""Guards of an attempt that has several handles: ranks, or chunks, whose writes end each by itself."""

from __future__ import annotations

from dataclasses import dataclass

from racelab.engine.guards.guard import Guard, Question


@dataclass(frozen=True)
class CloseOnFailure(Question):
    """May the report that one handle of an attempt failed be taken for the end of all its writes?"""

    outstanding: int


class EveryHandleStopped(Guard):
    """A failure is over once every handle of the attempt has stopped; until then any of them can still write."""

    name = "every-handle-stopped"
    protects = "isolation"
    race_classes = ("fanout-divergence",)
    stands_for = "failure reported only when every transfer handle of the request has ended (vLLM's NIXL connector)"
    judges = (CloseOnFailure,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, CloseOnFailure)
        if question.outstanding:
            return f"{question.outstanding} other handle(s) of the attempt are outstanding"
        return "a handle that failed may still have bytes on their way: an error is no evidence"

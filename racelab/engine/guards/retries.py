"""Guards of a router's retry: whose pages the next prefill is given."""

from __future__ import annotations

from dataclasses import dataclass

from racelab.engine.guards.guard import Guard, Question


@dataclass(frozen=True)
class KeepDestination(Question):
    """May another prefill be given the pages that the one before it was to fill?"""

    before: str
    outstanding: int
    """pages of which it is not proven that the one before is done with them"""


class RetryTakesOtherPages(Guard):
    """A request that goes to another prefill begins anew, as an attempt and in pages of its own."""

    name = "retry-takes-other-pages"
    protects = "isolation"
    race_classes = ("attempt-identity",)
    stands_for = "a fresh room for each attempt (Kthena); a router that never replays what was dispatched (SGLang)"
    judges = (KeepDestination,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, KeepDestination)
        if question.outstanding == 0:
            return None
        return f"{question.before} can still write to {question.outstanding} of its pages, under the same attempt"

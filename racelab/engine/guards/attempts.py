"""Guards of a request's attempts: that each goes by a name of its own."""

from __future__ import annotations

from dataclasses import dataclass

from racelab.engine.guards.guard import Guard, Question


@dataclass(frozen=True)
class KeepAttempt(Question):
    """May a request whose pages were taken back wait for others as the same attempt?"""


class RetractionRenewsAttempt(Guard):
    """What was retracted comes again as another attempt: nothing of the transfer that it left is taken for the new."""

    name = "retraction-renews-attempt"
    protects = "integrity"
    race_classes = ("attempt-identity",)
    stands_for = "an attempt number in each transfer id, carried on the wire (SGLang-JAX)"
    judges = (KeepAttempt,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, KeepAttempt)
        return "what is still under way for its first transfer goes by the same name as its second"

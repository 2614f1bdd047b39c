"""Guards of what belongs to a page's KV without being KV: it counts only together with it."""

from __future__ import annotations

from dataclasses import dataclass

from racelab.engine.guards.guard import Guard, Question


@dataclass(frozen=True)
class CommitApart(Question):
    """May decode commit the KV while parts of the streams that belong to it are missing?"""

    missing: tuple[str, ...]
    """the streams of which a part has not been heard of"""
    failed: tuple[str, ...]
    """those of which a part failed"""


class CommitTogether(Guard):
    """KV and whatever it needs to be read, or is read beside it, are committed together or not at all."""

    name = "commit-together"
    protects = "integrity"
    race_classes = ("partial-success",)
    stands_for = "the set of state components that is due, compared with those that have arrived (SGLang)"
    judges = (CommitApart,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, CommitApart)
        if question.failed:
            return f"a part of {' and '.join(question.failed)} failed"
        return f"a part of {' and '.join(question.missing)} has not arrived" if question.missing else None

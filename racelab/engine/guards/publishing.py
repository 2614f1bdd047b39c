"""Guards of the prefix cache: what others may find in it."""

from __future__ import annotations

from dataclasses import dataclass

from racelab.engine.guards.guard import Guard, Question


@dataclass(frozen=True)
class PublishPages(Question):
    """May other requests find pages of this attempt in the prefix cache?"""

    committed: bool


class PublishAfterCommit(Guard):
    """A page can be found in the prefix cache once its KV is committed, and not before."""

    name = "publish-after-commit"
    protects = "integrity"
    race_classes = ("early-publish",)
    stands_for = "caching blocks only once their remote load has finished (vLLM, SGLang, LMCache)"
    judges = (PublishPages,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, PublishPages)
        return None if question.committed else "its KV is not committed: whoever finds it would read what is not there"

"""Guards of what counts as arrived: the transport's word, or the memory itself."""

from __future__ import annotations

from dataclasses import dataclass

from racelab.engine.guards.guard import Guard, Question


@dataclass(frozen=True)
class TrustCompletion(Question):
    """May a part count as arrived because its writer's transport said so, while its bytes are not to be seen?"""

    missing: int


class BytesBeforeCommit(Guard):
    """A part has arrived when its last bytes are in memory, whatever the transport has said."""

    name = "bytes-before-commit"
    protects = "integrity"
    race_classes = ("ordering",)
    stands_for = (
        "reading back the tails of the descriptors until they are there (proposed for vLLM's Mooncake connector)"
    )
    judges = (TrustCompletion,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, TrustCompletion)
        return f"the last bytes of {question.missing} range(s) that were reported as written are not there"

"""Guards of a transfer: what may still be posted, acknowledged and committed."""

from __future__ import annotations

from dataclasses import dataclass

from racelab.engine.guards.guard import Guard, Question


@dataclass(frozen=True)
class PostChunk(Question):
    """May prefill post another chunk's writes?"""

    aborted: bool


@dataclass(frozen=True)
class AcknowledgeAbort(Question):
    """May prefill tell decode now that no write of an aborted attempt can land any more?"""

    outstanding: int
    """writes without a completion"""
    failed: int
    """chunks of which a write completed with an error"""


@dataclass(frozen=True)
class CommitTransfer(Question):
    """May decode take what has arrived for a complete transfer?"""

    failed: int
    """chunks of which prefill reported a failure"""
    missing: int
    """chunks of which there is no news"""
    tokens_written: int
    """how many tokens' KV prefill says that it transfers"""
    tokens_reserved: int
    """for how many decode has asked"""


class StopPostingOnAbort(Guard):
    """Once decode has given an attempt up, no further chunk of it is posted."""

    name = "stop-posting-on-abort"
    protects = "isolation"
    race_classes = ("release-under-writer",)
    stands_for = "the abort message that makes prefill skip queued chunks (SGLang)"
    judges = (PostChunk,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, PostChunk)
        return "decode has given the attempt up, and may give its pages away" if question.aborted else None


class AckWhenDrained(Guard):
    """An abort is acknowledged when nothing is outstanding, and as clean only if every write succeeded."""

    name = "ack-when-drained"
    protects = "isolation"
    race_classes = ("drain-protocol",)
    stands_for = "outstanding chunks counted per room, kept across its end, acknowledged only at zero (SGLang)"
    judges = (AcknowledgeAbort,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, AcknowledgeAbort)
        if question.outstanding:
            return f"{question.outstanding} write(s) are outstanding"
        return f"{question.failed} chunk(s) failed, and an error is no evidence" if question.failed else None


class CommitWhenWhole(Guard):
    """A transfer is complete when every part of it has arrived, and a part that failed has not."""

    name = "commit-when-whole"
    protects = "integrity"
    race_classes = ("partial-success",)
    stands_for = (
        "failed block ids reported to the scheduler (vLLM), component sets compared with what is due (SGLang), the end "
        "of every layer's transfer awaited and not that of the last layer alone (vLLM Ascend)"
    )
    judges = (CommitTransfer,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, CommitTransfer)
        if question.failed:
            return f"{question.failed} part(s) failed"
        return f"{question.missing} part(s) have not been heard of" if question.missing else None


class LengthsAgree(Guard):
    """What prefill transfers is as long as what decode has reserved."""

    name = "lengths-agree"
    protects = "integrity"
    race_classes = ("partial-success",)
    stands_for = "the transferred length published beside the KV and compared before the commit (SGLang)"
    judges = (CommitTransfer,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, CommitTransfer)
        if question.tokens_written == question.tokens_reserved:
            return None
        return f"prefill transfers {question.tokens_written} token(s); decode waits for {question.tokens_reserved}"

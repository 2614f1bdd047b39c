"""Guards of an attempt's end: that its peer hears of it, and that nobody waits for ever for a peer.

What is asked here is whether a duty may be left out: an objection makes the engine do it.
"""

from __future__ import annotations

from dataclasses import dataclass

from racelab.engine.guards.guard import Guard, Question

SILENCE = "silence"
"""What leaving the duty out leads to: no event."""


@dataclass(frozen=True)
class SkipNotice(Question):
    """May the end of an attempt be kept from the peer that has it too?"""

    peer: str


@dataclass(frozen=True)
class KeepWaiting(Question):
    """May an engine go on waiting for what its peer has to say?"""

    waited_ms: int
    limit_ms: int
    replaced: bool = False
    """whether another process has taken the peer's place"""


class TellPeerOfEnd(Guard):
    """Whoever ends an attempt tells the peer: decode by `abort`, prefill by `failed`."""

    name = "tell-peer-of-end"
    protects = "conservation"
    race_classes = ("abort-leak",)
    stands_for = "the free notification sent from every abort and reject path (vLLM), abort notices both ways (SGLang)"
    judges = (SkipNotice,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, SkipNotice)
        return f"{question.peer} keeps pages for the attempt until it hears of its end"


class ReceiveWatchdog(Guard):
    """Nobody waits for a peer without a limit: decode for a transfer, prefill for the end of an attempt."""

    name = "receive-watchdog"
    protects = "finality"
    race_classes = ("lost-signal",)
    stands_for = "the waiting time-out of decode (SGLang), the hold limit of prefill's blocks (vLLM)"
    judges = (KeepWaiting,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, KeepWaiting)
        if question.waited_ms < question.limit_ms:
            return None
        return f"no word for {question.waited_ms:,} ms; the limit is {question.limit_ms:,}"


class CheckIncarnation(Guard):
    """What was under way with a process ends with it: the one that took its place knows nothing of it."""

    name = "check-incarnation"
    protects = "finality"
    race_classes = ("peer-incarnation",)
    stands_for = "an instance id in each bootstrap answer, and registering anew when it changes (SGLang)"
    judges = (KeepWaiting,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, KeepWaiting)
        return "the peer has been replaced, and its successor knows nothing of it" if question.replaced else None


@dataclass(frozen=True)
class ForgetPages(Question):
    """May an attempt that ends where nobody looks for it keep its pages?"""

    where: str


class EndFreesPages(Guard):
    """Whoever ends an attempt gives its pages back, wherever the attempt stood."""

    name = "end-frees-pages"
    protects = "conservation"
    race_classes = ("abort-leak",)
    stands_for = "pages freed in every queue that a request can wait in (SGLang)"
    judges = (ForgetPages,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, ForgetPages)
        return f"its pages are not in anybody's hands any more: it was {question.where}"

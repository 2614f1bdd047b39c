"""Guards of a page's end: when it may return to the allocator."""

from __future__ import annotations

from dataclasses import dataclass

from racelab.engine.guards.guard import Guard, Question


@dataclass(frozen=True)
class FreePage(Question):
    """May a released page return to the allocator?"""

    outstanding_grants: int
    live_gen: int
    is_free: bool


@dataclass(frozen=True)
class FreeExpired(Question):
    """May a page whose drain has run out return to the allocator without stop evidence?"""

    outstanding_grants: int


@dataclass(frozen=True)
class EndDrain(Question):
    """May a drain end without stop evidence at all?"""


class DrainBeforeFree(Guard):
    """A page that a peer may still write waits for evidence that it cannot."""

    name = "drain-before-free"
    protects = "isolation"
    race_classes = ("release-under-writer", "release-under-reader")
    stands_for = "deferred release of decode KV after an abort (SGLang), delayed block free (vLLM connectors)"
    judges = (FreePage,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, FreePage)
        if question.outstanding_grants == 0:
            return None
        return f"{question.outstanding_grants} grant(s) outstanding and no evidence that the writer stopped"


class QuarantineOnExpiry(Guard):
    """A drain that runs out ends the request; the page is counted and never used again."""

    name = "quarantine-on-expiry"
    protects = "isolation"
    race_classes = ("drain-protocol",)
    stands_for = "the PdLedger design; upstream engines free on the fall-back time-out instead"
    judges = (FreeExpired,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, FreeExpired)
        return f"the drain ran out with {question.outstanding_grants} grant(s) outstanding: time is no evidence"


class HoldWithoutEnd(Guard):
    """A draining page waits for stop evidence for ever. Sound for isolation, and it ends nothing."""

    name = "hold-without-end"
    protects = "isolation"
    race_classes = ("drain-protocol",)
    stands_for = "blocks held until the receive is reported, with no other release path (vLLM)"
    judges = (EndDrain,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, EndDrain)
        return "only evidence ends the drain"

"""Guards of source pages that decode pulls: which references are honoured, and whose lease goes on."""

from __future__ import annotations

from dataclasses import dataclass

from racelab.engine.guards.guard import Guard, Question


@dataclass(frozen=True)
class HonourClaim(Question):
    """May the attempt read the source pages that its reference names?

    `made_for` is the attempt for which the reference was made; `ended` are the pages and generations in it
    that are over.
    """

    made_for: tuple[str, int]
    ended: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class LetLeaseLapse(Question):
    """May the lease of the source pages end while their reader still waits for them?"""


class ReferenceNamesGeneration(Guard):
    """A reference is honoured for the attempt that it was made for, while the generations that it names live."""

    name = "reference-names-generation"
    protects = "isolation"
    race_classes = ("release-under-reader",)
    stands_for = "no upstream engine yet: vLLM's open report asks for a generation or request check on the producer"
    judges = (HonourClaim,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, HonourClaim)
        if question.ended:
            page, gen = question.ended[0]
            return f"the reference names source page {page} gen {gen}, which is over"
        request, attempt = question.made_for
        if question.made_for != (question.request, question.attempt):
            return f"the reference was made for {request} attempt {attempt}"
        return None


class RenewLease(Guard):
    """Whoever waits to read source pages renews their lease."""

    name = "renew-lease"
    protects = "finality"
    race_classes = ("lease-clock",)
    stands_for = "heartbeats of pending transfers in place of one long time-out (vLLM NIXL connector)"
    judges = (LetLeaseLapse,)

    def objection(self, question: Question) -> str | None:
        return f"{question.request} still waits to read the pages"

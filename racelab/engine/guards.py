"""Guards: named protections that can be taken away one at a time.

An engine asks before it does something that a race can turn wrong: it puts a Question to its
Guards, and the first guard with an objection refuses. The refusal is recorded as event `refused`,
naming the event kind that would have followed. A policy is a set of guards; `eager` has none.

Write one: a class with a `name`, what it `protects`, the questions that it `judges`, and
`objection`; add it to GUARDS. docs/guards.md has an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from racelab.evidence.recorder import Recorder


class Ticket(NamedTuple):
    """The right to one incarnation of a page: it is stale once the page's generation has moved on."""

    page: int
    gen: int
    request: str
    attempt: int


@dataclass(frozen=True)
class Question:
    """Something an engine is about to do for a ticket or an attempt; `leads_to` is the event it means."""

    request: str
    attempt: int
    page: int | None
    gen: int | None
    leads_to: str


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
class ApplyControl(Question):
    """May a control message change the state of the request that it names?"""

    message: str
    live_attempt: int
    ended: bool


@dataclass(frozen=True)
class PublishPages(Question):
    """May other requests find pages of this attempt in the prefix cache?"""

    committed: bool


class Guard(ABC):
    """One protection. `stands_for` names the published strategies that do the same."""

    name: ClassVar[str]
    protects: ClassVar[str]
    stands_for: ClassVar[str]
    judges: ClassVar[tuple[type[Question], ...]]

    @abstractmethod
    def objection(self, question: Question) -> str | None:
        """Why not, in one line; None to let it pass."""


class DrainBeforeFree(Guard):
    """A page that a peer may still write waits for evidence that it cannot."""

    name = "drain-before-free"
    protects = "isolation"
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
    stands_for = "the PdLedger design; upstream engines free on the fall-back time-out instead"
    judges = (FreeExpired,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, FreeExpired)
        return f"the drain ran out with {question.outstanding_grants} grant(s) outstanding: time is no evidence"


class ControlCarriesGeneration(Guard):
    """A message or a release acts only on the attempt and the page incarnation that it names."""

    name = "control-carries-generation"
    protects = "isolation"
    stands_for = "transfer ids checked against the live request (vLLM, SGLang bootstrap rooms)"
    judges = (ApplyControl, FreePage)

    def objection(self, question: Question) -> str | None:
        match question:
            case ApplyControl(attempt=attempt, live_attempt=live) if attempt != live:
                return f"{question.message} is of attempt {attempt}; attempt {live} is live"
            case ApplyControl(ended=True):
                return f"{question.message} is of attempt {question.attempt}, which has ended"
            case FreePage(gen=gen, live_gen=live) if gen != live:
                return f"the ticket is of generation {gen}; generation {live} is live"
            case FreePage(is_free=True):
                return f"generation {question.gen} has ended already"
            case _:
                return None


class PublishAfterCommit(Guard):
    """A page can be found in the prefix cache once its KV is committed, and not before."""

    name = "publish-after-commit"
    protects = "integrity"
    stands_for = "caching blocks only once their remote load has finished (vLLM, SGLang, LMCache)"
    judges = (PublishPages,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, PublishPages)
        return None if question.committed else "its KV is not committed: whoever finds it would read what is not there"


GUARDS: dict[str, type[Guard]] = {
    guard.name: guard for guard in (DrainBeforeFree, QuarantineOnExpiry, ControlCarriesGeneration, PublishAfterCommit)
}

POLICIES: dict[str, tuple[str, ...]] = {
    "eager": (),
    "ledger": tuple(GUARDS),
}


class Guards:
    """The guards of one engine; `refuse` asks them and records a refusal."""

    def __init__(self, names: Iterable[str], recorder: Recorder) -> None:
        self._guards = [GUARDS[name]() for name in names]
        self._recorder = recorder

    def refuse(self, question: Question) -> bool:
        """Whether some guard objects."""
        for guard in self._guards:
            if not isinstance(question, guard.judges):
                continue
            objection = guard.objection(question)
            if objection is not None:
                self._recorder.record(
                    "refused",
                    question.request,
                    question.attempt,
                    question.page,
                    question.gen,
                    guard=guard.name,
                    refuses=question.leads_to,
                    why=objection,
                )
                return True
        return False

"""What a guard is: a named protection that can be taken away, asked before something can turn wrong.

An engine puts a Question to its Guards, and the first guard with an objection refuses. The refusal
is recorded as event `refused`, naming the event kind that would have followed. Of a duty (to tell a
peer, to give up waiting) the question is whether it may be left out.
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


class Guard(ABC):
    """One protection: the specification that it `protects`, the `race_classes` that it answers
    (docs/races.md), and the published strategies that it `stands_for`."""

    name: ClassVar[str]
    protects: ClassVar[str]
    race_classes: ClassVar[tuple[str, ...]]
    stands_for: ClassVar[str]
    judges: ClassVar[tuple[type[Question], ...]]

    @abstractmethod
    def objection(self, question: Question) -> str | None:
        """Why not, in one line; None to let it pass."""


class Guards:
    """The guards of one engine; `refuse` asks them and records a refusal."""

    def __init__(self, guards: Iterable[Guard], recorder: Recorder) -> None:
        self._guards = list(guards)
        self._recorder = recorder

    def judge(self, kind: type[Question]) -> bool:
        """Whether any of them answers questions of a kind: for what is only done where one does."""
        return any(issubclass(kind, guard.judges) for guard in self._guards)

    def refuse(self, question: Question) -> Guard | None:
        """The first guard that objects, if one does."""
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
                return guard
        return None

"""Guards of control messages: whose state they may change."""

from __future__ import annotations

from dataclasses import dataclass

from racelab.engine.guards.guard import Guard, Question
from racelab.engine.guards.pages import FreePage


@dataclass(frozen=True)
class ApplyControl(Question):
    """May a control message change the state of the request that it names?"""

    message: str
    live_attempt: int
    ended: bool


class ControlCarriesGeneration(Guard):
    """A message or a release acts only on the attempt and the page incarnation that it names."""

    name = "control-carries-generation"
    protects = "isolation"
    race_class = "stale-control"
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

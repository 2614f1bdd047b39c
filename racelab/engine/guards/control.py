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
    live_request: str | None = None
    """whose state it would change, where that is not the message's own"""


@dataclass(frozen=True)
class RegisterTransfer(Question):
    """May an attempt go by a transfer id that another one holds?"""

    transfer: str
    held_by: str


@dataclass(frozen=True)
class ReviveTransfer(Question):
    """May a late reserve open a transfer again that has ended on prefill?"""

    over: str


@dataclass(frozen=True)
class SendUnregistered(Question):
    """May decode ask for a transfer while it would not know what the answer is to?"""

    queued: int
    """pieces of local work that come before its registration, and that itself"""


class ControlCarriesGeneration(Guard):
    """A message or a release acts only on the attempt and the page incarnation that it names."""

    name = "control-carries-generation"
    protects = "isolation"
    race_classes = ("stale-control", "double-completion")
    stands_for = "transfer ids checked against the live request (vLLM, SGLang bootstrap rooms)"
    judges = (ApplyControl, FreePage)

    def objection(self, question: Question) -> str | None:
        match question:
            case ApplyControl(live_request=str() as live) if live != question.request:
                return f"{question.message} is of {question.request}; it would change {live}"
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


class UniqueTransferId(Guard):
    """A transfer id that is in use is not given to another request."""

    name = "unique-transfer-id"
    protects = "isolation"
    race_classes = ("attempt-identity",)
    stands_for = "active bootstrap rooms and transfer ids refused as a request error (SGLang, vLLM)"
    judges = (RegisterTransfer,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, RegisterTransfer)
        return f"transfer id {question.transfer} is in use by {question.held_by}"


class RememberEnded(Guard):
    """A transfer that has ended stays ended, however late its reserve comes."""

    name = "remember-ended"
    protects = "finality"
    race_classes = ("stale-control",)
    stands_for = "a tombstone for each room that ended, which answers late manifests with a failure (SMG)"
    judges = (ReviveTransfer,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, ReviveTransfer)
        return f"it has ended on prefill: {question.over}"


class RegisterBeforeSend(Guard):
    """Decode knows a transfer before it asks for it, so that no answer comes too early."""

    name = "register-before-send"
    protects = "finality"
    race_classes = ("lost-signal",)
    stands_for = "rooms registered before their metadata is sent (SGLang), early notifications kept (vLLM)"
    judges = (SendUnregistered,)

    def objection(self, question: Question) -> str | None:
        assert isinstance(question, SendUnregistered)
        return f"it is not registered: {question.queued} piece(s) of local work are queued up to there"

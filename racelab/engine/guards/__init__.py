"""Guards: named protections of the reference engine that can be taken away one at a time.

A policy is a set of guards. Write one: a class with a `name`, what it `protects`, the `race_classes` that it
answers, the questions that it `judges`, and an `objection`; add it to GUARDS in policies.py. docs/guards.md
has an example.
"""

from __future__ import annotations

from collections.abc import Iterable

from racelab.engine.guards.arrival import TrustCompletion
from racelab.engine.guards.attempts import KeepAttempt
from racelab.engine.guards.control import ApplyControl, RegisterTransfer, ReviveTransfer, SendUnregistered
from racelab.engine.guards.endings import SILENCE, ForgetPages, KeepWaiting, SkipNotice
from racelab.engine.guards.guard import Guard, Guards, Question, Ticket
from racelab.engine.guards.handles import CloseOnFailure
from racelab.engine.guards.leases import HonourClaim, LetLeaseLapse
from racelab.engine.guards.local_work import AdvertisePages, PostUncomputed
from racelab.engine.guards.pages import EndDrain, FreeExpired, FreePage
from racelab.engine.guards.policies import ALL_GUARDS, GUARDS, POLICIES
from racelab.engine.guards.publishing import PublishPages
from racelab.engine.guards.retries import KeepDestination
from racelab.engine.guards.slots import UseSlot
from racelab.engine.guards.together import CommitApart
from racelab.engine.guards.transfer import AcknowledgeAbort, CommitTransfer, PostChunk
from racelab.evidence.recorder import Recorder


def guarded(names: Iterable[str], recorder: Recorder) -> Guards:
    """The guards of these names, which record their refusals with `recorder`."""
    return Guards((ALL_GUARDS[name]() for name in names), recorder)


__all__ = [
    "ALL_GUARDS",
    "GUARDS",
    "POLICIES",
    "SILENCE",
    "AcknowledgeAbort",
    "AdvertisePages",
    "ApplyControl",
    "CloseOnFailure",
    "CommitApart",
    "CommitTransfer",
    "EndDrain",
    "ForgetPages",
    "FreeExpired",
    "FreePage",
    "Guard",
    "Guards",
    "HonourClaim",
    "KeepAttempt",
    "KeepDestination",
    "KeepWaiting",
    "LetLeaseLapse",
    "PostChunk",
    "PostUncomputed",
    "PublishPages",
    "Question",
    "RegisterTransfer",
    "ReviveTransfer",
    "SendUnregistered",
    "SkipNotice",
    "Ticket",
    "TrustCompletion",
    "UseSlot",
    "guarded",
]

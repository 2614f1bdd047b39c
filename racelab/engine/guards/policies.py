"""Policies: named sets of guards. `eager` has none, `ledger` all that are sound together; between them is
what engines have published.
"""

from __future__ import annotations

from racelab.engine.guards.arrival import BytesBeforeCommit
from racelab.engine.guards.attempts import RetractionRenewsAttempt
from racelab.engine.guards.control import (
    ControlCarriesGeneration,
    RegisterBeforeSend,
    RememberEnded,
    UniqueTransferId,
)
from racelab.engine.guards.endings import CheckIncarnation, EndFreesPages, ReceiveWatchdog, TellPeerOfEnd
from racelab.engine.guards.guard import Guard
from racelab.engine.guards.handles import EveryHandleStopped
from racelab.engine.guards.leases import ReferenceNamesGeneration, RenewLease
from racelab.engine.guards.local_work import ComputeBeforePost, LocalWorkBeforeGrant
from racelab.engine.guards.pages import DrainBeforeFree, HoldWithoutEnd, QuarantineOnExpiry
from racelab.engine.guards.publishing import PublishAfterCommit
from racelab.engine.guards.retries import RetryTakesOtherPages
from racelab.engine.guards.slots import SlotCarriesOwner
from racelab.engine.guards.together import CommitTogether
from racelab.engine.guards.transfer import AckWhenDrained, CommitWhenWhole, LengthsAgree, StopPostingOnAbort

_LEDGER: tuple[type[Guard], ...] = (
    DrainBeforeFree,
    QuarantineOnExpiry,
    ControlCarriesGeneration,
    PublishAfterCommit,
    TellPeerOfEnd,
    StopPostingOnAbort,
    AckWhenDrained,
    CommitWhenWhole,
    LengthsAgree,
    ReceiveWatchdog,
    LocalWorkBeforeGrant,
    ComputeBeforePost,
    ReferenceNamesGeneration,
    RenewLease,
    EveryHandleStopped,
    SlotCarriesOwner,
    UniqueTransferId,
    RememberEnded,
    RegisterBeforeSend,
    CheckIncarnation,
    BytesBeforeCommit,
    CommitTogether,
    RetryTakesOtherPages,
    EndFreesPages,
    RetractionRenewsAttempt,
)

GUARDS: dict[str, type[Guard]] = {guard.name: guard for guard in _LEDGER}
"""The guards of the policy `ledger`: each alone can be taken away."""

ALL_GUARDS: dict[str, type[Guard]] = GUARDS | {guard.name: guard for guard in (HoldWithoutEnd,)}
"""Those, and guards of upstream strategies that are not sound."""

_KNOWS_ITS_OWN = "control-carries-generation"
"""Every published strategy looks whether a message's request is still there; without it nothing else would show."""

_ABORT_NOTIFY = (_KNOWS_ITS_OWN, "tell-peer-of-end", "stop-posting-on-abort")
_DEFERRED_RELEASE = (*_ABORT_NOTIFY, "drain-before-free", "ack-when-drained")

POLICIES: dict[str, tuple[str, ...]] = {
    "eager": (),
    "abort-notify": _ABORT_NOTIFY,
    "deferred-release": _DEFERRED_RELEASE,
    "hold-forever": (*_DEFERRED_RELEASE, "hold-without-end"),
    "lease": (_KNOWS_ITS_OWN, "drain-before-free", "renew-lease"),
    "ledger": tuple(GUARDS),
}
"""By name: `abort-notify` tells prefill to stop and frees at once; `deferred-release` waits for its
acknowledgement and frees after a fall-back time-out; `hold-forever` has no fall-back; of `lease` the
right to the pages ends with time."""

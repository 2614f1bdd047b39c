"""Guards: named protections of the reference engine that can be taken away one at a time.

A policy is a set of guards; `eager` has none, `ledger` all that are sound together. Write one: a class with a `name`,
what it `protects`, the `race_class` that it answers, the questions that it `judges`, and an `objection`; add
it to GUARDS. docs/guards.md has an example.
"""

from __future__ import annotations

from collections.abc import Iterable

from racelab.engine.guards.control import ApplyControl, ControlCarriesGeneration
from racelab.engine.guards.guard import Guard, Guards, Question, Ticket
from racelab.engine.guards.pages import DrainBeforeFree, FreeExpired, FreePage, QuarantineOnExpiry
from racelab.engine.guards.publishing import PublishAfterCommit, PublishPages
from racelab.evidence.recorder import Recorder

GUARDS: dict[str, type[Guard]] = {
    guard.name: guard for guard in (DrainBeforeFree, QuarantineOnExpiry, ControlCarriesGeneration, PublishAfterCommit)
}
"""The guards of the policy `ledger`: each alone can be taken away."""

POLICIES: dict[str, tuple[str, ...]] = {
    "eager": (),
    "ledger": tuple(GUARDS),
}


def guarded(names: Iterable[str], recorder: Recorder) -> Guards:
    """The guards of these names, which record their refusals with `recorder`."""
    return Guards((GUARDS[name]() for name in names), recorder)


__all__ = [
    "GUARDS",
    "POLICIES",
    "ApplyControl",
    "FreeExpired",
    "FreePage",
    "Guard",
    "Guards",
    "PublishPages",
    "Question",
    "Ticket",
    "guarded",
]

"""The systems under test. `reference` is the engine that comes with racelab."""

from __future__ import annotations

from racelab.engine.glue_faults import GLUE_FAULTS
from racelab.engine.guards import ALL_GUARDS, POLICIES
from racelab.errors import UsageError
from racelab.targets.stream import STREAM
from racelab.targets.target import Target

TARGETS = {
    "reference": Target(
        name="reference",
        means="the small prefill/decode engine that comes with racelab",
        entry="racelab.targets.reference:run",
        policies=POLICIES,
        guards_known=tuple(ALL_GUARDS),
        glue_faults=tuple(GLUE_FAULTS),
        forks=True,
        stream=STREAM,
    ),
}


def target(name: str) -> Target:
    """A target by name.

    Raises:
        UsageError: there is no such target.
    """
    if name not in TARGETS:
        raise UsageError(f"unknown target {name!r}", next=f"one of: {', '.join(TARGETS)}")
    return TARGETS[name]

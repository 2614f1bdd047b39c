"""A target: the system under test, as the lab and the conductor see it.

The lab starts its instances from `entry`; each connects to the hub by itself and answers the commands reset,
use_gate, peer_replaced, arm_lane, disarm_lane, join_bus, submit, abort, retry, retract, advance, retire, look, dissect,
sync, timers, register, unregister and quiesce with the events of docs/history.md. `policies` maps a policy's name to
its guards, and is empty for an engine whose protections have no names. `reset` gets a `glue_fault` if one is
asked for, and in a process that takes another's place `numbers_from`, and a dead one's within a run
`generations_from` too, where the other's events and generations ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from racelab.engine.glue_faults import PUBLISH_BEFORE_COMMIT
from racelab.errors import UsageError
from racelab.gates import Injector


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """`entry` is "module:function", called in an instance's own process as `function(name, **options)`."""

    name: str
    means: str
    entry: str
    policies: Mapping[str, tuple[str, ...]]
    guards_known: tuple[str, ...] = ()
    """every guard that a policy of a user's own may name"""
    glue_faults: tuple[str, ...] = ()
    """known faults between the engine and its ledger that it can switch on"""
    unreported: tuple[str, ...] = ()
    """kinds of events (docs/history.md) that happen in it and that it cannot see"""
    forks: bool = False
    """whether an instance may be forked from a process that has imported `entry`: no thread is started by that"""
    stream: Injector | None = None
    """what it can hold of its own local work, if its instances answer arm_work and release_work"""

    def guards(self, policy: str, without: Iterable[str] = ()) -> list[str]:
        """The names of a policy's guards, less those taken away.

        Raises:
            UsageError: no such policy or guard, or the policy does not have the guard.
        """
        if policy not in self.policies:
            raise UsageError(f"unknown policy {policy!r}", next=f"one of: {', '.join(self.policies)}")
        names = list(self.policies[policy])
        for name in without:
            if name not in names:
                has = ", ".join(names) or "none"
                raise UsageError(f"policy {policy!r} has no guard {name!r} to take away", next=f"its guards: {has}")
            names.remove(name)
        return names

    def check_glue_fault(self, name: str | None, *, prefix_cache: bool) -> None:
        """Whether a glue fault can be switched on here.

        Raises:
            UsageError: the target does not know it, or it would change nothing.
        """
        if name is None:
            return
        if name not in self.glue_faults:
            known = ", ".join(self.glue_faults) or f"none for {self.name}"
            raise UsageError(f"unknown glue fault {name!r}", next=f"one of: {known}")
        if name == PUBLISH_BEFORE_COMMIT and not prefix_cache:
            raise UsageError(f"{name} changes nothing without a prefix cache", next="run a scenario whose lab has one")

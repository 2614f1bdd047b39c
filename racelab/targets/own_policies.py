"""Policies of a user's own: a YAML file with a name and its guards, given where a policy's name goes.

policy: my-fix
about: what we mean to ship
guards: [drain-before-free, tell-peer-of-end]
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from racelab import documents
from racelab.targets.target import Target


class OwnPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """One such file."""

    policy: str
    guards: list[str]
    about: str = ""


def with_own(system: Target, asked: Iterable[str]) -> tuple[Target, dict[str, str]]:
    """The target with the policies of files among those asked for; by name, how each was asked for.

    Raises:
        DocumentError: with everything that is wrong in a file.
    """
    policies = dict(system.policies)
    names: dict[str, str] = {}
    for given in asked:
        if given.endswith((".yaml", ".yml")):
            own = read(system, given)
            policies[own.policy] = tuple(own.guards)
            names[own.policy] = given
        else:
            names[given] = given
    return msgspec.structs.replace(system, policies=policies), names


def read(system: Target, path: str) -> OwnPolicy:
    """A policy from its file, checked against what the target has."""
    document = documents.read(path)
    own = document.build(OwnPolicy, document.data)
    given = document.data if isinstance(document.data, dict) else {}
    if given.get("policy") in list(system.policies):
        document.problem(f"there is a policy {given['policy']!r} already", "policy")
    guards = given.get("guards")
    named = guards if isinstance(guards, list) else []
    for place, guard in enumerate(named):
        if not isinstance(guard, str):
            continue
        if guard not in system.guards_known:
            near = documents.nearest(guard, list(system.guards_known))
            document.problem(f"no guard {guard!r}{near}", "guards", place)
        elif guard in named[:place]:
            document.problem(f"guard {guard!r} stands twice", "guards", place)
    document.finish(next="racelab list guards shows them; docs/guards.md has an example")
    assert own is not None
    return own

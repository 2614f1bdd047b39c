"""Which things a hold wants: the one place where a write or a message meets a `match`."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


class _Rule:
    """`left` more things that agree with `match` are wanted under `hold`."""

    __slots__ = ("_of", "_wanted", "hold", "left")

    def __init__(self, hold: str, match: msgspec.Struct, count: int) -> None:
        self.hold = hold
        self.left = count
        fields = {name: value for name, value in msgspec.structs.asdict(match).items() if value is not None}
        names = [*fields] * 2  # attrgetter gives a tuple for two names and more: one comparison, in C
        self._of = attrgetter(*names) if names else None
        self._wanted = tuple(fields[name] for name in names)

    def agrees(self, thing: msgspec.Struct) -> bool:
        return self._of is None or bool(self._of(thing) == self._wanted)


class Rules(Generic[T]):
    """The rules that are armed, over things of one kind. One thread, or the caller's lock.

    `match` is the struct of racelab.scenario whose given fields a thing must equal.
    """

    def __init__(self, match: type[msgspec.Struct]) -> None:
        self._match = match
        self._rules: list[_Rule] = []

    def arm(self, hold: str, match: msgspec.Struct | Mapping[str, Any], count: int) -> None:
        """From now on the next `count` things that agree with `match` are wanted under `hold`."""
        self._rules.append(_Rule(hold, msgspec.convert(match, self._match, from_attributes=True), count))

    def disarm(self, hold: str) -> None:
        """Want nothing more under `hold`."""
        self._rules = [rule for rule in self._rules if rule.hold != hold]

    def forget(self) -> int:
        """Drop every rule; how many had not fired in full."""
        unfired, self._rules = len(self._rules), []
        return unfired

    def __bool__(self) -> bool:
        return bool(self._rules)

    def choose(self, thing: T) -> str | None:
        """The hold that wants this thing, or None. Counts it; no I/O, no lock.

        Of several rules that agree, the one that was armed first takes it.
        """
        for rule in self._rules:
            if rule.agrees(thing):
                rule.left -= 1
                if rule.left == 0:
                    self._rules.remove(rule)
                return rule.hold
        return None

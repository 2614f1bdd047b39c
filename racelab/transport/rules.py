"""Which things a hold wants: the one place where a write or a message meets a `match`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

EVERY = 1 << 62
"""A count of 0 is no bound."""


class _Rule:
    """`left` more things whose `fields` equal `wanted`, and that touch `range`, go under `hold`; of a rule for whole
    `batches`, so many more batches."""

    __slots__ = ("batches", "fields", "hold", "left", "range", "wanted")

    def __init__(self, hold: str, match: msgspec.Struct, count: int) -> None:
        self.hold = hold
        self.left = count or EVERY
        given = {name: value for name, value in msgspec.structs.asdict(match).items() if value is not None}
        self.range: tuple[int, int] | None = given.pop("bytes", None)
        self.batches: set[str] | None = set() if given.pop("batch", False) else None
        values = tuple(given.values())
        # attrgetter gives the bare value for one name and a tuple for more: one comparison, in C
        self.fields: Callable[[Any], Any] = attrgetter(*given) if given else lambda thing: ()
        self.wanted: Any = values[0] if len(values) == 1 else values

    def touches(self, thing: Any) -> bool:
        """Whether a write fills a byte of the range, counted from the start of its page's layer."""
        if self.range is None:
            return True
        start, end = self.range
        return bool(thing.start < end and start < thing.start + thing.bytes)

    def takes(self, thing: Any) -> bool:
        """Whether a thing that agrees goes under the hold; counts it."""
        if self.batches is not None:
            if thing.batch is None or thing.batch in self.batches:
                return thing.batch is not None
            self.batches |= {thing.batch} if self.left else set()
        self.left -= 1
        return self.left >= 0


class Rules(Generic[T]):
    """The rules that are armed, over things of one kind. One thread, or the caller's lock.

    `match` is the struct of racelab.scenario whose given fields a thing must equal.
    """

    def __init__(self, match: type[msgspec.Struct]) -> None:
        self._match = match
        self._rules: list[_Rule] = []

    def arm(self, hold: str, match: msgspec.Struct | Mapping[str, Any], count: int) -> None:
        """From now on the next `count` things (0: all) that agree with `match` are wanted under `hold`."""
        self._rules.append(_Rule(hold, msgspec.convert(match, self._match, from_attributes=True), count))

    def disarm(self, hold: str) -> None:
        """Want nothing more under `hold`."""
        self._rules = [rule for rule in self._rules if rule.hold != hold]

    def forget(self) -> int:
        """Drop every rule; how many had not fired in full."""
        unfired, self._rules = sum(0 < rule.left <= EVERY >> 1 for rule in self._rules), []
        return unfired

    def __bool__(self) -> bool:
        return bool(self._rules)

    def choose(self, thing: T, among: Collection[str] | None = None) -> str | None:
        """The hold that wants this thing, or None. Counts it; no I/O, no lock.

        Of several rules that agree, the one that was armed first takes it. `among` are the holds that are asked.
        """
        for rule in self._rules:
            if among is not None and rule.hold not in among:
                continue
            if rule.fields(thing) == rule.wanted and rule.touches(thing):
                if not rule.takes(thing):
                    continue
                if rule.left == 0 and rule.batches is None:
                    self._rules.remove(rule)
                return rule.hold
        return None

    def takes_batches(self, hold: str | None = None) -> bool:
        """Whether what is wanted under a hold, or under any, are whole batches."""
        return any(rule.batches is not None and hold in (None, rule.hold) for rule in self._rules)

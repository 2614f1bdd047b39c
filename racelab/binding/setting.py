"""What a trace says of the configuration that was checked: the guard that is off, and the lab that is like it.

A model may carry that in the state before its first step; a binding says where (`setting`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from racelab import documents
from racelab.binding.expression import Expression, Scene, Undefined, parse, word
from racelab.scenario import Lab
from racelab.traces.trace import Trace
from racelab.traces.values import Function, Value

FINALITY = "finality-ms"
"""The one key of `set` that is the scenario's own and not its lab's."""


class LabRule(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """`set` these keys of the lab where the set `where` holds a word, or where it lacks it."""

    where: str
    holds: str | None = None
    lacks: str | None = None
    set: dict[str, Any]


class Stated(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """`guard` is the set of guards that are off; `duties` are those that make an engine act and refuse no step;
    `has` is the set of parts that the checked system has; `numbers` are keys of the lab and where their value is, 0
    for none; `rooms` is a function from requests to the transfer ids that their clients give them."""

    guard: str = "0"
    duties: list[str] = []
    has: str = "0"
    lab: list[LabRule] = []
    numbers: dict[str, str] = {}
    rooms: str = "0"


@dataclass(frozen=True)
class Setting:
    """What is known before the first step."""

    guard: str | None = None
    is_duty: bool = False
    has: frozenset[str] = frozenset()
    lab: dict[str, Any] = field(default_factory=dict)
    finality_ms: int | None = None
    rooms: dict[str, str] = field(default_factory=dict)


def check(document: documents.Document, stated: Stated) -> None:
    """Report what cannot be read in it."""
    for text in (
        stated.guard,
        stated.has,
        stated.rooms,
        *(rule.where for rule in stated.lab),
        *stated.numbers.values(),
    ):
        if isinstance(_parsed(text), str):
            document.problem(f"{text}: {_parsed(text)}", "setting")
    known = [one.encode_name for one in msgspec.structs.fields(Lab)] + [FINALITY]
    for place, keys in (("lab", [key for rule in stated.lab for key in rule.set]), ("numbers", list(stated.numbers))):
        for key in keys:
            if key not in known:
                document.problem(f"unknown key {key!r} of a lab{documents.nearest(key, known)}", "setting", place)


def of(trace: Trace, stated: Stated) -> Setting:
    """The setting of a trace."""
    if not trace.steps:
        return Setting()
    state = {name.rsplit("::", 1)[-1]: value for name, value in trace.steps[0].state.items()}
    scene = Scene({}, state, {})
    without = _words(stated.guard, scene) or ()
    guard = next(iter(without)) if len(without) == 1 else None
    chosen: dict[str, Any] = {}
    for rule in stated.lab:
        words = _words(rule.where, scene)
        if words is not None and (rule.holds in words or (rule.lacks is not None and rule.lacks not in words)):
            chosen |= rule.set
    for key, text in stated.numbers.items():
        number = _value(text, scene)
        if type(number) is int and number > 0:
            chosen[key] = number
    finality_ms = chosen.pop(FINALITY, None)
    lab = {key.replace("-", "_"): tuple(value) if isinstance(value, list) else value for key, value in chosen.items()}
    told = _value(stated.rooms, scene)
    rooms = {word(name): room for name, room in told.items() if type(room) is str} if isinstance(told, Function) else {}
    return Setting(guard, guard in stated.duties, _words(stated.has, scene) or frozenset(), lab, finality_ms, rooms)


def _parsed(text: str) -> Expression | str:
    try:
        return parse(text)
    except Exception as error:  # whatever the expression's parser says
        return str(error)


def _value(text: str, scene: Scene) -> Value | None:
    """The value of an expression; None where the state has no such value."""
    parsed = _parsed(text)
    assert isinstance(parsed, Expression)
    try:
        return parsed.value(scene)
    except Undefined:
        return None


def _words(text: str, scene: Scene) -> frozenset[str] | None:
    """The words of a set; None where the state has no such value."""
    found = _value(text, scene)
    return frozenset(map(word, found)) if isinstance(found, frozenset | tuple) else None


__all__ = ["FINALITY", "LabRule", "Setting", "Stated", "check", "of"]

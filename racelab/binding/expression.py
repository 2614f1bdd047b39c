"""The tiny language in which a binding points into a step of a trace.

    expression = term { "." name | "[" expression "]" }
    term       = name | "'" text "'" | integer | function "(" expression ")"

A name is a variable of the model in the state after the step, a parameter of the action, or the
word `this`: the request that a step is about, or the page that is asked for. Functions:

    old(e)      e in the state before the step
    keys(e)     the set of keys of a function, or of positions of a sequence
    changed(e)  the one key of e whose value differs from before the step
    gained(e)   the one element that came into the set or sequence e
    lost(e)     the one element that went out of it
    came(e)     the set of elements that came into it
    gone(e)     the set of elements that went out of it
    first(e)    the first element of a sequence
    last(e)     the last element of a sequence

There are no loops and no arithmetic: an expression has a value, or says why it has none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from racelab.traces.trace import State
from racelab.traces.values import Function, ModelValue, Value, show

_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<number>-?\d+)|'(?P<text>[^']*)'|(?P<mark>[.\[\]()])|(?P<bad>\S))"
)
DEPTH_MAX = 20


class Undefined(Exception):
    """The expression has no value in this step; the text says why."""


class Malformed(ValueError):
    """The text is no expression; says what was expected."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What an expression can see of one step."""

    before: State
    after: State
    names: Mapping[str, Value]

    def named(self, **names: Value) -> Scene:
        """The same step with more words."""
        return Scene(self.before, self.after, {**self.names, **names})


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression; `text` is what the binding says."""

    text: str
    _value: Callable[[Scene], Value]

    def value(self, scene: Scene) -> Value:
        """Its value in a step.

        Raises:
            Undefined: it has none.
        """
        return self._value(scene)


def parse(text: str) -> Expression:
    """Read an expression.

    Raises:
        Malformed: the text is none.
    """
    reader = _Reader(text)
    value = reader.expression(0)
    if reader.kind:
        raise Malformed(f"{text!r}: expected the end, found {reader.token!r}")
    return Expression(text, value)


def word(value: Value) -> str:
    """A value as a plain word: `"r1"`, the model value r1 and the variant r1 are all `r1`."""
    if isinstance(value, str):
        return value
    if isinstance(value, Function) and isinstance(value.get("tag"), str):
        return word(value["tag"])
    return show(value)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.rest = [(match.lastgroup, match[match.lastgroup]) for match in _TOKEN.finditer(text) if match.lastgroup]
        self.rest.reverse()
        self.kind: str | None = None
        self.token = ""
        self.next()

    def next(self) -> None:
        self.kind, self.token = self.rest.pop() if self.rest else (None, "")

    def take(self, mark: str) -> None:
        if self.kind != "mark" or self.token != mark:
            raise Malformed(f"{self.text!r}: expected '{mark}', found {self.token or 'the end'!r}")
        self.next()

    def expression(self, depth: int) -> Callable[[Scene], Value]:
        if depth > DEPTH_MAX:
            raise Malformed(f"{self.text!r}: nests too deep")
        value = self.term(depth)
        while self.kind == "mark" and self.token in ".[":
            if self.token == ".":
                self.next()
                if self.kind != "name":
                    raise Malformed(f"{self.text!r}: expected a field's name after '.'")
                value = _index(value, _constant(self.token))
                self.next()
            else:
                self.next()
                value = _index(value, self.expression(depth + 1))
                self.take("]")
        return value

    def term(self, depth: int) -> Callable[[Scene], Value]:
        kind, token = self.kind, self.token
        self.next()
        if kind == "text":
            return _constant(token)
        if kind == "number":
            return _constant(int(token))
        if kind != "name":
            raise Malformed(f"{self.text!r}: expected a name, found {token or 'the end'!r}")
        if self.kind != "mark" or self.token != "(":
            return _name(token)
        if token not in FUNCTIONS:
            raise Malformed(f"{self.text!r}: unknown function {token!r}; there are {', '.join(FUNCTIONS)}")
        self.take("(")
        inner = self.expression(depth + 1)
        self.take(")")
        return FUNCTIONS[token](inner)


Evaluate = Callable[[Scene], Value]


def _constant(value: Value) -> Evaluate:
    return lambda scene: value


def _name(name: str) -> Evaluate:
    def value(scene: Scene) -> Value:
        for names in (scene.names, scene.after):
            if name in names:
                return names[name]
        raise Undefined(f"there is no {name!r} here")

    return value


def _index(function: Evaluate, key: Evaluate) -> Evaluate:
    def value(scene: Scene) -> Value:
        of, at = function(scene), key(scene)
        if isinstance(of, tuple) and type(at) is int and 1 <= at <= len(of):
            return of[at - 1]
        if isinstance(of, Function):
            # a key may have become a string on its way through JSON, or been a model value before
            for candidate in (at, ModelValue(at) if isinstance(at, str) else word(at)):
                if candidate in of:
                    return of[candidate]
        raise Undefined(f"{_short(of)} has no {_short(at)}")

    return value


def _old(inner: Evaluate) -> Evaluate:
    return lambda scene: inner(Scene({}, scene.before, {k: v for k, v in scene.names.items() if k not in scene.before}))


def _keys(inner: Evaluate) -> Evaluate:
    return lambda scene: frozenset(_entries(inner(scene)))


def _changed(inner: Evaluate) -> Evaluate:
    def value(scene: Scene) -> Value:
        before, after = _entries(_old(inner)(scene)), _entries(inner(scene))
        keys = [key for key in after if key not in before or before[key] != after[key]]
        return _only(keys, "key changed")

    return value


def _gained(inner: Evaluate) -> Evaluate:
    return lambda scene: _only(_without(inner(scene), _old(inner)(scene)), "element came")


def _came(inner: Evaluate) -> Evaluate:
    return lambda scene: frozenset(_without(inner(scene), _old(inner)(scene)))


def _gone(inner: Evaluate) -> Evaluate:
    return lambda scene: frozenset(_without(_old(inner)(scene), inner(scene)))


def _lost(inner: Evaluate) -> Evaluate:
    return lambda scene: _only(_without(_old(inner)(scene), inner(scene)), "element went")


def _first(inner: Evaluate) -> Evaluate:
    return _index(inner, _constant(1))


def _last(inner: Evaluate) -> Evaluate:
    return lambda scene: _index(inner, _constant(len(_entries(inner(scene)))))(scene)


FUNCTIONS: dict[str, Callable[[Evaluate], Evaluate]] = {
    "old": _old,
    "keys": _keys,
    "changed": _changed,
    "gained": _gained,
    "lost": _lost,
    "came": _came,
    "gone": _gone,
    "first": _first,
    "last": _last,
}


def _entries(value: Value) -> Mapping[Value, Value]:
    if isinstance(value, Function):
        return value
    if isinstance(value, tuple):
        return dict(enumerate(value, start=1))
    raise Undefined(f"{_short(value)} has no keys")


def _elements(value: Value) -> Counter[Value]:
    if isinstance(value, tuple | frozenset):
        return Counter(value)
    raise Undefined(f"{_short(value)} is no set or sequence")


def _without(these: Value, those: Value) -> list[Value]:
    return list((_elements(these) - _elements(those)).elements())


def _only(found: list[Value], what: str) -> Value:
    if len(found) != 1:
        raise Undefined(f"{len(found) or 'no'} {what}")
    return found[0]


def _short(value: Value) -> str:
    text = show(value)
    return text if len(text) <= 40 else text[:37] + "..."


__all__ = ["Expression", "Malformed", "Scene", "Undefined", "parse", "word"]

"""Values as JSON: the ITF encoding of Apalache and Quint, and TLC's own, which says less.

    ITF                                       here
    true, "text", 12, {"#bigint": "12"}       bool, str, int
    [...] (a list), {"#tup": [...]}           tuple
    {"#set": [...]}                           frozenset
    {"#map": [[key, value], ...]}             Function (or tuple, on 1..n)
    {"field": ...}                            Function
    {"tag": "A", "value": unit}               Function, unit being () in each of its three spellings
    {"#unserializable": "text"}               ModelValue
    {"#model": "p1"}                          ModelValue (racelab's own, in ndjson)
    {"#tla": "SUBSET (1..9)"}                 Unlisted (racelab's own, in ndjson)

TLC writes sets as lists, model values as strings and the keys of functions as strings, and nobody
can tell them apart afterwards: they stay lists and strings. `null` becomes the model value null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from racelab.errors import TraceError
from racelab.traces.values import DEPTH_MAX, DIGITS_MAX, Function, ModelValue, Unlisted, Value, function, parse, show

_UNITS: tuple[Any, ...] = ({"#tup": []}, {}, "U_OF_UNIT", [])


def load(text: str, file: str, line: int = 1, *, floats: bool = False) -> Any:
    """Parse JSON text whose first line is `line` of the file; with `floats` a float is kept as text.

    Raises:
        TraceError: it is not JSON, with line and column, or it nests too deep.
    """
    try:
        return json.loads(text, parse_float=str if floats else _no_float, parse_int=_integer, parse_constant=_no_float)
    except json.JSONDecodeError as error:
        raise TraceError(
            f"column {error.colno}: not JSON: {error.msg}",
            file=file,
            line=line + error.lineno - 1,
            next="make the file anew and keep all of it",
        ) from None
    except (ValueError, RecursionError) as error:
        what = "nests too deep" if isinstance(error, RecursionError) else str(error)
        raise TraceError(f"not a trace: {what}", file=file, line=line) from None


def _integer(text: str) -> int:
    if len(text) > DIGITS_MAX:
        raise ValueError(f"an integer has more than {DIGITS_MAX} digits")
    return int(text)


def _no_float(text: str) -> Any:
    raise ValueError(f"{text} is no TLA+ value")


class Undecodable(ValueError):
    """The JSON is no value in this encoding; says what was expected."""


def decode(data: Any, depth: int = 0) -> Value:
    """The value of parsed ITF.

    Raises:
        Undecodable: it is none.
    """
    if depth > DEPTH_MAX:
        raise Undecodable(f"expected nesting of at most {DEPTH_MAX} levels")
    if data is None:
        return ModelValue("null")
    if isinstance(data, bool | int | str):
        return data
    if isinstance(data, list):
        return tuple(decode(item, depth + 1) for item in data)
    assert isinstance(data, dict)
    if len(data) == 1:
        ((key, inner),) = data.items()
        if key in _SPECIAL:
            return _SPECIAL[key](inner, depth + 1)
        if key.startswith("#"):
            raise Undecodable(f"expected one of {', '.join(_SPECIAL)}, found {key!r}")
    if data.keys() == {"tag", "value"} and data["value"] in _UNITS:
        return Function([("tag", decode(data["tag"], depth + 1)), ("value", ())])
    return Function({key: decode(item, depth + 1) for key, item in data.items()})


def _bigint(inner: Any, depth: int) -> Value:
    if not isinstance(inner, str) or not inner.removeprefix("-").isdecimal() or len(inner) > DIGITS_MAX:
        raise Undecodable(f"expected the digits of a #bigint, found {str(inner)[:40]!r}")
    return int(inner)


def _tuple(inner: Any, depth: int) -> Value:
    return tuple(decode(item, depth) for item in _list(inner, "#tup"))


def _set(inner: Any, depth: int) -> Value:
    items = [decode(item, depth) for item in _list(inner, "#set")]
    if len(frozenset(items)) != len(items):
        raise Undecodable("expected a #set in which every element stands once (and 1 beside true not at all)")
    return frozenset(items)


def _map(inner: Any, depth: int) -> Value:
    pairs = []
    for pair in _list(inner, "#map"):
        if not isinstance(pair, list) or len(pair) != 2:
            raise Undecodable("expected [key, value] pairs in a #map")
        pairs.append((decode(pair[0], depth), decode(pair[1], depth)))
    try:
        return function(pairs)
    except ValueError:
        raise Undecodable("expected a #map in which every key stands once") from None


def _text(inner: Any, depth: int) -> Value:
    if not isinstance(inner, str):
        raise Undecodable("expected a text")
    return ModelValue(inner)


def _list(inner: Any, what: str) -> list[Any]:
    if not isinstance(inner, list):
        raise Undecodable(f"expected a list in {what}")
    return inner


def _tla(inner: Any, depth: int) -> Value:
    try:
        return parse(str(inner))
    except TraceError as error:
        raise Undecodable(error.what) from None


_SPECIAL = {
    "#bigint": _bigint,
    "#tup": _tuple,
    "#set": _set,
    "#map": _map,
    "#unserializable": _text,
    "#model": _text,
    "#tla": _tla,
}

SAFE_INTEGER = 2**53
"""Beyond this a bare JSON number loses digits in other readers, so it is written as #bigint."""


def encode(value: Value, *, lossless: bool = False) -> Any:
    """A value as ITF; `lossless` keeps apart what ITF cannot, in racelab's own #model and #tla."""

    def inner(items: Iterable[Value]) -> list[Any]:
        return [encode(item, lossless=lossless) for item in items]

    match value:
        case bool() | str():
            return value
        case int():
            return value if abs(value) < SAFE_INTEGER else {"#bigint": str(value)}
        case ModelValue(name=name):
            return {"#model": name} if lossless else name
        case tuple():
            return inner(value)
        case frozenset():
            return {"#set": inner(sorted(value, key=show))}
        case Function():
            if all(isinstance(key, str) and not key.startswith("#") for key in value):
                return {str(key): encode(item, lossless=lossless) for key, item in value.items()}
            return {"#map": [inner(pair) for pair in value.items()]}
        case Unlisted():
            return {"#tla" if lossless else "#unserializable": show(value)}


def decode_state(data: Any, file: str, line: int) -> dict[str, Value]:
    """The variables of a state.

    Raises:
        TraceError: it is no mapping, or a variable has no value; it names the variable.
    """
    if not isinstance(data, Mapping):
        raise TraceError(f"expected a state with its variables, found {str(data)[:40]!r}", file=file, line=line)
    state = {}
    for name, value in data.items():
        try:
            state[name] = decode(value)
        except Undecodable as error:
            raise TraceError(f"variable {name!r}: {error}", file=file, line=line) from None
    return state


__all__ = ["Undecodable", "decode", "decode_state", "encode", "load"]

"""YAML documents that remember where each value stood, checked against typed structs.

A user's file is read once and *every* problem is reported with its line: unknown keys,
missing keys, values of the wrong type. msgspec alone stops at the first and knows no lines.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
import yaml

from racelab.errors import DocumentError, Problem

T = TypeVar("T", bound=msgspec.Struct)

Place = tuple[str | int, ...]


class Document:
    """A parsed file: plain `data`, and the line of every key and item by its path."""

    def __init__(self, data: Any, lines: dict[Place, int], file: str) -> None:
        self.data = data
        self.file = file
        self._lines = lines
        self._wrong: set[Place] = set()
        self.problems: list[Problem] = []

    def line(self, *place: str | int) -> int:
        """The line of the value at `place`, or of the nearest thing around it."""
        while place and place not in self._lines:
            place = place[:-1]
        return self._lines.get(place, 1)

    def at(self, *place: str | int) -> Any:
        """What stands at `place`, or None."""
        data = self.data
        for key in place:
            try:
                data = data[key]
            except (KeyError, IndexError, TypeError):
                return None
        return data

    def problem(self, what: str, *place: str | int) -> None:
        """Note a problem at `place`; `finish` raises them all together."""
        self.problems.append(Problem(what, self.line(*place)))
        self._wrong.update(place[:length] for length in range(len(place) + 1))

    def is_wrong(self, *place: str | int) -> bool:
        """Whether a problem was noted at `place` or within it: what follows from it need not be said as well."""
        return place in self._wrong

    def finish(self, next: str | None = None) -> None:
        """Raise DocumentError if any problem was noted, ordered by line."""
        if self.problems:
            ordered = sorted(dict.fromkeys(self.problems), key=lambda problem: problem.line or 0)
            raise DocumentError(ordered, file=self.file, next=next)

    def build(
        self, kind: type[T], data: Any, *place: str | int, partial: bool = False, more: tuple[str, ...] = ()
    ) -> T | None:
        """A `kind` from a mapping at `place`; None, with every problem noted, if it does not fit.

        With `partial` what fits is kept, for a look at the rest: None only if a key that it needs does not.
        `more` are keys that the caller has taken out of `data`, and knows.
        """
        if not isinstance(data, Mapping):
            self.problem(f"expected a mapping with {', '.join(_names(kind))}, got {_shown(data)}", *place)
            return kind() if partial and not _required(kind) else None
        before = len(self.problems)
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        for key in data:
            if key not in fields:
                known = [*fields, *(name for name in more if name not in fields)]
                self.problem(f"unknown key {key!r}{nearest(str(key), known)}", *place, key)
        values: dict[str, Any] = {}
        for name, field in fields.items():
            if name not in data:
                if field.required:
                    self.problem(f"missing key {name!r}", *place)
                continue
            if self._fits(name, data[name], field.type, *place, name):
                values[field.name] = msgspec.convert(data[name], field.type)
        complete = all(field.name in values for field in fields.values() if field.required)
        if len(self.problems) > before and not (partial and complete):
            return None
        return kind(**values)

    def _fits(self, name: str, value: Any, kind: Any, *place: str | int) -> bool:
        """Whether a value is of its type; every problem of a list or a mapping is noted at its own line."""
        within = _items(value, kind)
        if within is not None:
            fit = [self._fits(name, item, of, *place, key) for key, item, of in within]
            return all(fit)
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            self.problem(f"{name}: {_plain(error, value, kind)}", *place)
            return False
        return True


def read(path: str | Path) -> Document:
    """Read a YAML file.

    Raises:
        DocumentError: the file is not there, is not text, or is not YAML.
    """
    file = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise DocumentError([Problem(f"cannot be read: {reason}")], file=file, next="check the path") from None
    return parse(text, file)


def parse(text: str, file: str) -> Document:
    """Parse YAML text; `file` is what messages call it."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        line = mark.line + 1 if mark else None
        raise DocumentError([Problem(f"not YAML: {what}", line)], file=file, next=_MEND) from None
    except yaml.YAMLError as error:
        raise DocumentError([Problem(f"not YAML: {error}")], file=file, next=_MEND) from None
    lines: dict[Place, int] = {}
    problems: list[Problem] = []
    data = _plain_data(node, (), lines, problems) if node is not None else None
    document = Document(data, lines, file)
    document.problems.extend(problems)
    return document


_MEND = "mend it there or in the line before: indentation, or a bracket, quote or colon too many or too few"


def _plain_data(node: yaml.Node, place: Place, lines: dict[Place, int], problems: list[Problem]) -> Any:
    lines.setdefault(place, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        result: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = getattr(key_node, "value", None)
            if not isinstance(key_node, yaml.ScalarNode) or not isinstance(key, str):
                problems.append(Problem("a key must be a plain word", key_node.start_mark.line + 1))
                continue
            if key in result:
                problems.append(Problem(f"key {key!r} stands twice", key_node.start_mark.line + 1))
            lines[(*place, key)] = key_node.start_mark.line + 1
            result[key] = _plain_data(value_node, (*place, key), lines, problems)
        return result
    if isinstance(node, yaml.SequenceNode):
        return [_plain_data(item, (*place, index), lines, problems) for index, item in enumerate(node.value)]
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError):  # a tag that YAML does not know, or a value that its type does not have
        problems.append(Problem(f"cannot be read as {node.tag}: {node.value!r}", node.start_mark.line + 1))
        return None


def _names(kind: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(kind)]


def _required(kind: type[msgspec.Struct]) -> bool:
    return any(field.required for field in msgspec.structs.fields(kind))


def _items(value: Any, kind: Any) -> Iterator[tuple[str | int, Any, Any]] | None:
    """What is in a list or a mapping whose type is one of items of one type: key, item and type."""
    origin, types = get_origin(kind), get_args(kind)
    if origin is dict and isinstance(value, Mapping):
        return ((key, item, types[1]) for key, item in value.items())
    if origin is list and isinstance(value, list):
        return ((number, item, types[0]) for number, item in enumerate(value))
    return None


def _choices(kind: Any) -> list[Any]:
    """What a type of named values admits: of a union, those of all its parts."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if get_origin(kind) in (dict, list, tuple):
        return []  # what is in it is named by itself
    return [choice for part in get_args(kind) for choice in _choices(part)]


def nearest(name: str, known: list[str]) -> str:
    """The end of a message about an unknown `name`: the likely ones, or all that are known."""
    close = difflib.get_close_matches(name, known, n=3)
    alike = {other: difflib.SequenceMatcher(None, other, name).ratio() for other in close}
    likely = [repr(other) for other in close if alike[other] > alike[close[0]] - _AS_LIKELY]
    return f"; did you mean {' or '.join(likely)}?" if likely else f"; known here: {', '.join(known)}"


_AS_LIKELY = 0.05
"""Names whose likeness differs by less are named together: nobody knows which was meant."""


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)


def _plain(error: msgspec.ValidationError, value: Any, kind: Any) -> str:
    choices = _choices(kind)
    if choices and (get_origin(kind) is Literal or not isinstance(value, dict | list)):
        close = nearest(value, [str(choice) for choice in choices]) if isinstance(value, str) else ""
        known = f"one of {', '.join(map(str, choices))}"
        return f"{_shown(value)} is not {known}{close if close.startswith('; did') else ''}"
    said = str(error).replace("`", "").replace(" - at $", " at ").replace("Expected", "expected")
    return said if isinstance(value, dict | list) or value is None else f"{said} ({value!r})"

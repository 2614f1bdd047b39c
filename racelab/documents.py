"""YAML documents that remember where each value stood, checked against typed structs.

A user's file is read once and *every* problem is reported with its line: unknown keys,
missing keys, values of the wrong type. msgspec alone stops at the first and knows no lines.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

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
        self.problems: list[Problem] = []

    def line(self, *place: str | int) -> int:
        """The line of the value at `place`, or of the nearest thing around it."""
        while place and place not in self._lines:
            place = place[:-1]
        return self._lines.get(place, 1)

    def problem(self, what: str, *place: str | int) -> None:
        """Note a problem at `place`; `finish` raises them all together."""
        self.problems.append(Problem(what, self.line(*place)))

    def finish(self, next: str | None = None) -> None:
        """Raise DocumentError if any problem was noted, ordered by line."""
        if self.problems:
            ordered = sorted(dict.fromkeys(self.problems), key=lambda problem: problem.line or 0)
            raise DocumentError(ordered, file=self.file, next=next)

    def build(self, kind: type[T], data: Any, *place: str | int) -> T | None:
        """A `kind` from a mapping at `place`; None, with every problem noted, if it does not fit."""
        if not isinstance(data, Mapping):
            self.problem(f"expected a mapping with {', '.join(_names(kind))}, got {_shown(data)}", *place)
            return None
        before = len(self.problems)
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        for key in data:
            if key not in fields:
                self.problem(f"unknown key {key!r}{nearest(str(key), list(fields))}", *place, key)
        values: dict[str, Any] = {}
        for name, field in fields.items():
            if name not in data:
                if field.required:
                    self.problem(f"missing key {name!r}", *place)
                continue
            try:
                values[field.name] = msgspec.convert(data[name], field.type)
            except msgspec.ValidationError as error:
                self.problem(f"{name}: {_plain(error)}", *place, name)
        if len(self.problems) > before:
            return None
        return kind(**values)


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
        raise DocumentError([Problem(f"not YAML: {what}", mark.line + 1 if mark else None)], file=file) from None
    except yaml.YAMLError as error:
        raise DocumentError([Problem(f"not YAML: {error}")], file=file) from None
    lines: dict[Place, int] = {}
    problems: list[Problem] = []
    data = _plain_data(node, (), lines, problems) if node is not None else None
    document = Document(data, lines, file)
    document.problems.extend(problems)
    return document


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


def nearest(name: str, known: list[str]) -> str:
    """The end of a message about an unknown `name`: the likely one, or all that are known."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known here: {', '.join(known)}"


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)


def _plain(error: msgspec.ValidationError) -> str:
    return str(error).replace("`", "").replace(" - at $", " at ").replace("Expected", "expected")

r"""TLA+ values as model checkers print them, and as Python holds them.

    value    = range { infix range }
    infix    = "\cup" | "\cap" | "\" | "\X"
    range    = operand [ ".." operand ]
    operand  = integer | string | "TRUE" | "FALSE" | name
             | "<<" [ value { "," value } ] ">>"                    a sequence or tuple
             | "{" [ value { "," value } ] "}"                      a set
             | "[" name "|->" value { "," name "|->" value } "]"    a record
             | "(" value ":>" value { "@@" value ":>" value } ")"   a function
             | "(" value ")"
             | "SUBSET" value | "UNION" value                       sets that TLC does not list
             | "[" value "->" value "]"                             a set of functions
             | "[" name ":" value { "," name ":" value } "]"        a set of records
    integer  = [ "-" ] digit { digit }
    string   = '"' { character | "\" one of  " \ n t f r  } '"'
    name     = letters, digits, "_" and "!", not digits alone       a model value

White space and line ends may stand between tokens. In TLA+ a sequence is a function on 1..n and a
record is a function on strings, so `(1 :> "a")` equals `<<"a">>` and `("k" :> 1)` equals
`[k |-> 1]`; they are equal here too. `docs/traces.md` has this page for readers.

| TLA+                       | Python                                     |
|----------------------------|--------------------------------------------|
| integer, string, BOOLEAN   | int, str, bool                             |
| model value                | ModelValue                                 |
| sequence, tuple, `<<>>`    | tuple (the function on the empty set, too) |
| set, small range           | frozenset                                  |
| record, function           | Function                                   |
| set that TLC does not list | Unlisted                                   |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Union

from racelab.errors import TraceError

DEPTH_MAX = 100
"""Nesting beyond this is refused: no checker prints it, and Python's own stack ends soon after."""
DIGITS_MAX = 1_000
SCALARS_KEPT = 4_096
RANGE_MAX = 10_000
"""Ranges longer than this stay unlisted, so that a short text cannot fill the memory."""


@dataclass(frozen=True, slots=True)
class ModelValue:
    """A model value: a bare word that equals only itself."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Unlisted:
    """A set that TLC prints as an expression, such as `SUBSET 1..9` or `[1..3 -> {0, 1}]`."""

    operator: str
    operands: tuple[Value, ...]


class Function(Mapping["Value", "Value"]):
    """A function or record: an immutable mapping that can itself be a key or a set's element."""

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[str, Value] | Mapping[Value, Value] | Iterable[tuple[Value, Value]]) -> None:
        self._items: Mapping[Value, Value] = dict(items)  # type: ignore[assignment]  # a str is a Value
        self._hash: int | None = None

    def __getitem__(self, key: Value) -> Value:
        return self._items[key]

    def __iter__(self) -> Iterator[Value]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._items.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and self._items == other._items

    def __repr__(self) -> str:
        return f"Function({self._items!r})"


Value = Union[bool, int, str, ModelValue, tuple["Value", ...], frozenset["Value"], Function, Unlisted]  # noqa: UP007


def function(pairs: list[tuple[Value, Value]]) -> Value:
    """The function with these pairs; one on 1..n is a sequence, and on nothing the empty one.

    Raises:
        ValueError: two pairs have the same key.
    """
    items = dict(pairs)
    if len(items) != len(pairs):
        raise ValueError("a key that stands once")
    if all(type(key) is int for key in items) and items.keys() == set(range(1, len(items) + 1)):
        return tuple(items[index] for index in range(1, len(items) + 1))
    return Function(items)


def parse(text: str, *, file: str = "<value>", line: int = 1, column: int = 1) -> Value:
    """Read one value; `line` and `column` say where in `file` the text starts.

    Raises:
        TraceError: the text is not a value; it names the place and what was expected there.
    """
    reader = _Reader(text)
    try:
        value = reader.value(0)
        if reader.tokens[reader.at]:
            raise _Unexpected("the end of the value")
        return value
    except _Unexpected as unexpected:
        raise reader.error(unexpected.expected, file, line, column) from None


def show(value: Value) -> str:
    """The TLA+ text of a value: `parse(show(value)) == value`."""
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case str():
            return '"' + "".join(_ESCAPED.get(character, character) for character in value) + '"'
        case ModelValue():
            return value.name
        case tuple():
            return f"<<{', '.join(map(show, value))}>>"
        case frozenset():
            return "{" + ", ".join(sorted(map(show, value), key=lambda text: (len(text), text))) + "}"
        case Function():
            if all(isinstance(key, str) and _FIELD.fullmatch(key) for key in value):
                return f"[{', '.join(f'{key} |-> {show(item)}' for key, item in value.items())}]"
            return f"({' @@ '.join(f'{show(key)} :> {show(item)}' for key, item in value.items())})"
        case Unlisted():
            return _show_unlisted(value)


def _show_unlisted(value: Unlisted) -> str:
    first, rest = show(value.operands[0]), [show(operand) for operand in value.operands[1:]]
    if value.operator in ("SUBSET", "UNION"):
        return f"{value.operator} ({first})"
    if value.operator == "->":
        return f"[{first} -> {rest[0]}]"
    if value.operator == ":":
        pairs = zip(value.operands[::2], value.operands[1::2], strict=True)
        return f"[{', '.join(f'{key}: {show(item)}' for key, item in pairs)}]"
    spaced = value.operator if value.operator == ".." else f" {value.operator} "
    return f"({first}){spaced}({rest[0]})"


_TOKEN = re.compile(
    r'"(?:[^"\\\n]|\\.)*"?'  # a string, or all of one that is not closed on its line
    r"|<<|>>|\|->|->|:>|@@|\.\."
    r"|\\(?:cup|cap|union|intersect|X|times)\b"
    r"|[\w!]+"  # a name, or digits alone
    r"|-\d+"
    r"|\S"  # a bracket, a comma, or something that does not belong here
)
_CLOSED = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_INTEGER = re.compile(r"-?[0-9]+")
_NAME = re.compile(r"[\w!]*[^\W\d][\w!]*")
_FIELD = re.compile(r"[A-Za-z0-9_]*[A-Za-z_][A-Za-z0-9_]*")
_ESCAPE = re.compile(r"\\(.)")
_UNESCAPED = {'"': '"', "\\": "\\", "n": "\n", "t": "\t", "f": "\f", "r": "\r"}
_ESCAPED = {plain: "\\" + letter for letter, plain in _UNESCAPED.items()}
_INFIX = {"\\": "\\", "\\cup": "\\cup", "\\union": "\\cup", "\\cap": "\\cap", "\\intersect": "\\cap"}
_INFIX |= {"\\X": "\\X", "\\times": "\\X"}
_GOES_ON = frozenset({"..", *_INFIX})
_CONSTANTS: dict[str, Value] = {"TRUE": True, "FALSE": False}


class _Unexpected(Exception):
    def __init__(self, expected: str) -> None:
        self.expected = expected


class _Reader:
    """Recursive descent over a list of tokens that ends with an empty one."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = _TOKEN.findall(text)
        self.tokens.append("")
        self.at = 0

    def error(self, expected: str, file: str, line: int, column: int) -> TraceError:
        """What was expected at the token under the cursor, with its line and column."""
        offset = len(self.text.rstrip())
        for index, match in enumerate(_TOKEN.finditer(self.text)):
            if index == self.at:
                offset = match.start()
                break
        newlines = self.text.count("\n", 0, offset)
        place = offset - self.text.rfind("\n", 0, offset) - 1 if newlines else column - 1 + offset
        token = self.tokens[self.at]
        found = f"{token[:40]!r}" if token else "the text ends"
        return TraceError(f"column {place + 1}: expected {expected}, found {found}", file=file, line=line + newlines)

    def expect(self, token: str) -> None:
        if self.tokens[self.at] != token:
            raise _Unexpected(f"'{token}'")
        self.at += 1

    def value(self, depth: int) -> Value:
        value = self.operand(depth)
        return self.chain(value, depth) if self.tokens[self.at] in _GOES_ON else value

    def chain(self, left: Value, depth: int) -> Value:
        """What follows an operand: the end of a range, and operators with more operands."""
        left = self.range(left, depth)
        while self.tokens[self.at] in _INFIX:
            operator = _INFIX[self.tokens[self.at]]
            depth += 1  # a chain of operators nests too
            if depth >= DEPTH_MAX:
                raise _Unexpected(f"nesting of at most {DEPTH_MAX} levels")
            self.at += 1
            left = Unlisted(operator, (left, self.range(self.operand(depth), depth)))
        return left

    def range(self, low: Value, depth: int) -> Value:
        if self.tokens[self.at] != "..":
            return low
        self.at += 1
        return _range(low, self.operand(depth))

    def operand(self, depth: int) -> Value:
        token = self.tokens[self.at]
        opener = _OPENERS.get(token)
        if opener is None:
            value = _scalar(token)
            self.at += 1
            return value
        if depth >= DEPTH_MAX:
            raise _Unexpected(f"nesting of at most {DEPTH_MAX} levels")
        self.at += 1
        return opener(self, depth + 1)

    def items(self, closer: str, depth: int) -> list[Value]:
        """Values with commas between them, up to and with the closer."""
        if self.tokens[self.at] == closer:
            self.at += 1
            return []
        values = [self.value(depth)]
        while self.tokens[self.at] == ",":
            self.at += 1
            values.append(self.value(depth))
        if self.tokens[self.at] != closer:
            raise _Unexpected(f"',' or '{closer}'")
        self.at += 1
        return values

    def sequence(self, depth: int) -> Value:
        return tuple(self.items(">>", depth))

    def set(self, depth: int) -> Value:
        opened = self.at
        values = self.items("}", depth)
        elements = frozenset(values)
        if len(elements) != len(values):
            self.at = opened
            raise _Unexpected("a set in which every element stands once (and 1 beside TRUE not at all)")
        return elements

    def bracket(self, depth: int) -> Value:
        after = self.tokens[self.at + 1] if self.tokens[self.at] else ""
        if after in ("|->", ":"):
            return self.fields(after, depth)
        domain = self.value(depth)
        self.expect("->")
        codomain = self.value(depth)
        self.expect("]")
        return Unlisted("->", (domain, codomain))

    def fields(self, separator: str, depth: int) -> Value:
        """The fields of a record, or of a set of records, up to and with the bracket."""
        pairs: dict[Value, Value] = {}
        while True:
            name = self.tokens[self.at]
            if not _NAME.fullmatch(name) or name in pairs:
                raise _Unexpected("the name of a field that stands once")
            self.at += 1
            self.expect(separator)
            pairs[name] = self.value(depth)
            if self.tokens[self.at] != ",":
                break
            self.at += 1
        if self.tokens[self.at] != "]":
            raise _Unexpected("',' or ']'")
        self.at += 1
        if separator == "|->":
            return Function(pairs)
        return Unlisted(":", tuple(part for pair in pairs.items() for part in pair))

    def parenthesis(self, depth: int) -> Value:
        opened = self.at
        first = self.value(depth)
        if self.tokens[self.at] == ")":
            self.at += 1
            return first
        self.expect(":>")
        pairs = [(first, self.value(depth))]
        while self.tokens[self.at] == "@@":
            self.at += 1
            key = self.value(depth)
            self.expect(":>")
            pairs.append((key, self.value(depth)))
        if self.tokens[self.at] != ")":
            raise _Unexpected("'@@' or ')'")
        self.at += 1
        try:
            return function(pairs)
        except ValueError as error:
            self.at = opened
            raise _Unexpected(str(error)) from None

    def subset(self, depth: int) -> Value:
        return Unlisted("SUBSET", (self.value(depth),))

    def union(self, depth: int) -> Value:
        return Unlisted("UNION", (self.value(depth),))


@lru_cache(maxsize=SCALARS_KEPT)
def _scalar(token: str) -> Value:
    """The value of a token that stands for itself; a trace has few different ones."""
    if token[:1] == '"':
        return _string(token)
    if _INTEGER.fullmatch(token):
        if len(token) > DIGITS_MAX:
            raise _Unexpected(f"an integer of at most {DIGITS_MAX} digits")
        return int(token)
    if _NAME.fullmatch(token):
        constant = _CONSTANTS.get(token)
        return ModelValue(token) if constant is None else constant
    raise _Unexpected("a value")


def _string(token: str) -> str:
    if not _CLOSED.fullmatch(token):
        raise _Unexpected("a string that is closed on its line")
    return _ESCAPE.sub(_unescape, token[1:-1]) if "\\" in token else token[1:-1]


def _unescape(match: re.Match[str]) -> str:
    plain = _UNESCAPED.get(match[1])
    if plain is None:
        raise _Unexpected('a string whose escapes are \\" \\\\ \\n \\t \\f \\r')
    return plain


def _range(low: Value, high: Value) -> Value:
    if type(low) is int and type(high) is int and high - low < RANGE_MAX:
        return frozenset(range(low, high + 1))
    return Unlisted("..", (low, high))


_OPENERS = {
    "<<": _Reader.sequence,
    "{": _Reader.set,
    "[": _Reader.bracket,
    "(": _Reader.parenthesis,
    "SUBSET": _Reader.subset,
    "UNION": _Reader.union,
}

__all__ = ["Function", "ModelValue", "Unlisted", "Value", "function", "parse", "show"]

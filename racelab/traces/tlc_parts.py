"""What TLC's plain and `-tool` outputs share: error sentences, action headers, bodies of states."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from racelab.errors import TraceError
from racelab.traces import values
from racelab.traces.trace import Action, Kind, Location, State, Step, Trace
from racelab.traces.values import Value

Line = tuple[int, str]
"""A line of the file and its number."""

_HEADER = re.compile(r"<(.*?) ?line (\d+), col (\d+) to line (\d+), col (\d+) of module ([^\s>]+)>", re.DOTALL)
_CALL = re.compile(r"([\w!]+)(\(.*\))?", re.DOTALL)
_VARIABLE = re.compile(r"(?:/\\ )?([\w!:]+) =(?: |$)")
_VIOLATIONS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("invariant", re.compile(r"Invariant (.+?) is violated")),
    ("action-property", re.compile(r"Action property (.+?) is violated")),
    ("property", re.compile(r"Property (.+?) is violated")),
    ("temporal", re.compile(r"Temporal propert(?:y|ies) (?:were|(.+?) (?:was|were)) violated")),
    ("deadlock", re.compile(r"Deadlock reached()")),
    ("assertion", re.compile(r"(?:The first argument of Assert evaluated to FALSE|Assumption (.+?) is false)")),
)


def violation(sentence: str) -> tuple[Kind, str | None]:
    """The kind of violation and the property's name, from what stands after `Error:`."""
    for kind, pattern in _VIOLATIONS:
        match = pattern.match(sentence)
        if match:
            return kind, (match[1] or None) if match.groups() else None
    return "error", None


def action(header: str, file: str, line: int) -> Action | None:
    """The action of `<Name("r1") line 6, col 3 to line 9, col 40 of module M>`; None for the first state.

    Raises:
        TraceError: the header is cut, or its arguments are no values.
    """
    header = header.strip()
    if header.startswith("<Initial predicate"):
        return None
    match = _HEADER.fullmatch(header)
    if match is None:
        if header.startswith("<") and header.endswith(">"):
            return Action(name=header[1:-1].strip() or None)
        raise TraceError(
            f"expected an action such as <Name line 1, col 1 to line 2, col 9 of module M>, found {header[:60]!r}",
            file=file,
            line=line,
        )
    name, *place, module = match.groups()
    location = Location(module, *(int(number) for number in place))
    call = _CALL.fullmatch(name)
    if call is None:
        return Action(name=name or None, location=location)
    args: Value = values.parse(f"<<{call[2][1:-1]}>>", file=file, line=line) if call[2] else ()
    assert isinstance(args, tuple)
    return Action(name=call[1], args=args, location=location)


@dataclass(slots=True)
class StateReader:
    """Reads the bodies of states. A value seen before is not parsed again: most do not change."""

    file: str
    _seen: dict[str, Value] = field(default_factory=dict)

    def read(self, lines: list[Line], before: State) -> State:
        """The state of these lines; variables that they leave out (`-difftrace`) keep their value.

        Raises:
            TraceError: a line is not part of a state, or a value is torn.
        """
        state = dict(before)
        start = 0
        for index in range(1, len(lines) + 1):
            if index == len(lines) or lines[index][1].startswith("/\\ "):
                name, value = self.variable(lines[start:index])
                if before and name not in before:
                    raise TraceError(
                        f"variable {name!r} was not in the state before", file=self.file, line=lines[start][0]
                    )
                state[name] = value
                start = index
        return state

    def variable(self, lines: list[Line]) -> tuple[str, Value]:
        """`/\\ name = value`; the value may go on over several lines."""
        number, first = lines[0]
        match = _VARIABLE.match(first)
        if match is None:
            raise TraceError(f"expected '/\\ variable = value', found {first[:60]!r}", file=self.file, line=number)
        text = first[match.end() :]
        if len(lines) > 1:
            text = "\n".join([text, *(line for _, line in lines[1:])])
        value = self._seen.get(text)
        if value is None:
            value = values.parse(text, file=self.file, line=number, column=match.end() + 1)
            self._seen[text] = value
        return match[1], value


@dataclass(slots=True)
class Draft:
    """A trace that is being read."""

    kind: Kind
    property_name: str | None
    message: str
    line: int
    steps: list[Step] = field(default_factory=list)
    loop: int | None = None
    loop_action: Action | None = None
    stuttering: bool = False

    @property
    def ended(self) -> bool:
        """Whether a lasso or stuttering closed it: no state may follow."""
        return self.loop is not None or self.stuttering

    @property
    def last(self) -> State:
        """The state that the next one is read against."""
        return self.steps[-1].state if self.steps else {}

    def finish(self, file: str, format: str, checker: str, modules: list[str]) -> Trace:
        """The Trace; modules that only locations name come last."""
        located = [step.action.location.module for step in self.steps if step.action and step.action.location]
        return Trace(
            file=file,
            format=format,
            checker=checker,
            modules=tuple(dict.fromkeys([*modules, *reversed(located)])),
            kind=self.kind,
            property_name=self.property_name,
            message=self.message,
            line=self.line,
            steps=tuple(self.steps),
            loop=self.loop,
            loop_action=self.loop_action,
            stuttering=self.stuttering,
        )


__all__ = ["Draft", "Line", "StateReader", "action", "violation"]

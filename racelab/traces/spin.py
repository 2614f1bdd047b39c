"""SPIN's text: what `spin -t MODEL.pml` prints when it follows a trail.

A trail itself is opaque, so the model prints its actions, one a line, with `printf`:

    ACT startTransfer r=1

Everything else is SPIN's own: statements (`-p`), variables (`-g`), `spin: trail ends after 8 steps`.
With `-g` the state of a step is what the variables are when the next action is printed; without it
only the last state is printed, and a lone state is none of a behaviour: the states stay empty.
"""

from __future__ import annotations

import re

from racelab.errors import TraceError
from racelab.traces import values
from racelab.traces.trace import Action, Kind, State, Step, Trace
from racelab.traces.values import Value, function

_ACTION = re.compile(r"\s*ACT ([\w:]+)((?: +\w+=\S+)*)\s*")
_ARGUMENT = re.compile(r"(\w+)=(\S+)")
_ASSERTION = re.compile(r"spin: (\S+?):(\d+), Error: (assertion violated|.*)")
_LTL = re.compile(r"(?:ltl|Never claim) (\w+)\b")
_CLAIM = re.compile(r"spin: .*(?:claim violated|never claim)")
_ENDS = re.compile(r"spin: trail ends after (\d+) steps")
_CYCLE = re.compile(r"\s*<<<<<START OF CYCLE>>>>>")
_VARIABLE = re.compile(r"\t\t([\w.:]+)(?:\[(\d+)\])? = (\S+)\s*")
_SOURCE = re.compile(r"(?:^|\s)([\w./\\-]+)\.pml:\d+")
_CREATED = re.compile(r"\d+ process(?:es)? created\s*")


def read(text: str, file: str) -> list[Trace]:
    """The trails in SPIN's text, one after another: each ends in `N processes created`.

    Raises:
        TraceError: one is cut, names no action, or follows no trail.
    """
    traces: list[Trace] = []
    reader = _Reader(file)
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        reader.line(number, line)
        if reader.complete:
            traces.append(reader.trace(number))
            reader = _Reader(file, first_line=number + 1)
    if reader.begun or not traces:
        traces.append(reader.trace(len(lines)))
    return traces


class _Reader:
    def __init__(self, file: str, first_line: int = 1) -> None:
        self.file = file
        self.first_line = first_line
        self.actions: list[tuple[int, Action]] = []
        self.variables: dict[tuple[str, int | None], Value] = {}
        self.states: list[State] = []
        self.kind: Kind = "unknown"
        self.name: str | None = None
        self.message: str | None = None
        self.modules: list[str] = []
        self.loop: int | None = None
        self.ended = False
        self.complete = False

    def line(self, number: int, line: str) -> None:
        if match := _ACTION.fullmatch(line):
            found = {name: self.value(text, number) for name, text in _ARGUMENT.findall(match[2])}
            self.states.append(self.state())
            self.actions.append((number, Action(match[1], args=tuple(found.values()), parameters=found)))
        elif match := _ASSERTION.match(line):
            self.kind, self.message = "assertion", match[3]
        elif _ENDS.match(line):
            self.ended = True
        elif _CYCLE.match(line):
            self.loop = len(self.actions)
            self.kind = "temporal" if self.kind == "unknown" else self.kind
        elif _CREATED.fullmatch(line):
            self.complete = True
        elif match := _VARIABLE.fullmatch(line):
            index = int(match[2]) if match[2] else None
            self.variables[match[1], index] = self.value(match[3], number)
        elif match := _LTL.match(line):
            self.name = match[1]
        if match := _SOURCE.search(line):
            self.modules.append(match[1].replace("\\", "/").rsplit("/", 1)[-1])

    @property
    def begun(self) -> bool:
        """Whether anything of a trail was read."""
        return bool(self.actions or self.variables or self.ended or self.kind != "unknown")

    def value(self, text: str, number: int) -> Value:
        """A number, or one of SPIN's symbolic names."""
        return values.parse(text, file=self.file, line=number)

    def state(self) -> State:
        """The variables as they are now; an array is a function on its indexes."""
        state: dict[str, Value] = {}
        for name, index in self.variables:
            if index is None:
                state[name] = self.variables[name, index]
            elif name not in state:
                state[name] = function(
                    [(at, value) for (of, at), value in self.variables.items() if of == name and at is not None]
                )
        return state

    def trace(self, lines: int) -> Trace:
        if not self.ended or not self.complete:
            expected = "N processes created" if self.ended else "spin: trail ends after N steps"
            raise TraceError(
                f"the output is cut: expected {expected!r}, found the end of the file",
                file=self.file,
                line=lines,
                next="keep all that 'spin -t' prints",
            )
        if not self.actions:
            raise TraceError(
                "the trail names no action: expected lines such as 'ACT timeout r=1'",
                file=self.file,
                line=lines,
                next='let the model print its actions: printf("ACT timeout r=%d\\n", r)',
            )
        states = [*self.states, self.state()]
        if any(state.keys() != states[0].keys() for state in states):
            states = [{} for _ in states]
        reached = [(self.first_line, None), *self.actions]
        steps = [Step(state, action, number) for state, (number, action) in zip(states, reached, strict=True)]
        return Trace(
            file=self.file,
            format="spin",
            checker="SPIN",
            modules=tuple(dict.fromkeys(self.modules)),
            kind=self.kind,
            property_name=self.name,
            message=self.message,
            steps=tuple(steps),
            loop=self.loop,
        )


__all__ = ["read"]

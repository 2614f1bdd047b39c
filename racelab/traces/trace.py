"""The Trace: what a model checker's output says, whatever its format.

Every reader of `racelab.traces` returns this. Nothing downstream looks at the file again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from racelab.traces.values import Value

Kind = Literal[
    "invariant", "property", "action-property", "temporal", "deadlock", "assertion", "error", "unknown", "none"
]
"""What was violated. `unknown`: the format does not say. `none`: the checker found no violation."""

State = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Location:
    """A piece of a TLA+ module; lines and columns count from 1, the end is included."""

    module: str
    begin_line: int
    begin_column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"line {self.begin_line}, col {self.begin_column} of module {self.module}"


@dataclass(frozen=True, slots=True)
class Action:
    """How a state was reached, as far as the format says.

    `args` are values by position, `parameters` values by name; a format has one of them or none.
    """

    name: str | None = None
    args: tuple[Value, ...] = ()
    parameters: Mapping[str, Value] = field(default_factory=dict)
    location: Location | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One state and the action that led to it (None for the first); `line` is its place in the file."""

    state: State
    action: Action | None
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A counterexample.

    `modules` has the root module first. `loop` is the index of the step that a lasso goes back
    to, by `loop_action`; `stuttering` says that it stays in its last state for ever.
    """

    file: str
    format: str
    checker: str
    steps: tuple[Step, ...]
    modules: tuple[str, ...] = ()
    kind: Kind = "unknown"
    property_name: str | None = None
    message: str | None = None
    line: int = 1
    loop: int | None = None
    loop_action: Action | None = None
    stuttering: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the state's variables, in the file's order."""
        return tuple(self.steps[0].state) if self.steps else ()


__all__ = ["Action", "Kind", "Location", "State", "Step", "Trace"]

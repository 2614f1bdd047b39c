"""A breadth-first search over the executable specification: a model checker where there is no Java.

The counterexample that it finds for a specification is a shortest one, and always the same.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from racelab.errors import BoundError
from racelab.model.spec.actions import Action, enabled
from racelab.model.spec.invariants import INVARIANTS
from racelab.model.spec.state import Config, State, initial

STATES_MAX = 5_000_000


@dataclass(frozen=True)
class Searched:
    """What was found: the violated specification and the steps that lead there, or that there is none."""

    violated: str | None
    steps: tuple[Action, ...]
    states: int
    seconds: float


def search(config: Config, specs: Iterable[str] = tuple(INVARIANTS), *, states_max: int = STATES_MAX) -> Searched:
    """Visit every reachable state, or stop at the first that violates one of `specs`.

    Raises:
        BoundError: there are more than `states_max` states.
    """
    begin = time.monotonic()
    checked = {spec: INVARIANTS[spec] for spec in specs}
    start = initial(config)
    came: dict[State, tuple[State, Action] | None] = {start: None}
    due = deque([start])
    while due:
        state = due.popleft()
        for spec, holds in checked.items():
            if not holds(config, state):
                return Searched(spec, _way(came, state), len(came), time.monotonic() - begin)
        for step in enabled(config, state):
            if step.state not in came:
                came[step.state] = (state, step.action)
                due.append(step.state)
        if len(came) > states_max:
            raise BoundError(
                f"more than {states_max:,} states", next="make the configuration smaller, or allow more states"
            )
    return Searched(None, (), len(came), time.monotonic() - begin)


def _way(came: dict[State, tuple[State, Action] | None], state: State) -> tuple[Action, ...]:
    steps = []
    while (link := came[state]) is not None:
        state, action = link
        steps.append(action)
    return tuple(reversed(steps))

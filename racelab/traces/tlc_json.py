"""TLC's counterexamples as JSON (`-dumpTrace json`), in the three schemas that there have been.

    [{"x": 1}, {"x": 2}]                                         2022: the states alone
    {"state": [[1, {"x": 1}], ...], "action": [...]}             December 2023: with actions
    {"counterexample": {"state": ..., "action": ...}, "vars": [...]}    January 2026

An action is `[[1, state], {"name", "location", "context", "parameters"}, [2, state]]`; one that
leads back closes a lasso, one from a state to itself is stuttering. The property is not named.
"""

from __future__ import annotations

from typing import Any

from racelab.errors import TraceError
from racelab.traces import json_values
from racelab.traces.trace import Action, Location, Step, Trace
from racelab.traces.values import Value

_PLACES = ("beginLine", "beginColumn", "endLine", "endColumn")


def read(text: str, file: str) -> list[Trace]:
    """The counterexample in TLC's JSON.

    Raises:
        TraceError: it is not JSON, of none of the schemas, or a state is missing.
    """
    data = json_values.load(text, file)
    if isinstance(data, dict) and isinstance(data.get("counterexample"), dict):
        data = data["counterexample"]
    if isinstance(data, list):
        data = {"state": [[index, state] for index, state in enumerate(data, start=1)]}
    if not isinstance(data, dict):
        raise TraceError("expected a counterexample of TLC, with its states", file=file, line=1)
    return [_Reader(data, file).trace()]


class _Reader:
    def __init__(self, data: dict[str, Any], file: str) -> None:
        self.file = file
        self.states = self.numbered(data.get("state"), "state")
        self.edges = [self.edge(entry) for entry in self.list(data.get("action", []), "action")]

    def trace(self) -> Trace:
        if not self.states:
            raise self.error("TLC found no error, so there is no counterexample in it")
        actions: dict[int, Action] = {}
        loop, loop_action = None, None
        for begin, action, end in self.edges:
            if end > begin:
                actions[end] = action
            else:
                loop, loop_action = end, action
        last = len(self.states)
        steps = tuple(
            Step(self.states[index], actions.get(index, Action()) if index > 1 else None, 1)
            for index in range(1, last + 1)
        )
        located = [action.location.module for action in actions.values() if action.location]
        stuttering = loop == last and (loop_action is None or loop_action.name in (None, "Stuttering"))
        return Trace(
            file=self.file,
            format="tlc-json",
            checker="TLC",
            modules=tuple(dict.fromkeys(reversed(located))),
            steps=steps,
            loop=None if loop is None or stuttering else loop - 1,
            loop_action=None if stuttering else loop_action,
            stuttering=stuttering,
        )

    def numbered(self, data: Any, what: str) -> dict[int, dict[str, Value]]:
        """States by number; every number from 1 on."""
        found = {}
        for entry in self.list(data, what):
            if not isinstance(entry, list) or len(entry) != 2 or type(entry[0]) is not int:
                raise self.error(f"expected [number, state] in {what!r}, found {str(entry)[:40]!r}")
            found[entry[0]] = json_values.decode_state(entry[1], self.file, 1)
        for index in range(1, len(found) + 1):
            if index not in found:
                raise self.error(f"expected state {index} in {what!r}; there are {sorted(found)[:9]}")
        return found

    def edge(self, entry: Any) -> tuple[int, Action, int]:
        """`[[i, state], action, [j, state]]`."""
        try:
            (begin, _), action, (end, _) = entry
            if not {begin, end} <= self.states.keys():
                raise ValueError
        except (TypeError, ValueError):
            raise self.error(f"expected [[i, state], action, [j, state]], found {str(entry)[:60]!r}") from None
        return begin, self.action(action), end

    def action(self, data: Any) -> Action:
        if not isinstance(data, dict):
            raise self.error(f"expected an action with its name, found {str(data)[:40]!r}")
        context = json_values.decode_state(data.get("context", {}), self.file, 1)
        names = [str(name) for name in self.list(data.get("parameters", []), "parameters")]
        return Action(
            name=str(data["name"]) if "name" in data else None,
            args=tuple(context[name] for name in names if name in context),
            parameters=context,
            location=self.location(data.get("location")),
        )

    def location(self, data: Any) -> Location | None:
        if not isinstance(data, dict):
            return None
        places = [data.get(place) for place in _PLACES]
        if not all(type(place) is int for place in places) or not isinstance(data.get("module"), str):
            return None
        return Location(data["module"], *places)  # type: ignore[arg-type]  # whole numbers: just checked

    def list(self, data: Any, what: str) -> list[Any]:
        if not isinstance(data, list):
            raise self.error(f"expected a list in {what!r}, found {str(data)[:40]!r}")
        return data

    def error(self, what: str) -> TraceError:
        return TraceError(what, file=self.file, line=1, next="make the file anew with TLC's -dumpTrace json")


__all__ = ["read"]

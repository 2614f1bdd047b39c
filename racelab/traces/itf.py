"""ITF, the Informal Trace Format of Apalache and Quint.

    {"#meta": {"source": "pd.qnt", "status": "violation"}, "vars": ["x"], "states": [{"x": 1}, ...], "loop": 0}

`vars` are the variables; what else a state has (parameters of the model) is passed over.
Quint's `mbt::actionTaken` and `mbt::nondetPicks` name the action of a step and what was chosen for
it; they become the step's action and are no variables here. The property is not named. A file with
status `ok` is a run that violates nothing.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from racelab.errors import TraceError
from racelab.traces import json_values
from racelab.traces.trace import Action, Kind, State, Step, Trace
from racelab.traces.values import Function, Value

TAKEN = "mbt::actionTaken"
PICKS = "mbt::nondetPicks"

_STATE = re.compile(r'"states"\s*:\s*\[')


def read(text: str, file: str) -> list[Trace]:
    """The trace in an ITF file.

    Raises:
        TraceError: it is not JSON, not ITF, or a variable has no value.
    """
    data = json_values.load(text, file)
    if not isinstance(data, dict) or not isinstance(data.get("states"), list):
        raise TraceError("expected an ITF object with a list of 'states'", file=file, line=1)
    if not data["states"]:
        raise TraceError("there is no state in it", file=file, line=1, next="make the trace anew")
    heading = _STATE.search(text)
    line = text.count("\n", 0, heading.start()) + 1 if heading else 1
    meta = data["#meta"] if isinstance(data.get("#meta"), dict) else {}
    steps = [_step(item, file, line, first=index == 0) for index, item in enumerate(data["states"])]
    names = data.get("vars")
    listed = names if isinstance(names, list) and all(isinstance(name, str) for name in names) else steps[0].state
    wanted = [name for name in listed if name not in (TAKEN, PICKS)]
    for index, step in enumerate(steps):
        lacking = [name for name in wanted if name not in step.state]
        if lacking:
            raise TraceError(f"state {index + 1} lacks variable {', '.join(lacking)}", file=file, line=line)
    steps = [replace(step, state={name: step.state[name] for name in wanted}) for step in steps]
    return [
        Trace(
            file=file,
            format="itf",
            checker=_checker(meta),
            modules=_modules(meta, steps[0].state),
            kind=_kind(meta),
            steps=tuple(steps),
            loop=_loop(data, file),
            line=line,
        )
    ]


def _step(item: Any, file: str, line: int, *, first: bool) -> Step:
    if not isinstance(item, dict):
        raise TraceError(f"expected a state with its variables, found {str(item)[:40]!r}", file=file, line=line)
    state = json_values.decode_state({key: item[key] for key in item if key != "#meta"}, file, line)
    taken, picks = state.pop(TAKEN, None), state.pop(PICKS, None)
    if first:
        return Step(state, None, line)
    name = taken if isinstance(taken, str) and taken else None
    return Step(state, Action(name=name, parameters=_picked(picks)), line)


def _picked(picks: Value | None) -> dict[str, Value]:
    """What was picked: `Some(x)` is x, `None` was not asked for."""
    found: dict[str, Value] = {}
    if isinstance(picks, Function):
        for name, value in picks.items():
            if isinstance(value, Function) and value.get("tag") == "Some" and "value" in value:
                found[str(name)] = value["value"]
            elif not (isinstance(value, Function) and value.get("tag") == "None"):
                found[str(name)] = value
    return found


def _checker(meta: dict[str, Any]) -> str:
    made = f"{meta.get('description', '')} {meta.get('format-description', '')}"
    return next((name for name in ("Quint", "Apalache") if f"by {name}" in made), "ITF")


def _modules(meta: dict[str, Any], state: State) -> tuple[str, ...]:
    """The instances that prefix the variables, outermost first, and the source file."""
    prefixes = [part for name in state for part in name.split("::")[:-1]]
    source = meta.get("source")
    return tuple(dict.fromkeys([*prefixes, *([PurePath(source).stem] if isinstance(source, str) else [])]))


def _kind(meta: dict[str, Any]) -> Kind:
    status = meta.get("status")
    return "none" if status == "ok" else "unknown"


def _loop(data: dict[str, Any], file: str) -> int | None:
    loop = data.get("loop")
    if loop is None:
        return None
    if type(loop) is not int or not 0 <= loop < len(data["states"]):
        raise TraceError(f"expected 'loop' to be the index of a state, found {str(loop)[:40]!r}", file=file, line=1)
    return loop


__all__ = ["read"]

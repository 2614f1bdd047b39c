"""A Trace as a file: ITF for the tools of others, ndjson without loss for racelab's own."""

from __future__ import annotations

import json
from dataclasses import astuple
from typing import Any

from racelab.errors import UsageError
from racelab.traces.itf import PICKS, TAKEN
from racelab.traces.json_values import encode
from racelab.traces.ndjson import HEADER, VERSION
from racelab.traces.trace import Action, Step, Trace
from racelab.traces.values import Function, Value

FORMATS = ("itf", "ndjson")


def export(trace: Trace, to: str) -> str:
    """The text of a trace in a format of FORMATS.

    Raises:
        UsageError: no such format.
    """
    if to == "itf":
        return itf(trace)
    if to == "ndjson":
        return ndjson(trace)
    raise UsageError(f"unknown format {to!r}", next=f"one of: {', '.join(FORMATS)}")


def itf(trace: Trace) -> str:
    """ITF: model values become strings; actions go where Quint puts them, `mbt::actionTaken`."""
    named = any(step.action is not None and step.action.name is not None for step in trace.steps)
    states = [_itf_state(index, step, named) for index, step in enumerate(trace.steps)]
    data: dict[str, Any] = {
        "#meta": {
            "format": "ITF",
            "description": f"Written by racelab from the output of {trace.checker}",
            "status": "ok" if trace.kind == "none" else "violation",
        },
        "vars": [*trace.variables, *([TAKEN, PICKS] if named else [])],
        "states": states,
    }
    if trace.modules:
        data["#meta"]["source"] = f"{trace.modules[0]}.tla"
    if trace.loop is not None or trace.stuttering:
        data["loop"] = trace.loop if trace.loop is not None else len(states) - 1
    return json.dumps(data, ensure_ascii=False) + "\n"


def _itf_state(index: int, step: Step, named: bool) -> dict[str, Any]:
    state: dict[str, Any] = {"#meta": {"index": index}}
    state |= {name: encode(value) for name, value in step.state.items()}
    if named:
        action = step.action or Action(name="init")
        picks = dict(action.parameters)
        if not picks:
            picks = {f"arg{position}": value for position, value in enumerate(action.args, start=1)}
        some: dict[str, Value] = {name: Function({"tag": "Some", "value": value}) for name, value in picks.items()}
        state[TAKEN] = action.name or ""
        state[PICKS] = encode(Function(some))
    return state


def ndjson(trace: Trace) -> str:
    """racelab's own lines: `racelab.traces.ndjson` reads them back equal, but for file and lines."""
    header = {
        HEADER: VERSION,
        "checker": trace.checker,
        "modules": list(trace.modules),
        "kind": trace.kind,
        "property": trace.property_name,
        "message": trace.message,
        "states": len(trace.steps),
        "loop": trace.loop,
        "loop-action": _action(trace.loop_action),
        "stuttering": trace.stuttering,
    }
    kept = {key: value for key, value in header.items() if value not in (None, [], False)}
    lines = [kept]
    for step in trace.steps:
        line: dict[str, Any] = {"state": {name: encode(value, lossless=True) for name, value in step.state.items()}}
        if step.action is not None:
            line["action"] = _action(step.action)
        lines.append(line)
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _action(action: Action | None) -> dict[str, Any] | None:
    if action is None:
        return None
    data = {
        "name": action.name,
        "args": [encode(value, lossless=True) for value in action.args],
        "parameters": {name: encode(value, lossless=True) for name, value in action.parameters.items()},
        "location": list(astuple(action.location)) if action.location else None,
    }
    return {key: value for key, value in data.items() if value not in (None, [], {})}


__all__ = ["FORMATS", "export", "itf", "ndjson"]

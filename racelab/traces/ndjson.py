"""One JSON object a line: logs made for trace validation, and racelab's own traces.

    {"racelab-trace": 1, "kind": "invariant", "property": "Isolation", "modules": ["M"], ...}
    {"state": {"x": 1}}
    {"state": {"x": 2}, "action": {"name": "Land", "args": ["r1"], "parameters": {}}}

is racelab's own, which keeps all that a Trace says. Logs of others have an event a line and no
states: etcd's `{"tag": "trace", "event": {"name": ...}}` (other tags are passed over) and CCF's
`{"action": ...}` or `{"type": ...}`. Their fields become the action's parameters. A log is what a
system did: it violates nothing by itself.
"""

from __future__ import annotations

from typing import Any, get_args

from racelab.errors import TraceError
from racelab.traces import json_values
from racelab.traces.trace import Action, Kind, Location, Step, Trace

HEADER = "racelab-trace"
VERSION = 1
_NAMES = ("name", "action", "type", "function", "event")


def read(text: str, file: str) -> list[Trace]:
    """The trace in a file of one JSON object a line.

    Raises:
        TraceError: a line is not JSON, or no event of a known form; it names the line.
    """
    objects: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            data = json_values.load(line, file, number, floats=True)
            if not isinstance(data, dict):
                raise TraceError(f"expected a JSON object, found {line[:40]!r}", file=file, line=number)
            objects.append((number, data))
    if objects and HEADER in objects[0][1]:
        return [_own(objects, file)]
    return [_log(objects, file)]


def _log(objects: list[tuple[int, dict[str, Any]]], file: str) -> Trace:
    steps = [Step({}, None, 1)]
    for number, data in objects:
        event = data
        if "tag" in data and isinstance(data.get("event"), dict):
            if data["tag"] != "trace":
                continue
            event = data["event"]
        name = next((event[key] for key in _NAMES if isinstance(event.get(key), str)), None)
        if name is None:
            raise TraceError(
                f"expected an event with one of {', '.join(_NAMES)}, found the keys {', '.join(event)[:80]}",
                file=file,
                line=number,
            )
        steps.append(Step({}, Action(name=name, parameters=json_values.decode_state(event, file, number)), number))
    if len(steps) == 1:
        raise TraceError("there is no event in it", file=file, line=1, next="give the log of a run")
    return Trace(file=file, format="ndjson", checker="log", kind="none", steps=tuple(steps))


def _own(objects: list[tuple[int, dict[str, Any]]], file: str) -> Trace:
    (number, header), *rest = objects
    if header[HEADER] != VERSION:
        raise TraceError(f"is of version {header[HEADER]}; this racelab reads {VERSION}", file=file, line=number)
    if header.get("states") != len(rest) or not rest:
        expected = header.get("states")
        raise TraceError(f"the file is cut: expected {expected} states, found {len(rest)}", file=file, line=number)
    kind: Kind = header["kind"] if header.get("kind") in get_args(Kind) else "unknown"
    steps = tuple(
        Step(json_values.decode_state(data.get("state"), file, line), _action(data.get("action"), file, line), line)
        for line, data in rest
    )
    loop = header.get("loop")
    modules = header.get("modules")
    return Trace(
        file=file,
        format="ndjson",
        checker=str(header.get("checker", "")),
        modules=tuple(map(str, modules)) if isinstance(modules, list) else (),
        kind=kind,
        property_name=_text(header.get("property")),
        message=_text(header.get("message")),
        steps=steps,
        loop=loop if type(loop) is int and 0 <= loop < len(steps) else None,
        loop_action=_action(header.get("loop-action"), file, number),
        stuttering=header.get("stuttering") is True,
    )


def _text(data: Any) -> str | None:
    return data if isinstance(data, str) else None


def _action(data: Any, file: str, line: int) -> Action | None:
    if data is None:
        return None
    if not isinstance(data, dict):
        raise TraceError(f"expected an action with its name, found {str(data)[:40]!r}", file=file, line=line)
    args = json_values.decode_state({"args": data.get("args", [])}, file, line)["args"]
    return Action(
        name=_text(data.get("name")),
        args=args if isinstance(args, tuple) else (),
        parameters=json_values.decode_state(data.get("parameters", {}), file, line),
        location=_location(data.get("location")),
    )


def _location(data: Any) -> Location | None:
    if isinstance(data, list) and len(data) == 5 and isinstance(data[0], str):
        places = [place for place in data[1:] if type(place) is int]
        if len(places) == 4:
            return Location(data[0], *places)
    return None


__all__ = ["HEADER", "VERSION", "read"]

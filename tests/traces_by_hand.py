"""Traces and bindings made by hand, in the words of a model that is none of the shipped ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from racelab.binding import document
from racelab.traces import values
from racelab.traces.trace import Action, Step, Trace

BINDING = """\
binding: hand
fits: {modules: [Hand]}
action: act.name
parameters: {Take: r, Land: r}
actions:
  Take: {means: [submit, post], request: [r, act.r]}
  Land: {means: land, request: [r, act.r]}
  Deliver: {means: deliver, request: act.r}
  Lose: {means: lose, request: act.r}
  Copy: {means: copy, request: act.r}
  Fail: {means: fail, request: act.r}
  Vanish: {means: vanish, request: act.r}
  Complete: {means: complete, request: act.r}
  Restart: {means: restart}
  TimeOut: {means: time-out, request: act.r}
  Abort: {means: abort, request: act.r}
  Expire: {means: expire, request: act.r}
  Finish: {means: finish, request: act.r}
  Both: {means: [land, deliver], request: act.r}
  Publish: {not-expressible: there is no cache}
  Think: silent
pages:
  pool: keys(page)
  taken: at[this]
  freed: gained(free)
properties:
  Safe: isolation
  temporal: finality
"""


def binding(tmp_path: Path, text: str = BINDING) -> document.Binding:
    path = tmp_path / "hand.yaml"
    path.write_text(text, encoding="utf-8")
    return document.load(path)


def trace(*story: str, pages: int = 2, **changes: Any) -> Trace:
    """A trace from lines such as `TimeOut r1 frees 1` and `Take r2 on 1`."""
    page = {index: index for index in range(1, pages + 1)}
    state: dict[str, Any] = {"page": page, "free": list(page), "at": {"nobody": 0}, "act": {"name": "Init", "r": ""}}
    steps = [_step(state, 1)]
    for number, line in enumerate(story, start=2):
        name, request, *rest = [*line.split(), ""]
        if "on" in rest:
            state["at"] = {**state["at"], request: int(rest[rest.index("on") + 1])}
            state["free"] = [free for free in state["free"] if free != state["at"][request]]
        if "frees" in rest:
            state["free"] = [*state["free"], int(rest[rest.index("frees") + 1])]
        state["act"] = {"name": name, "r": request}
        steps.append(_step(state, number))
    known = {"file": "made.txt", "format": "hand", "checker": "Hand", "modules": ("Hand",), "kind": "invariant"}
    return Trace(**{**known, "property_name": "Safe", "steps": tuple(steps), **changes})


def _step(state: dict[str, Any], number: int) -> Step:
    made = {name: _value(item) for name, item in state.items()}
    return Step(made, Action(name="Next") if number > 1 else None, number * 10)


def _value(item: Any) -> values.Value:
    if isinstance(item, dict):
        return values.function([(key, _value(value)) for key, value in item.items()])
    if isinstance(item, list):
        return tuple(map(_value, item))
    assert isinstance(item, int | str)
    return item

"""A scenario as YAML text that is read back equal."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from racelab.scenario import matches
from racelab.scenario.scenario import Scenario
from racelab.scenario.steps import Armed, Step, defaults_of, verb


def dump(scenario: Scenario) -> str:
    """YAML text that `loads` reads back equal; defaults are left out."""
    data: dict[str, Any] = msgspec.to_builtins(scenario)
    data["lab"] = _without_defaults(scenario.lab)
    data["requests"] = {name: _without_defaults(request) for name, request in scenario.requests.items()}
    data["steps"] = [_dump_step(step) for step in scenario.steps]
    kept = {key: value for key, value in data.items() if value not in (None, [], {}) or key in ("requests", "steps")}
    return yaml.safe_dump(kept, sort_keys=False, width=100, default_flow_style=None, allow_unicode=True)


def _dump_step(step: Step) -> dict[str, Any]:
    value = _without_defaults(step)
    for key in ("write", "message", "work"):
        if isinstance(value.get(key), dict):
            value[key] = _without_defaults(getattr(step, key))
    if isinstance(step, Armed):
        value = matches.dump(step, value)
    return {verb(step): value if len(value) != 1 else next(iter(value.values()))}


def _without_defaults(struct: msgspec.Struct) -> dict[str, Any]:
    defaults = defaults_of(type(struct))
    values = msgspec.to_builtins(struct)
    return {key: value for key, value in values.items() if key in defaults and value != defaults[key]}

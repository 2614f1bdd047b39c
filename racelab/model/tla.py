"""Writes values and configurations of the executable specification in the words of PdLedger.tla."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from racelab.model.spec.state import (
    ABORT,
    CONTROL_CARRIES_GENERATION,
    DRAIN_BEFORE_FREE,
    DUPLICATE,
    FAIL,
    LOSE,
    PUBLISH_AFTER_COMMIT,
    QUARANTINE_ON_EXPIRY,
    Config,
)
from racelab.shipped import shipped

MODEL = "PdLedger"

CONSTANTS = {
    "DrainBeforeFree": DRAIN_BEFORE_FREE,
    "QuarantineOnExpiry": QUARANTINE_ON_EXPIRY,
    "ControlCarriesGeneration": CONTROL_CARRIES_GENERATION,
    "PublishAfterCommit": PUBLISH_AFTER_COMMIT,
    "MayAbort": ABORT,
    "MayLose": LOSE,
    "MayDuplicate": DUPLICATE,
    "MayFail": FAIL,
}
"""The model's constant for each guard and each fault."""


def text(value: Any) -> str:
    """A value in TLA+: tuples are sequences, sets are sets, mappings with names for keys are records."""
    match value:
        case bool():
            return str(value).upper()
        case int():
            return str(value)
        case str():
            return json.dumps(value)
        case None:
            return "Nobody"
        case dict():
            return "[" + ", ".join(f"{key} |-> {text(item)}" for key, item in value.items()) + "]"
        case set() | frozenset():
            return "{" + ", ".join(sorted(map(text, value))) + "}"
        case tuple() | list():
            return "<<" + ", ".join(map(text, value)) + ">>"
    raise TypeError(f"{value!r} has no form in TLA+")


def by_request(values: dict[str, Any]) -> str:
    """A function from requests; their names may be any strings."""
    return " @@ ".join(f"{text(name)} :> {text(value)}" for name, value in values.items())


def module(name: str, config: Config, body: str = "") -> str:
    """A module that extends the model with this configuration's shapes, and with `body`."""
    shapes = config.shapes
    return "\n".join(
        [
            f"---- MODULE {name} ----",
            f"EXTENDS {MODEL}, TLC",
            f"NeedsHere == {by_request({request: shape.pages for request, shape in shapes.items()})}",
            f"GrantedHere == {by_request({request: shape.granted for request, shape in shapes.items()})}",
            f"KeysHere == {by_request({request: shape.keys for request, shape in shapes.items()})}",
            body,
            "====",
            "",
        ]
    )


def configuration(config: Config, *lines: str, specification: str = "Spec", view: str | None = "state") -> str:
    """TLC's configuration for `module`; `lines` are its properties."""
    switched = {constant: text(name in config.guards | config.faults) for constant, name in CONSTANTS.items()}
    constants = {
        "DecodePages": config.decode_pages,
        "PrefillPages": config.prefill_pages,
        "Requests": text(set(config.shapes)),
        "AttemptsMax": config.attempts_max,
        "Layers": config.layers,
        "ChunkPages": config.chunk_pages,
        **switched,
        "Nobody": "Nobody",
    }
    named = [f"  {shape} <- {shape}Here" for shape in ("Needs", "Granted", "Keys")]
    head = [f"SPECIFICATION {specification}"] + ([f"VIEW {view}"] if view else [])
    return "\n".join(
        [*head, "CONSTANTS", *(f"  {name} = {value}" for name, value in constants.items()), *named, *lines, ""]
    )


def write(
    folder: Path,
    name: str,
    config: Config,
    body: str = "",
    lines: Iterable[str] = (),
    *,
    specification: str = "Spec",
    view: str | None = "state",
    model: Path | None = None,
) -> Path:
    """Write the model, a module over it and its configuration into a folder; returns the module's path."""
    source = model or shipped("scenarios", "models", f"{MODEL}.tla")
    (folder / f"{MODEL}.tla").write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / f"{name}.cfg").write_text(
        configuration(config, *lines, specification=specification, view=view), encoding="utf-8"
    )
    path = folder / f"{name}.tla"
    path.write_text(module(name, config, body), encoding="utf-8")
    return path


__all__ = ["CONSTANTS", "by_request", "configuration", "module", "text", "write"]

"""Writes values and configurations of the executable specification in the words of PdLedger.tla."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from racelab.model.spec.state import GUARDS, Config
from racelab.shipped import shipped

MODEL = "PdLedger"


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
            f"RoomHere == {by_request({request: shape.room for request, shape in shapes.items()})}",
            f"KeysHere == {by_request({request: shape.keys for request, shape in shapes.items()})}",
            body,
            "====",
            "",
        ]
    )


def configuration(config: Config, *lines: str, specification: str = "Spec", view: str | None = "state") -> str:
    """TLC's configuration for `module`; `lines` are its properties."""
    constants = {
        "DecodePages": config.decode_pages,
        "PrefillPages": config.prefill_pages,
        "Requests": text(set(config.shapes)),
        "AttemptsMax": config.attempts_max,
        "Layers": config.layers,
        "Ranks": config.ranks,
        "ChunkPages": config.chunk_pages,
        "Slots": config.slots,
        "TooLong": text({request for request, shape in config.shapes.items() if shape.too_long}),
        "Without": text(set(GUARDS) - config.guards),
        "May": text(config.faults),
        "Has": text(config.parts),
        "Nobody": "Nobody",
    }
    named = [f"  {shape} <- {shape}Here" for shape in ("Needs", "Granted", "Keys", "Room")]
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
    for extended in source.parent.glob("*.tla"):
        shutil.copy(extended, folder)
    shutil.copy(source, folder / f"{MODEL}.tla")
    (folder / f"{name}.cfg").write_text(
        configuration(config, *lines, specification=specification, view=view), encoding="utf-8"
    )
    path = folder / f"{name}.tla"
    path.write_text(module(name, config, body), encoding="utf-8")
    return path


__all__ = ["by_request", "configuration", "module", "text", "write"]

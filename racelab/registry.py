"""What is installed: injectors and checkers, found through entry points, the built-in ones too."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

from racelab.errors import MissingPartError
from racelab.evidence.result import Checker
from racelab.gates import Injector

INJECTORS = "racelab.injectors"
CHECKERS = "racelab.checkers"


def injectors() -> list[Injector]:
    """Every installed injector."""
    return [plugin for _, plugin in _load(INJECTORS)]


def checkers() -> dict[str, Checker]:
    """Every installed checker by its specification."""
    return dict(_load(CHECKERS))


def _load(group: str) -> Iterator[tuple[str, Any]]:
    found = sorted(entry_points(group=group), key=lambda entry: entry.name)
    if not found:
        raise MissingPartError(f"nothing is registered under {group}", next="install racelab: pip install -e .")
    for entry in found:
        try:
            yield entry.name, entry.load()
        except (ImportError, AttributeError) as error:
            raise MissingPartError(
                f"{group} {entry.name!r} ({entry.value}) cannot be loaded: {error}",
                next="mend or uninstall the package that registers it",
            ) from None

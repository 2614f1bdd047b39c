"""`racelab import`: a model checker's file in, a scenario and the story of its making out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from racelab.binding import document, fitting
from racelab.binding.convert import Explained, convert
from racelab.scenario import Scenario
from racelab.traces import recognise


@dataclass(frozen=True)
class Imported:
    """What `racelab import` made of a counterexample, by which binding."""

    scenario: Scenario
    explain: tuple[Explained, ...]
    binding: str


def import_counterexample(
    path: str | Path, binding: str | Path | None = None, source: str | Path | None = None
) -> Imported:
    """Read a counterexample and turn it into a scenario.

    `binding` is a file of the user's; without it the one of those shipped that fits is taken.
    `source` is the folder with the model's modules, for headers that only have a location.

    Raises:
        TraceError: the file is torn, of no known format, or holds no counterexample.
        DocumentError: the binding has problems.
        BindingError: no binding fits, or a step has no single meaning.
    """
    trace = recognise.read(path)
    chosen = document.load(binding) if binding is not None else fitting.find(trace)
    if binding is not None:
        fitting.check(trace, chosen)
    converted = convert(trace, chosen, Path(source) if source is not None else None)
    return Imported(converted.scenario, converted.explain, chosen.name)


__all__ = ["Imported", "import_counterexample"]

"""Scenarios: a schedule, the lab it needs, what is expected; `load` reads a file of one, `dump` writes it."""

from racelab.scenario.lab import Lab
from racelab.scenario.reading import Placed, Surroundings, build, load, loads
from racelab.scenario.request import Request, pages_needed
from racelab.scenario.scenario import (
    PROBE,
    SPECIFICATIONS,
    VERDICTS,
    Expected,
    Origin,
    Scenario,
    Specification,
)
from racelab.scenario.writing import dump

__all__ = [
    "PROBE",
    "SPECIFICATIONS",
    "VERDICTS",
    "Expected",
    "Lab",
    "Origin",
    "Placed",
    "Request",
    "Scenario",
    "Specification",
    "Surroundings",
    "build",
    "dump",
    "load",
    "loads",
    "pages_needed",
]

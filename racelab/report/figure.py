"""One picture of a race, small enough for a page of prose: the diagram without its schedule."""

from __future__ import annotations

from typing import Any

from racelab.evidence.history import History
from racelab.report.form import COMPACT
from racelab.report.scene import build
from racelab.report.spacetime import spacetime


def figure(history: History, verdict: dict[str, Any]) -> str:
    """A standalone SVG with its own light and dark style."""
    return spacetime(build(history, verdict, COMPACT), verdict, standalone=True)

"""One picture of a race, small enough for a page of prose: the diagram without its schedule.

python -m racelab.report.figure RUN FILE.svg
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from racelab.evidence.history import History, read
from racelab.report.form import COMPACT
from racelab.report.page import read_verdict
from racelab.report.scene import build
from racelab.report.spacetime import spacetime


def figure(history: History, verdict: dict[str, Any]) -> str:
    """A standalone SVG with its own light and dark style."""
    return spacetime(build(history, verdict, COMPACT), verdict, standalone=True)


def write(run_dir: str | Path, file: str | Path) -> None:
    """Draw a run folder's picture into a file.

    Raises:
        HistoryError: the folder has no history or no verdict.
    """
    Path(file).write_text(figure(read(run_dir), read_verdict(Path(run_dir))) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2])

"""`racelab export`: a counterexample or a recorded run in a format of others.

itf, ndjson    a counterexample, as any model checker wrote it (racelab.traces.export)
perfetto       a run: its history as a Chrome trace (racelab.evidence.perfetto)
"""

from __future__ import annotations

from pathlib import Path

from racelab.errors import UsageError
from racelab.evidence import history, perfetto
from racelab.results import RunFolder, find_run
from racelab.traces import export as traces
from racelab.traces import recognise

RUN_FORMATS = ("perfetto",)


def export(source: Path, to: str, output: Path) -> None:
    """Write `source`, a run folder or a counterexample's file, to `output`.

    Raises:
        UsageError: the format does not exist, or does not fit what `source` is.
    """
    if to not in (*traces.FORMATS, *RUN_FORMATS):
        raise UsageError(f"unknown format {to!r}", next=f"one of: {', '.join((*traces.FORMATS, *RUN_FORMATS))}")
    if source.is_dir() or source.name == history.HISTORY_FILE:
        _export_run(source, to, output)
    elif to in RUN_FORMATS:
        raise UsageError(f"{to} is a format of runs, and {source} is no run folder", next="racelab list runs")
    else:
        RunFolder(output.parent).text(output.name, traces.export(recognise.read(source), to))


def _export_run(source: Path, to: str, output: Path) -> None:
    if to not in RUN_FORMATS:
        raise UsageError(
            f"{to} is a format of counterexamples, and {source} is a run", next=f"one of: {', '.join(RUN_FORMATS)}"
        )
    recorded = history.read(find_run(source) if source.is_dir() else source)
    RunFolder(output.parent)  # made if it is not there
    perfetto.write(recorded, output)

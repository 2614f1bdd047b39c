"""`racelab export`: a counterexample or a recorded run in a format of others.

itf, ndjson    a counterexample, as any model checker wrote it (racelab.traces.export), or what a run
               went through as a trace of the ledger's model (racelab.model.recorded)
perfetto       a run: its history as a Chrome trace (racelab.evidence.perfetto)
"""

from __future__ import annotations

from pathlib import Path

from racelab.errors import UsageError
from racelab.evidence import history, perfetto
from racelab.model.recorded import trace_of
from racelab.results import RunFolder, find_run
from racelab.traces import export as traces
from racelab.traces import recognise

RUN_FORMATS = ("perfetto",)


def export(source: Path, to: str, output: Path) -> None:
    """Write `source`, a run folder or a counterexample's file, to `output`.

    Raises:
        UsageError: the format does not exist, or does not fit what `source` is.
        HistoryError: the ledger's specification does not explain the run.
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
    recorded = history.read(find_run(source) if source.is_dir() else source)
    folder = RunFolder(output.parent)  # made if it is not there
    if to in RUN_FORMATS:
        perfetto.write(recorded, output)
    else:
        folder.text(output.name, traces.export(trace_of(recorded, str(source)), to))

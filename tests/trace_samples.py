"""Where the sample traces of real checkers lie, and a way to read changed ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from racelab.errors import TraceError
from racelab.traces import recognise
from racelab.traces.trace import Trace

SAMPLES = Path(__file__).parent / "data" / "traces"


def sample(name: str) -> Trace:
    """The first trace of a sample file."""
    return recognise.read(SAMPLES / name)


def text_of(name: str) -> str:
    """The text of a sample file."""
    return (SAMPLES / name).read_text(encoding="utf-8")


def refusal(read: Callable[[], object]) -> TraceError | None:
    """How `read` was refused, or None if it was not; any other exception goes through."""
    try:
        read()
    except TraceError as error:
        return error
    return None

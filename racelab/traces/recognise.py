"""Reads a model checker's file, whatever its format: the content says which one it is."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from pathlib import Path

from racelab.errors import TraceError
from racelab.traces import tlc_text
from racelab.traces.trace import Trace

Reader = Callable[[str, str], list[Trace]]

_TLC_TEXT = re.compile(r"^(?:TLC2 Version |State \d+: |Error: |Starting SANY)", re.MULTILINE)

FORMATS = ("TLC text",)


def read(path: str | Path) -> Trace:
    """The first counterexample in the file.

    Raises:
        TraceError: the file cannot be read, is of no known format, is torn, or holds no behaviour.
    """
    return read_all(path)[0]


def read_all(path: str | Path) -> list[Trace]:
    """Every counterexample in the file; at least one. Raises as `read` does."""
    file = str(path)
    text = _text(path)
    return _reader(text, file)(text, file)


def _text(path: str | Path) -> str:
    """The text, with line ends as `\\n`. A shell on Windows writes UTF-16; old TLC writes Latin-1 counts."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror}", file=path, next="check the path") from None
    encoding = "utf-8-sig"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    return content.decode(encoding, errors="replace").replace("\r\n", "\n")


def _reader(text: str, file: str) -> Reader:
    if _TLC_TEXT.search(text):
        return tlc_text.read
    raise TraceError(
        "is of no format that racelab reads" if text.strip() else "is empty",
        file=file,
        line=1,
        next=f"give the output of a model checker: {', '.join(FORMATS)}",
    )


__all__ = ["read", "read_all"]

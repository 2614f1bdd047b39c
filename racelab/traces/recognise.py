"""Reads a model checker's file, whatever its format: the content says which one it is."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from racelab.errors import TraceError
from racelab.evidence import collector
from racelab.traces import itf, ndjson, spin, tlc_json, tlc_text, tlc_tool
from racelab.traces.trace import Trace

Reader = Callable[[str, str], list[Trace]]

FORMATS: dict[str, Reader] = {
    "TLC text": tlc_text.read,
    "TLC -tool": tlc_tool.read,
    "TLC -dumpTrace json": tlc_json.read,
    "ITF (Apalache, Quint)": itf.read,
    "SPIN text": spin.read,
    "ndjson": ndjson.read,
}

_TLC_TEXT = re.compile(r"^(?:TLC2 Version |State \d+: |Error: |Starting SANY)", re.MULTILINE)
_SPIN_TEXT = re.compile(r"^(?:spin: |\s*ACT \w|\s*\d+:\tproc )", re.MULTILINE)
_PRINTED = re.compile(r"^(.*?)(?:TLC2 Version |@!@!@STARTMSG|spin: trail ends)", re.MULTILINE)
_GZIP = b"\x1f\x8b"
_FIRST_KEY = re.compile(r'"([^"]*)"\s*:')


def read(path: str | Path) -> Trace:
    """The first counterexample in the file.

    Raises:
        TraceError: the file cannot be read, is of no known format, is torn, or holds no behaviour.
    """
    return read_all(path)[0]


def read_all(path: str | Path) -> list[Trace]:
    """Every counterexample in the file; at least one. Raises as `read` does."""
    return read_text(_text(path), str(path))


def read_text(text: str, file: str) -> list[Trace]:
    """Every counterexample in a text; `file` is what messages call it. Raises as `read` does."""
    try:
        with collector.paused():
            return _reader(text, file)(text, file)
    except TraceError as error:
        _refuse_log(text, file)
        error.next = error.next or "make the file anew and keep all of it"
        raise


def _refuse_log(text: str, file: str) -> None:
    """Says so if a log or a terminal put something before what the checker printed: a time, a colour."""
    match = _PRINTED.search(text)
    if match and match[1]:
        raise TraceError(
            f"what the checker printed stands behind {match[1]!r}",
            file=file,
            line=text.count("\n", 0, match.start()) + 1,
            next="take away what was put before each line (a time, a colour), or keep the checker's own output",
        ) from None


def _text(path: str | Path) -> str:
    """The text, with line ends as `\\n`. A shell on Windows writes UTF-16; old TLC writes Latin-1 counts."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror}", file=path, line=1, next="check the path") from None
    if content.startswith(_GZIP):
        raise TraceError("is compressed with gzip", file=path, line=1, next="unpack it with `gunzip` first")
    encoding = "utf-8-sig"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    return content.decode(encoding, errors="replace").replace("\r\n", "\n")


def _reader(text: str, file: str) -> Reader:
    start = text.lstrip()
    if start.startswith(("{", "[")):
        return _json_reader(start)
    if "@!@!@STARTMSG" in text:
        return tlc_tool.read
    if _TLC_TEXT.search(text):
        return tlc_text.read
    if _SPIN_TEXT.search(text):
        return spin.read
    raise TraceError(
        "is of no format that racelab reads" if start else "is empty",
        file=file,
        line=1,
        next=f"give the output of a model checker: {', '.join(FORMATS)}",
    )


def _json_reader(start: str) -> Reader:
    """Which JSON it is. One that is cut is told by its first key, so that its reader says where."""
    first, _, rest = start.partition("\n")
    data = _loaded(first if rest.strip() else start)
    if isinstance(data, dict) and rest.strip():
        return ndjson.read  # a whole object, and more lines
    if data is None:
        data = _loaded(start)
    if isinstance(data, list) or (data is None and start.startswith("[")):
        return tlc_json.read
    keys = data.keys() if isinstance(data, dict) else set(_FIRST_KEY.findall(start[:200])[:1])
    if keys & {"counterexample", "state"} or (isinstance(data, dict) and isinstance(data.get("action"), list)):
        return tlc_json.read
    if keys & {"#meta", "states", "vars"}:
        return itf.read
    return ndjson.read


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


__all__ = ["FORMATS", "read", "read_all", "read_text"]

"""TLC's plain output, from version 2.14 (2019) to the builds of 2026.

    TLC2 Version 2.15 of Day Month 20?? (rev: d5b5a7f)
    ...
    Error: Invariant Isolation is violated.
    Error: The behavior up to this point is:
    State 1: <Initial predicate>
    /\\ wire = {}
    ...
    State 2: <Submit("r1") line 40, col 3 to line 52, col 21 of module PageLifecycle>
    ...
    Finished in 02s at (2026-11-30 19:52:09)

A behaviour may end in `State 9: Stuttering` or `Back to state 3: <...>`; with `-continue` there are
several. An output that has TLC's first line must have its last one too: what is cut is refused,
for the part that is missing may change what the rest means.
"""

from __future__ import annotations

import re

from racelab.traces.tlc_parts import COMPLAINT_LINES, Behaviours, Line
from racelab.traces.trace import Trace

_STATE = re.compile(r"State (\d+):\s*(.*)")
_BACK = re.compile(r"Back to state:? (\d+):?\s*(<.*>)?\s*")
_PROGRESS = re.compile(r"Progress(?:\(\w+\))?(?: at|:) ")


def read(text: str, file: str) -> list[Trace]:
    """Every counterexample in TLC's output.

    Raises:
        TraceError: there is none, or the output is cut or torn; it says where.
    """
    found = Behaviours(file, "tlc-text")
    lines = text.split("\n")
    body: list[Line]
    at = 0
    while at < len(lines):
        line, number = lines[at], at + 1
        at += 1
        if match := _STATE.match(line):
            body, at = ([], at) if match[2] == "Stuttering" else _body(lines, at)
            found.state(int(match[1]), match[2], body, number)
        elif match := _BACK.match(line):
            found.back(int(match[1]), match[2], number)
        elif line.startswith("Error: "):
            if found.sentence(lines[number - 1 : number - 1 + COMPLAINT_LINES], number):
                body, at = _body(lines, at)
                found.initial(body, number)
        else:
            found.note(line)
    return found.finish("TLC's last line, 'Finished in ... at (...)'", len(lines))


def _body(lines: list[str], at: int) -> tuple[list[Line], int]:
    """The lines from `at` up to the blank one that ends a state, and where it goes on."""
    body: list[Line] = []
    while at < len(lines) and lines[at].strip() and not _STATE.match(lines[at]):
        at += 1
        if not _PROGRESS.match(lines[at - 1]):  # another thread of TLC tells how far it is
            body.append((at, lines[at - 1]))
    return body, at


__all__ = ["read"]

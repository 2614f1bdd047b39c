"""TLC's output for tools (`-tool`): the same sentences and states, each in a numbered message.

    @!@!@STARTMSG 2217:4 @!@!@
    2: <Submit line 63, col 3 to line 76, col 32 of module PageLifecycle>
    /\\ wire = {}
    ...
    @!@!@ENDMSG 2217 @!@!@

The number says what a message is; severity 1 is an error.
"""

from __future__ import annotations

import re

from racelab.traces.tlc_parts import Behaviours, Line
from racelab.traces.trace import Trace

_START = re.compile(r"@!@!@STARTMSG (\d+):(\d+) @!@!@\s*")
_NUMBERED = re.compile(r"(\d+):\s*(.*)")
_BACK = re.compile(r"(\d+): Back to state:?\s*(<.*>)?\s*")

ERROR_SEVERITY = 1
STATE, STUTTERING, BACK = 2217, 2218, 2122


def read(text: str, file: str) -> list[Trace]:
    """Every counterexample in TLC's output.

    Raises:
        TraceError: there is none, or the output is cut or torn; it says where.
    """
    found = Behaviours(file, "tlc-tool")
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        match = _START.fullmatch(lines[at])
        if match is None:
            found.note(lines[at])
            at += 1
            continue
        body, at = _message(found, lines, at, int(match[1]))
        _take(found, int(match[1]), int(match[2]), body)
    return found.finish("the message 'Finished in ... at (...)'", len(lines))


def _message(found: Behaviours, lines: list[str], at: int, code: int) -> tuple[list[Line], int]:
    """The lines of the message that starts at `at`, and where it goes on."""
    body: list[Line] = []
    for index in range(at + 1, len(lines)):
        if lines[index].startswith(f"@!@!@ENDMSG {code} @!@!@"):
            return body, index + 1
        if _START.fullmatch(lines[index]):
            break
        body.append((index + 1, lines[index]))
    raise found.error(f"message {code} is cut: expected '@!@!@ENDMSG {code} @!@!@'", at + 1)


def _take(found: Behaviours, code: int, severity: int, body: list[Line]) -> None:
    """One message, by its code."""
    filled = [(number, line) for number, line in body if line.strip()]
    if not filled:
        return
    number, first = filled[0]
    if code in (STATE, STUTTERING):
        match = _NUMBERED.fullmatch(first)
        if match is None:
            raise found.error(f"expected a state's number and action, found {first[:60]!r}", number)
        found.state(int(match[1]), match[2], filled[1:], number)
    elif code == BACK:
        match = _BACK.fullmatch(first)
        if match is None:
            raise found.error(f"expected 'N: Back to state', found {first[:60]!r}", number)
        found.back(int(match[1]), match[2], number)
    elif severity == ERROR_SEVERITY:
        if found.sentence([line for _, line in filled], number):
            found.initial(filled[1:], number)
    else:
        for _, line in filled:
            found.note(line)


__all__ = ["read"]

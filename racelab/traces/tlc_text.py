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

from racelab.errors import TraceError
from racelab.traces import tlc_parts
from racelab.traces.trace import Step, Trace

_STATE = re.compile(r"State (\d+):\s*(.*)")
_BACK = re.compile(r"Back to state:? (\d+):?\s*(<.*>)?\s*")
_VERSION = re.compile(r"TLC2 Version (\S+)")
_MODULE = re.compile(r"Parsing file (?:.*[/\\])?(\w+)\.tla\b")
_FINISHED = re.compile(r"Finished in .+ at \(.+\)\s*")
_PROGRESS = re.compile(r"Progress(?:\(\w+\))?(?: at|:) ")
_BEHAVIOUR = ("The behavior up to this point is", "The following behavior constitutes a counter-example")
_INITIAL = "by the initial state:"


def read(text: str, file: str) -> list[Trace]:
    """Every counterexample in TLC's output.

    Raises:
        TraceError: there is none, or the output is cut or torn; it says where.
    """
    return _Reader(text, file).read()


class _Reader:
    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.lines = text.split("\n")
        self.at = 0
        self.checker = ""
        self.modules: list[str] = []
        self.finished = False
        self.said_good = False
        self.drafts: list[tlc_parts.Draft] = []
        self.errors: list[tlc_parts.Draft] = []
        self.states = tlc_parts.StateReader(file)

    def read(self) -> list[Trace]:
        while self.at < len(self.lines):
            self.line(self.lines[self.at])
        if self.checker and not self.finished:
            raise self.error(
                "the output is cut: expected TLC's last line, 'Finished in ... at (...)', found the end of the file",
                len(self.lines),
                next="let TLC finish and keep all it prints, or give the part from 'Error:' on alone",
            )
        if not self.drafts:
            raise self.nothing()
        return [draft.finish(self.file, "tlc-text", self.checker or "TLC", self.modules) for draft in self.drafts]

    def line(self, line: str) -> None:
        """One line outside of a state."""
        number = self.at + 1
        self.at += 1
        if match := _STATE.match(line):
            self.state(int(match[1]), match[2], number)
        elif match := _BACK.match(line):
            self.back(int(match[1]), match[2], number)
        elif line.startswith("Error: "):
            self.sentence(line.removeprefix("Error: "), number)
        elif match := _VERSION.match(line):
            self.checker = f"TLC {match[1]}"
        elif match := _MODULE.match(line):
            self.modules.append(match[1])
        elif _FINISHED.fullmatch(line):
            self.finished = self.at < len(self.lines)  # its line end stands, so it is whole
        elif line.startswith("Model checking completed. No error"):
            self.said_good = True

    def sentence(self, sentence: str, number: int) -> None:
        """What stands after `Error:`; a violation by the initial state shows that state at once."""
        if sentence.startswith(_BEHAVIOUR):
            return
        kind, name = tlc_parts.violation(sentence)
        draft = tlc_parts.Draft(kind, name, sentence.strip(), number)
        self.errors.append(draft)
        if sentence.rstrip().endswith(_INITIAL):
            self.drafts.append(draft)
            self.add(draft, None, number)

    def state(self, index: int, header: str, number: int) -> None:
        draft = self.draft(index, number)
        if header.strip() == "Stuttering":
            draft.stuttering = True
            return
        self.add(draft, header, number)

    def draft(self, index: int, number: int) -> tlc_parts.Draft:
        """The behaviour that state `index` belongs to: state 1 begins one."""
        if index == 1:
            known = self.errors[-1] if self.errors else tlc_parts.Draft("unknown", None, "", number)
            if known in self.drafts:
                known = tlc_parts.Draft(known.kind, known.property_name, known.message, known.line)
            self.drafts.append(known)
        expected = len(self.drafts[-1].steps) + 1 if self.drafts else 1
        if index != expected or self.drafts[-1].ended:
            raise self.error(f"expected state {expected}, found state {index}", number)
        return self.drafts[-1]

    def add(self, draft: tlc_parts.Draft, header: str | None, number: int) -> None:
        """Read the state whose variables stand on the lines that follow."""
        action = tlc_parts.action(header, self.file, number) if header else None
        body = self.body()
        if not body and not draft.steps:
            raise self.error("expected the variables of the state, '/\\ name = value'", number + 1)
        draft.steps.append(Step(self.states.read(body, draft.last) if body else draft.last, action, number))

    def body(self) -> list[tlc_parts.Line]:
        """The lines up to the blank one that ends a state."""
        body: list[tlc_parts.Line] = []
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if not line.strip() or _STATE.match(line):
                break
            self.at += 1
            if not _PROGRESS.match(line):
                body.append((self.at, line))
        return body

    def back(self, index: int, header: str | None, number: int) -> None:
        if not self.drafts or not 1 <= index <= len(self.drafts[-1].steps) or self.drafts[-1].ended:
            raise self.error(f"goes back to state {index}, which is not in this behaviour", number)
        draft = self.drafts[-1]
        draft.loop = index - 1
        draft.loop_action = tlc_parts.action(header, self.file, number) if header else None

    def nothing(self) -> TraceError:
        """Why there is no counterexample in an output that is whole."""
        if self.errors:
            first = self.errors[0]
            return self.error(
                f"TLC stopped without a behaviour: {first.message}",
                first.line,
                next="mend the model or its configuration",
            )
        if self.said_good:
            return self.error(
                "TLC found no error, so there is no counterexample to import", len(self.lines), next="nothing to do"
            )
        return self.error("expected 'State 1: <Initial predicate>', found no behaviour", len(self.lines))

    def error(self, what: str, line: int, next: str | None = None) -> TraceError:
        return TraceError(what, file=self.file, line=line, next=next or "make the output anew and keep all of it")


__all__ = ["read"]

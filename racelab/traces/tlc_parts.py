"""What TLC's plain and `-tool` outputs share: error sentences, action headers, bodies of states."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from racelab.errors import TraceError
from racelab.traces import values
from racelab.traces.trace import Action, Kind, Location, State, Step, Trace
from racelab.traces.values import Value

Line = tuple[int, str]
"""A line of the file and its number."""

_VERSION = re.compile(r"TLC2 Version (\S+)")
_MODULE = re.compile(r"Parsing file (?:.*[/\\])?(\w+)\.tla\b")
_FINISHED = re.compile(r"Finished in .+ at \(.+\)\s*")
_HEADINGS = ("The behavior up to this point is", "The following behavior constitutes a counter-example")
_BOILERPLATE = (
    "Error: TLC threw an unexpected exception",
    "This was probably caused by an error in the spec",
    "See the User Output or TLC Console",
    "The exception was a",
)
COMPLAINT_LINES = 12
_INITIAL = "by the initial state:"
_HEADER = re.compile(r"<(.*?) ?line (\d+), col (\d+) to line (\d+), col (\d+) of module ([^\s>]+)>", re.DOTALL)
_CALL = re.compile(r"([\w!]+)(\(.*\))?", re.DOTALL)
_VARIABLE = re.compile(r"(?:/\\ )?([\w!:]+) =(?: |$)")
_VIOLATIONS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("invariant", re.compile(r"Invariant (.+?) is violated")),
    ("action-property", re.compile(r"Action property (.+?) is violated")),
    ("property", re.compile(r"Property (.+?) is violated")),
    ("temporal", re.compile(r"Temporal propert(?:y|ies) (?:were|(.+?) (?:was|were)) violated")),
    ("deadlock", re.compile(r"Deadlock reached()")),
    ("assertion", re.compile(r"(?:The first argument of Assert evaluated to FALSE|Assumption (.+?) is false)")),
)


def violation(sentence: str) -> tuple[Kind, str | None]:
    """The kind of violation and the property's name, from what stands after `Error:`."""
    for kind, pattern in _VIOLATIONS:
        match = pattern.match(sentence)
        if match:
            return kind, (match[1] or None) if match.groups() else None
    return "error", None


def complaint(lines: list[str]) -> str:
    """What TLC says is wrong: the sentence that starts the lines, and where it goes on below, in one line."""
    said = []
    for index, line in enumerate(lines[:COMPLAINT_LINES]):
        if index and (not line.strip() or line.startswith(("Error:", "State ", "Finished", "@!@!@"))):
            break
        if not line.startswith(_BOILERPLATE):
            said.append(line.strip().removeprefix("Error: ").removeprefix(": "))
    return " ".join(said)


def action(header: str, file: str, line: int) -> Action | None:
    """The action of `<Name("r1") line 6, col 3 to line 9, col 40 of module M>`; None for the first state.

    Raises:
        TraceError: the header is cut, or its arguments are no values.
    """
    header = header.strip()
    if header.startswith("<Initial predicate"):
        return None
    match = _HEADER.fullmatch(header)
    if match is None:
        if header.startswith("<") and header.endswith(">"):
            return Action(name=header[1:-1].strip() or None)
        raise TraceError(
            f"expected an action such as <Name line 1, col 1 to line 2, col 9 of module M>, found {header[:60]!r}",
            file=file,
            line=line,
        )
    name, *place, module = match.groups()
    location = Location(module, *(int(number) for number in place))
    call = _CALL.fullmatch(name)
    if call is None:
        return Action(name=name or None, location=location)
    args: Value = values.parse(f"<<{call[2][1:-1]}>>", file=file, line=line) if call[2] else ()
    assert isinstance(args, tuple)
    return Action(name=call[1], args=args, location=location)


@dataclass(slots=True)
class StateReader:
    """Reads the bodies of states. A value seen before is not parsed again: most do not change."""

    file: str
    _seen: dict[str, Value] = field(default_factory=dict)

    def read(self, lines: list[Line], before: State) -> State:
        """The state of these lines; variables that they leave out (`-difftrace`) keep their value.

        Raises:
            TraceError: a line is not part of a state, or a value is torn.
        """
        state = dict(before)
        start = 0
        for index in range(1, len(lines) + 1):
            if index == len(lines) or lines[index][1].startswith("/\\ "):
                name, value = self.variable(lines[start:index])
                if before and name not in before:
                    raise TraceError(
                        f"variable {name!r} was not in the state before", file=self.file, line=lines[start][0]
                    )
                state[name] = value
                start = index
        return state

    def variable(self, lines: list[Line]) -> tuple[str, Value]:
        """`/\\ name = value`; the value may go on over several lines."""
        number, first = lines[0]
        match = _VARIABLE.match(first)
        if match is None:
            raise TraceError(f"expected '/\\ variable = value', found {first[:60]!r}", file=self.file, line=number)
        text = first[match.end() :]
        if len(lines) > 1:
            text = "\n".join([text, *(line for _, line in lines[1:])])
        value = self._seen.get(text)
        if value is None:
            value = values.parse(text, file=self.file, line=number, column=match.end() + 1)
            self._seen[text] = value
        return match[1], value


@dataclass(slots=True)
class Draft:
    """A behaviour that is being read; the first state comes with the sentence that announces it or after."""

    kind: Kind
    property_name: str | None
    message: str
    line: int
    steps: list[Step] = field(default_factory=list)
    loop: int | None = None
    loop_action: Action | None = None
    stuttering: bool = False

    @property
    def ended(self) -> bool:
        """Whether a lasso or stuttering closed it: no state may follow."""
        return self.loop is not None or self.stuttering

    def finish(self, file: str, format: str, checker: str, modules: list[str]) -> Trace:
        """The Trace; modules that only locations name come last."""
        located = [step.action.location.module for step in self.steps if step.action and step.action.location]
        return Trace(
            file=file,
            format=format,
            checker=checker,
            modules=tuple(dict.fromkeys([*modules, *reversed(located)])),
            kind=self.kind,
            property_name=self.property_name,
            message=self.message,
            line=self.line,
            steps=tuple(self.steps),
            loop=self.loop,
            loop_action=self.loop_action,
            stuttering=self.stuttering,
        )


class Behaviours:
    """The behaviours of one output, as its sentences and states come in, in either format."""

    def __init__(self, file: str, format: str) -> None:
        self.file = file
        self.format = format
        self.checker = ""
        self.modules: list[str] = []
        self.finished = False
        self.said_good = False
        self._drafts: list[Draft] = []
        self._errors: list[Draft] = []
        self._states = StateReader(file)

    def note(self, line: str) -> bool:
        """Take in a line that both formats have: version, module, last line. Whether it was one."""
        if match := _VERSION.match(line):
            self.checker = f"TLC {match[1]}"
        elif match := _MODULE.match(line):
            self.modules.append(match[1])
        elif _FINISHED.fullmatch(line):
            self.finished = True
        elif line.startswith("Model checking completed. No error"):
            self.said_good = True
        else:
            return False
        return True

    def sentence(self, lines: list[str], line: int) -> bool:
        """What was violated, or what went wrong. Whether the initial state stands right below it."""
        sentence = lines[0].removeprefix("Error: ")
        if sentence.startswith(_HEADINGS):
            return False
        message = sentence.strip() if _INITIAL in sentence else complaint(lines)
        kind, name = violation(sentence)
        if kind == "error":
            kind, name = violation(message)
        self._errors.append(Draft(kind, name, message, line))
        return _INITIAL in sentence

    def initial(self, body: list[Line], line: int) -> None:
        """The state that violates a property by itself."""
        self._drafts.append(self._errors[-1])
        self._add(self._drafts[-1], None, body, line)

    def state(self, index: int, header: str, body: list[Line], line: int) -> None:
        """One state, with its number and header; or stuttering, which has a number but no variables."""
        draft = self._draft(index, line)
        if header.strip() == "Stuttering":
            draft.stuttering = True
        else:
            reached_by = action(header, self.file, line)  # newer builds name the first state's predicate
            self._add(draft, reached_by if index > 1 else None, body, line)

    def back(self, index: int, header: str | None, line: int) -> None:
        """The behaviour goes back to state `index`."""
        if not self._drafts or not 1 <= index <= len(self._drafts[-1].steps) or self._drafts[-1].ended:
            raise self.error(f"goes back to state {index}, which is not in this behaviour", line)
        draft = self._drafts[-1]
        draft.loop = index - 1
        draft.loop_action = action(header, self.file, line) if header else None

    def finish(self, last: str, lines: int) -> list[Trace]:
        """The traces; `last` is how the output's last line begins, `lines` how many there are.

        Raises:
            TraceError: the output is cut, or there is no behaviour in it.
        """
        if self.checker and not self.finished:
            raise self.error(
                f"the output is cut: expected {last}, found the end of the file",
                lines,
                next="let TLC finish and keep all it prints, or give the part from 'Error:' on alone",
            )
        if not self._drafts:
            raise self._nothing(lines)
        checker = self.checker or "TLC"
        return [draft.finish(self.file, self.format, checker, self.modules) for draft in self._drafts]

    def error(self, what: str, line: int, next: str | None = None) -> TraceError:
        """A TraceError of this file."""
        return TraceError(what, file=self.file, line=line, next=next or "make the output anew and keep all of it")

    def _draft(self, index: int, line: int) -> Draft:
        """The behaviour that state `index` belongs to: state 1 begins one."""
        if index == 1:
            known = self._errors[-1] if self._errors else Draft("unknown", None, "", line)
            if known in self._drafts:  # with -continue a property may be violated twice
                known = Draft(known.kind, known.property_name, known.message, known.line)
            self._drafts.append(known)
        expected = len(self._drafts[-1].steps) + 1 if self._drafts else 1
        if index != expected or self._drafts[-1].ended:
            raise self.error(f"expected state {expected}, found state {index}", line)
        return self._drafts[-1]

    def _add(self, draft: Draft, reached_by: Action | None, body: list[Line], line: int) -> None:
        before = draft.steps[-1].state if draft.steps else {}
        if not body and not before:
            raise self.error("expected the variables of the state, '/\\ name = value'", line + 1)
        draft.steps.append(Step(self._states.read(body, before) if body else before, reached_by, line))

    def _nothing(self, lines: int) -> TraceError:
        """Why there is no counterexample in an output that is whole."""
        if self._errors:
            first = self._errors[0]
            return self.error(
                f"TLC stopped without a behaviour: {first.message}",
                first.line,
                next="mend the model or its configuration",
            )
        if self.said_good:
            return self.error(
                "TLC found no error, so there is no counterexample to import", lines, next="nothing to do"
            )
        return self.error("expected a behaviour that begins with state 1, found none", lines)


__all__ = ["COMPLAINT_LINES", "Behaviours", "Line", "StateReader", "action", "complaint", "violation"]

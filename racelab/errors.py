"""Every error that racelab raises on purpose.

RacelabError                    what, file, line, next: one clear message
├── InputError                  the user's input or usage is wrong          exit 2
│   ├── UsageError              an option, a name or a path on the command line
│   ├── DocumentError           a YAML document: every problem at once
│   ├── TraceError              a model checker's output that cannot be read
│   ├── BindingError            a trace that no binding explains
│   └── HistoryError            a run folder or history that cannot be judged
└── LabError                    the lab failed, the system under test did not  exit 4
    ├── MissingPartError        a library, device or program is not here
    ├── PortTakenError          somebody else listens on a port that was asked for
    ├── BusError                no broker where one was expected
    ├── PeerDiedError           a process of the lab ended unasked
    ├── BoundError              a bounded wait on the lab itself ran out
    └── DirtyLabError           a warm lab could not be proven clean between two runs
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXIT_EXPECTED = 0
EXIT_UNEXPECTED = 1
EXIT_INPUT = 2
EXIT_UNDECIDED = 3
EXIT_LAB = 4


@dataclass(frozen=True)
class Problem:
    """One thing wrong with one document; `line` counts from 1."""

    what: str
    line: int | None = None


class RacelabError(Exception):
    """The root: `what` happened, in which `file` at which `line`, and what to do `next`."""

    exit_code = EXIT_LAB

    def __init__(
        self,
        what: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        next: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.file = str(file) if file is not None else None
        self.line = line
        self.next = next

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file and self.line else f"{self.file}: " if self.file else ""
        hint = f"\n  next: {self.next}" if self.next else ""
        return f"{place}{self.what}{hint}"

    def to_json(self) -> dict[str, Any]:
        """The `error` object of DESIGN's `--json` contract."""
        return {"what": self.what, "file": self.file, "line": self.line, "next": self.next}


class InputError(RacelabError):
    """What the user gave cannot be used. Correct it and run the same command again."""

    exit_code = EXIT_INPUT


class UsageError(InputError):
    """The command line names something that is not there. `--help` shows what is."""


class DocumentError(InputError):
    """A YAML document has problems. All of them are listed, each with its line."""

    def __init__(self, problems: Sequence[Problem], *, file: str | Path, next: str | None = None) -> None:
        assert problems, "a document error without a problem"
        first = problems[0]
        super().__init__(first.what, file=file, line=first.line, next=next)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        places = ((f"{self.file}:{problem.line}" if problem.line else self.file, problem) for problem in self.problems)
        lines = [f"{place}: {problem.what}" for place, problem in places]
        if self.next:
            lines.append(f"  next: {self.next}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        problems = [{"what": problem.what, "line": problem.line} for problem in self.problems]
        return super().to_json() | {"problems": problems}


class TraceError(InputError):
    """The checker's output is torn, or holds no counterexample. Make it anew."""


class BindingError(InputError):
    """A step of the trace has no single name or no schedule step. Mend the binding."""


class HistoryError(InputError):
    """The run's record is missing, torn or of another version."""


class LabError(RacelabError):
    """The harness failed, so nothing can be said of the system under test."""


class MissingPartError(LabError):
    """Something that this run needs is not installed. `racelab doctor` names it."""


class PortTakenError(LabError):
    """A fixed port is in use. Free it, or leave the port out to get a free one."""


class BusError(LabError):
    """The MQTT broker cannot be reached. Start it, or use the embedded one."""


class PeerDiedError(LabError):
    """A process of the lab ended during a run. Its log says why; the next run starts a new one."""

    def __init__(self, peer: str, doing: str, *, file: str | Path | None = None) -> None:
        super().__init__(
            f"{peer} died during {doing}",
            file=file,
            next="look at its log; the next run starts a new one",
        )
        self.peer = peer
        self.doing = doing


class BoundError(LabError):
    """A wait on the lab reached its bound. The message says what it waited for."""


class DirtyLabError(LabError):
    """Something of the last run is left. The lab is replaced before the next run."""

"""Processes of the lab that are not Ray's: broker and gates. Each is ended by its id, within a bound."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from racelab.errors import LabError
from racelab.gates import TOKEN_VARIABLE

END_BOUND_S = 3.0


class Child:
    """`python -m MODULE ARGUMENTS`, its output in a log of its own."""

    def __init__(self, name: str, module: str, arguments: list[str], token: str, logs: Path) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {TOKEN_VARIABLE: token},
                start_new_session=True,  # Ctrl-C is the conductor's to handle
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def check(self) -> None:
        """Raise what its log says last if it has ended already."""
        code = self._process.poll()
        if code is not None:
            raise LabError(
                f"{self.name} ended at once with code {code}: {self._last_words()}",
                file=self.log,
                next="mend what it says and run again",
            )

    def end(self) -> None:
        """It ends by itself when the hub hangs up; after the bound it is ended by id."""
        try:
            self._process.wait(END_BOUND_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

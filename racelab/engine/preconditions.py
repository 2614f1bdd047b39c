"""What has to be so before a ledger transition, looked at each time at run time.

A precondition that does not hold is recorded with the ticket and with the engine's code that asked
for the transition. It stops nothing: what an engine does with wrong books is what is to be seen.
"""

from __future__ import annotations

import sys
from pathlib import Path

from racelab.engine.guards import Ticket
from racelab.evidence.recorder import Recorder

_BOOKKEEPERS = frozenset({"preconditions.py", "ledger.py", "prefix_cache.py", "glue_faults.py"})
"""The caller is whoever called these."""


class Preconditions:
    """`require` costs a comparison where the rule holds."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def require(self, holds: bool, transition: str, ticket: Ticket, rule: str) -> None:
        """Record a `ledger-violation` unless the rule holds."""
        if not holds:
            self._recorder.record(
                "ledger-violation",
                ticket.request,
                ticket.attempt,
                ticket.page,
                ticket.gen,
                transition=transition,
                rule=rule,
                caller=_caller(),
            )


def _caller() -> str:
    """`Decode._end (decode.py)`: the nearest code outside of the books."""
    frame = sys._getframe(2)
    while frame.f_back is not None and Path(frame.f_code.co_filename).name in _BOOKKEEPERS:
        frame = frame.f_back
    return f"{frame.f_code.co_qualname} ({Path(frame.f_code.co_filename).name})"

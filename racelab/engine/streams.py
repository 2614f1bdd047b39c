"""Streams that travel beside the model's own KV (lab `streams`): in the same pages, in blocks of their own.

    scales    of a quantised cache: without its scales the KV of a page means nothing

Each is written and reported by itself, and so can be late or fail by itself. As upstream engines do it, decode counts
the parts of the KV and commits; that the other streams are complete by then is for a guard to see to.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from racelab.engine.guards import CommitApart, Guards
from racelab.engine.handles import Handle


@dataclass
class Companions:
    """What one attempt still waits for beside its KV: handles, and the stream of each."""

    missing: dict[Handle, str] = field(default_factory=dict)
    failed: dict[Handle, str] = field(default_factory=dict)

    def note(self, handle: Handle, stream: str, *, ok: bool) -> None:
        """News of one of them."""
        self.missing.pop(handle, None)
        if not ok:
            self.failed[handle] = stream

    def apart(self, request: str, attempt: int, guards: Guards) -> bool:
        """Whether they are not all there, and a guard minds."""
        if not self.missing and not self.failed:
            return False
        missing, failed = (tuple(sorted(set(streams.values()))) for streams in (self.missing, self.failed))
        question = CommitApart(request, attempt, None, None, "committed", missing=missing, failed=failed)
        return guards.refuse(question) is not None

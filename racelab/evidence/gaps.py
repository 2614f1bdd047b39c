"""What a history cannot tell: events that are lost, and kinds of events that its target does not report.

"This target does not report that" is not "it did not happen". Neither is what was lost. So a specification whose
rules look at such a kind is never `held`, and no finding of it rests on something not being there.
"""

from __future__ import annotations

from racelab.evidence.events import KINDS, STATE_AFTER, TERMINAL_KINDS
from racelab.evidence.history import History

_PAGES = frozenset(
    {"pool", "region", "unregistered", *STATE_AFTER, "granted", "grant-closed", "cache-hit", "reference-dropped"}
)
_HOLDERS = frozenset({"admitted", "accepted", "refused"})
_WRITES = frozenset({"posted", "completed", "held", "released", "landed", "torn", "dropped", "unlanded"})
_READS = frozenset({"committed", "published", "read"})

LOOKED_AT: dict[str, frozenset[str]] = {
    "isolation": _PAGES
    | _HOLDERS
    | _WRITES
    | _READS
    | {"received", "ignored", "attempt-ended", "counted", "slot-region", "slot-taken", "slot-freed", "slot-read"}
    | {*TERMINAL_KINDS},
    "integrity": _PAGES | _HOLDERS | _WRITES | _READS | {"finished", "work-done", "requeued"},
    "finality": frozenset(
        {"submitted", *TERMINAL_KINDS, "committed", "read", "phase", "forwarded", "referenced"}
        | {"page-draining", "page-free", "page-quarantined"}
    ),
    "conservation": _PAGES | _HOLDERS | _WRITES | {"sent", "attempt-ended", "quiesced", "queue-pair"},
}
"""By specification, the kinds that its rules look at; for one that is not here, all there are."""


class Gaps:
    """`history.derived(Gaps)` gives the shared one."""

    def __init__(self, history: History) -> None:
        self._header = history.header
        self._lost = [f"{history.lost} event(s) are lost"] if history.lost else []
        self._by_spec = {spec: self._find(kinds) for spec, kinds in LOOKED_AT.items()}

    def _find(self, kinds: frozenset[str]) -> list[str]:
        silent = [kind for kind in self._header.unreported if kind in kinds]
        words = [f"target {self._header.target} does not report {', '.join(map(repr, silent))}"] if silent else []
        return self._lost + words

    def of(self, spec: str) -> list[str]:
        """What keeps this specification from resting on an absence, in words; empty if nothing does."""
        found = self._by_spec.get(spec)
        return found if found is not None else self._find(frozenset(KINDS))


def gaps(history: History, spec: str) -> list[str]:
    """The same, of a history."""
    return history.derived(Gaps).of(spec)

"""Which writes use a grant: those posted into the granted page, or read from it by the local NIC."""

from __future__ import annotations

from collections import defaultdict

from checkers.ledger_view import Ledger
from checkers.lives import Grant, Life
from racelab.evidence.history import History
from racelab.evidence.writes import Write, Writes

NIC = "nic"
"""A grant `to` this is the right of the instance's own transport to read a source page."""

Into = tuple[str | None, int | None, int | None, int | None]


class GrantedWrites:
    """`history.derived(GrantedWrites)` gives the shared one."""

    def __init__(self, history: History) -> None:
        ledger = history.derived(Ledger)
        self._into: dict[Into, list[Write]] = defaultdict(list)
        self._out_of: dict[int, list[Write]] = defaultdict(list)
        for write in history.derived(Writes):
            if write.ghost and write.fate == "lost":
                continue  # it never took effect
            posted = write.posted
            self._into[posted.request, posted.attempt, posted.page, posted.gen].append(write)
            if write.ghost:
                continue  # its bytes had left their source
            source = ledger.at(posted.instance, posted.data["source_page"], posted.seq)
            if source is not None:
                self._out_of[id(source)].append(write)

    def of(self, life: Life, grant: Grant) -> list[Write]:
        """Writes under a grant of this generation, in the order of posting."""
        if grant.opened.data["to"] == NIC:
            return self._out_of.get(id(life), [])
        opened = grant.opened
        return self._into.get((opened.request, opened.attempt, life.page, life.gen), [])

    def out_of(self, life: Life) -> list[Write]:
        """Writes whose source page was this generation."""
        return self._out_of.get(id(life), [])

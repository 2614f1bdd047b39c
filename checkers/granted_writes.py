"""Which writes and reads use a grant: those that a peer posted into the granted page or out of it, or the local NIC."""

from __future__ import annotations

from collections import defaultdict

from checkers.ledger_view import Ledger
from checkers.lives import Grant, Life
from racelab.evidence.history import History
from racelab.evidence.writes import Write, Writes

NIC = "nic"
"""A grant `to` this is the right of an instance's own transport: to read a source page, or to fill a page by a read."""

Named = tuple[str, str | None, int | None, int | None, int | None]
"""Who posted it, for which request and attempt, and which of the peer's pages and generations it names."""


class GrantedWrites:
    """`history.derived(GrantedWrites)` gives the shared one."""

    def __init__(self, history: History) -> None:
        ledger = history.derived(Ledger)
        self._by_peer: dict[Named, list[Write]] = defaultdict(list)
        self._by_nic: dict[int, list[Write]] = defaultdict(list)
        for write in history.derived(Writes):
            if write.ghost and write.fate == "lost":
                continue  # it never took effect
            posted = write.posted
            named = write.source[1:] if write.is_read else (posted.page, posted.gen)
            self._by_peer[posted.instance, posted.request, posted.attempt, *named].append(write)
            if write.ghost:
                continue  # its bytes had left their source
            own = posted.page if write.is_read else posted.data["source_page"]
            page = ledger.at(posted.instance, own or 0, posted.seq)
            if page is not None:
                self._by_nic[id(page)].append(write)

    def of(self, life: Life, grant: Grant) -> list[Write]:
        """Writes under a grant of this generation, in the order of posting."""
        if grant.opened.data["to"] == NIC:
            return self._by_nic.get(id(life), [])
        opened = grant.opened
        return self._by_peer.get((opened.data["to"], opened.request, opened.attempt, life.page, life.gen), [])

    def by_nic(self, life: Life) -> list[Write]:
        """Writes whose source page was this generation, and reads that fill it."""
        return self._by_nic.get(id(life), [])

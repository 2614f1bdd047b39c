"""Reads that took bytes from a source page that was not the reader's to read, or not any more.

A read has two effects. Where its bytes land is judged like a write's landing (checkers.late_writes). Here is
judged where they come from: the read takes effect there after it was posted (or, if its request was kept back,
let go), and before the gate had its bytes, its landing or its successful completion.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from checkers.consumers import Sight, SightsByPage
from checkers.ledger_view import Ledger
from checkers.lives import Life
from racelab.evidence.events import Event
from racelab.evidence.gaps import gaps
from racelab.evidence.history import History
from racelab.evidence.naming import attempt_name, numbers, when_ms
from racelab.evidence.result import Finding
from racelab.evidence.writes import Write, Writes

SPEC = "isolation"


@dataclass(slots=True)
class Strayed:
    """One such read; `owners` are the generations that the source page may have had when it was taken."""

    read: Write
    why: str
    ended: Event | None = None
    owners: list[Life] = field(default_factory=list)


class SourceReads:
    """All of a history, and what could not be decided. `history.derived(SourceReads)` gives the shared one."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._before = history.causality.before
        self._ledger = history.derived(Ledger)
        self.found: list[Strayed] = []
        self.doubts: list[str] = []
        for write in history.derived(Writes):
            if write.is_read and write.fate in ("landed", "unknown"):
                self._judge(write)

    def _judge(self, read: Write) -> None:
        source = read.source
        life = self._ledger.life(*source)
        page = f"source page {source.page} gen {source.gen}"
        if life is None or not life.granted_bytes(read.posted):
            if gaps(self._history, SPEC):
                self.doubts.append(f"no grant is known for read {read.id}")
            else:
                self._strayed(read, f"reads {page}, which was never granted to it", life.ended if life else None)
        elif life.ended is not None and not self._taken_before(read, life.ended):
            if self._taken_after(read, life.ended):
                self._strayed(read, f"reads {page} after it ended", life.ended)
            else:
                self.doubts.append(f"nothing orders read {read.id} against the end of {page}")

    def _strayed(self, read: Write, why: str, ended: Event | None) -> None:
        if read.fate != "landed":
            self.doubts.append(f"whether read {read.id} ever took anything is not known; it {why}")
            return
        lives = self._ledger.pages.get((read.source.instance, read.source.page), [])
        owners = [
            life
            for life in lives
            if not self._taken_before(read, life.born) and not (life.ended and self._taken_after(read, life.ended))
        ]
        self.found.append(Strayed(read, why, ended, owners))

    def _taken_before(self, read: Write, event: Event) -> bool:
        return any(self._before(upper, event) for upper in _uppers(read))

    def _taken_after(self, read: Write, event: Event) -> bool:
        return self._before(event, _lower(read))

    def findings(self) -> list[Finding]:
        """The story of each."""
        return [self._finding(strayed) for strayed in self.found]

    def _finding(self, strayed: Strayed) -> Finding:
        read = strayed.read
        posted, source = read.posted, read.source
        reader = attempt_name(posted.request, posted.attempt)
        owner = strayed.owners[0] if len(strayed.owners) == 1 else None
        sight = self._consumed(read)
        story = f"{reader} {strayed.why}: {read.bytes:,} bytes of layer {read.layer}"
        if owner is not None:
            story += f"; the page belongs to {owner.owner}"
        elif strayed.owners:
            story += f"; the page belongs to one of {', '.join(life.owner for life in strayed.owners)}"
        else:
            story += "; the page is free"
        if sight is not None:
            story += f", and {reader} took the bytes ({sight.event.kind})"
        shown = numbers(strayed.ended, owner.born if owner else None, posted, *_uppers(read)[:1])
        return Finding(
            spec=SPEC,
            grade="consumed" if sight is not None else "reached",
            instance=source.instance,
            page=source.page,
            gen=owner.gen if owner is not None else source.gen,
            layer=read.layer,
            owner=owner.owner if owner is not None else None,
            bytes=(0, read.bytes),
            when=when_ms(self._history, posted),
            what=story,
            events=shown + (numbers(sight.event) if sight is not None else []),
        )

    def _consumed(self, read: Write) -> Sight | None:
        """The first sight that the reader had of its own page after the bytes had landed there."""
        posted = read.posted
        sights: Iterable[Sight] = self._history.derived(SightsByPage).of(posted.instance, read.layer, posted.page or 0)
        for sight in sights:
            mine = (sight.event.request, sight.event.attempt, sight.gen) == (
                posted.request,
                posted.attempt,
                posted.gen,
            )
            if mine and read.landing_before(sight.event, self._history.causality):
                return sight
        return None


def _lower(read: Write) -> Event:
    """The latest event that the taking surely follows."""
    return read.released if read.released is not None and not read.has_its_bytes else read.posted


def _uppers(read: Write) -> list[Event]:
    """Events that the taking surely precedes."""
    taken = [read.held] if read.held is not None and read.has_its_bytes else []
    return taken + read.uppers

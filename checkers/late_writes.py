"""Writes that landed where they had no right to: after their generation ended, outside its page, or
under no grant; with who owned the page by then and who read what they left.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from checkers.consumers import Sight, SightsByPage, Sources
from checkers.ledger_view import Ledger
from checkers.lives import Life
from checkers.memory import Memory, Span
from racelab.evidence.blocks import Blocks
from racelab.evidence.events import Event
from racelab.evidence.gaps import gaps
from racelab.evidence.history import History
from racelab.evidence.naming import attempt_name
from racelab.evidence.writes import Write, Writes


@dataclass(slots=True)
class Late:
    """One such landing. `owners` are the generations that the page may have had at that time."""

    write: Write
    span: Span
    why: str
    ended: Event | None = None
    owners: list[Life] = field(default_factory=list)
    readers: list[Sight] = field(default_factory=list)


class LateWrites:
    """All of a history, and what could not be decided."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._causality = history.causality
        self._ledger = history.derived(Ledger)
        self._memory = history.derived(Memory)
        self._blocks = history.derived(Blocks)
        self.found: list[Late] = []
        self.doubts: list[str] = []
        for write in history.derived(Writes):
            if write.fate in ("landed", "unknown"):
                self._judge(write)
        for late in self.found:
            late.owners = self._owners(late)
            late.readers = self._readers(late)

    def _judge(self, write: Write) -> None:
        posted = write.posted
        spans = self._memory.landed(write)
        if not spans:
            self.doubts.append(f"write {write.id} has an address in no known page")
        for span in spans:
            if span.page == posted.page and span.layer == write.layer:
                self._judge_own(write, span)
            else:
                self._late(
                    write,
                    span,
                    f"landed outside of page {posted.page} {self._blocks.name(write.layer)}, which was granted",
                )

    def _judge_own(self, write: Write, span: Span) -> None:
        """The part of a write that lies where its grant says."""
        posted = write.posted
        life = self._ledger.life(span.instance, span.page, posted.gen)
        granted = life.granted_bytes(posted) if life is not None else 0
        if life is None or granted == 0:
            if gaps(self._history, "isolation"):
                self.doubts.append(f"no grant is known for write {write.id}")
            else:
                self._late(write, span, f"landed on page {span.page} gen {posted.gen}, which was never granted to it")
        elif span.end > granted and gaps(self._history, "isolation"):
            self.doubts.append(f"nothing known grants write {write.id} all that it touches")
        elif span.end > granted:
            self._late(write, span, f"landed outside of the {granted:,} bytes that were granted of page {span.page}")
        elif life.ended is None or life.ended.kind == "pool":
            pass  # in the second case its memory went with its process, and no write reaches it any more
        elif not write.landing_before(life.ended, self._causality):
            self._judge_late(write, span, life.ended)

    def _judge_late(self, write: Write, span: Span, ended: Event) -> None:
        """A write that is not proven to have landed before its generation ended."""
        gen = f"page {span.page} gen {write.posted.gen}"
        if write.landing_after(ended, self._causality):
            self._late(write, span, f"landed after {gen} ended", ended)
        else:
            early = ", and its completion came before its landing" if write.completed_too_early else ""
            self.doubts.append(f"nothing orders the landing of write {write.id} against the end of {gen}{early}")

    def _late(self, write: Write, span: Span, why: str, ended: Event | None = None) -> None:
        if write.fate == "landed":
            self.found.append(Late(write, span, why, ended))
        else:
            self.doubts.append(f"whether write {write.id} ever landed is not known; it would have {why}")

    def _owners(self, late: Late) -> list[Life]:
        return [
            life
            for life in self._ledger.pages.get((late.span.instance, late.span.page), [])
            if not late.write.landing_before(life.born, self._causality)
            and not (life.ended is not None and late.write.landing_after(life.ended, self._causality))
        ]

    # -- consumption

    def _readers(self, late: Late) -> list[Sight]:
        span = late.span
        seen = self._history.derived(SightsByPage).of(span.instance, span.layer, span.page)
        return [sight for sight in seen if self._consumes(late, sight)]

    def _consumes(self, late: Late, sight: Sight) -> bool:
        """Whether the reader saw what the write left: by content where that tells, else by order."""
        write, span, posted = late.write, late.span, late.write.posted
        reader = sight.event
        if (reader.request, reader.attempt) == (posted.request, posted.attempt):
            return False
        if sight.end <= span.start or span.end <= sight.start or self._causality.before(reader, write.lower):
            return False
        is_late = (sight.start, sight.end) == (span.start, span.end) and sight.fingerprint == write.fingerprint
        rightful = self._history.derived(Sources).of(sight)
        is_own = any(sight.fingerprint == own.fingerprint for own in rightful)
        if is_late != is_own:
            return is_late
        if not write.landing_before(reader, self._causality):
            return False
        return not any(self._covers_again(own, late, sight) for own in rightful)

    def _covers_again(self, own: Write, late: Late, sight: Sight) -> bool:
        """Whether a rightful write put its bytes back between the late landing and the read."""
        return (
            own.bytes >= min(late.span.end, sight.end)
            and late.write.landing_before(own.lower, self._causality)
            and own.landing_before(sight.event, self._causality)
        )


def writer_of(write: Write) -> str:
    """`r1 attempt 1 gen 1`, under which the write was posted."""
    posted = write.posted
    return attempt_name(posted.request, posted.attempt, posted.gen)

"""Whether the stop evidence that an engine claims for a grant is true.

A claim stands if every write ever posted under the grant completed successfully, each completion
happened before the claim, no write was posted after it, and the writes cover what was granted; an
acknowledgement must also be one that the writer sent, after its last post. A fence (memory deregistered,
a queue pair reset) stands without completions where the fence table says that it is one (racelab.fences).
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from checkers.granted_writes import NIC, GrantedWrites
from checkers.lives import Grant, Life
from racelab import fences
from racelab.evidence.blocks import Blocks
from racelab.evidence.events import Event
from racelab.evidence.gaps import gaps
from racelab.evidence.history import History
from racelab.evidence.naming import number
from racelab.evidence.writes import Write

SPEC = "conservation"

ACKNOWLEDGEMENTS = ("abort-ack", "complete", "release-source")
"""Messages by which whoever posted accesses says that they are over: a writer's, or a reader's."""


class Claim(NamedTuple):
    """What is wrong with a claim, or what keeps it from being proven; both None if it stands."""

    false: str | None = None
    doubt: str | None = None


_STANDS = Claim()


class Claims:
    """Judges claims. `history.derived(Claims)` gives the shared one."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._gaps = gaps(history, SPEC)
        self._blocks = history.derived(Blocks)
        self._sent = {event.data["id"]: event for event in history.by_kind["sent"]}
        self._writes = history.derived(GrantedWrites)

    def judge(self, life: Life, grant: Grant) -> Claim:
        """Whether the event that closed the grant tells the truth."""
        closed = grant.closed
        assert closed is not None
        writes = self._writes.of(life, grant)
        if closed.data["evidence"] in fences.BY_EVIDENCE:
            return self._fence(life, closed, writes)
        told = self._sent.get(closed.data["by"])
        if told is not None and grant.opened.data["to"] not in (NIC, told.instance):
            writer = grant.opened.data["to"]
            return Claim(
                false=f"{_about(life, closed)} is false: it is the word of {told.instance}, and {writer} may write"
            )
        doubt, before = None, self.history.causality.before
        for write in writes:
            completed = write.completed
            if write.held is None and completed is not None and completed.data["status"] == "ok":
                if before(completed, closed):
                    continue  # as nearly every one
            elif grant.opened.data["to"] == NIC and _had_left(write):
                continue
            in_time = self._completed_before(write, closed)
            if in_time and write.held is None:
                continue
            wrong = self._wrong_with(write, closed)
            if wrong is not None:
                return Claim(false=f"{_about(life, closed)} is false: {wrong}")
            if not in_time:
                doubt = f"{_about(life, closed)}: nothing orders the completion of write {write.id} before it"
        wrong = self._acknowledgement(writes, closed) if closed.data["evidence"] == "acknowledged" else None
        wrong = wrong or (self._gap(life, grant, writes) if closed.data["evidence"] == "completions" else None)
        if wrong is not None:
            about = _about(life, closed)
            return Claim(doubt=f"{about}: {wrong}") if self._gaps else Claim(false=f"{about} is false: {wrong}")
        return Claim(doubt=doubt) if doubt is not None else _STANDS

    def _fence(self, life: Life, closed: Event, writes: list[Write]) -> Claim:
        """A fence needs no completion: it was there before the claim, and nothing landed after it."""
        about = _about(life, closed)
        late = next((write for write in writes if write.landing_after(closed, self.history.causality)), None)
        if late is not None and late.fate == "landed":
            return Claim(false=f"{about} is false: write {late.id} landed after it ({number(late.lower)})")
        left = self._addresses("region", closed) - self._addresses("unregistered", closed)
        if closed.data["evidence"] == "deregistered" and left:
            return Claim(false=f"{about} is false: {len(left)} region(s) were registered still")
        if closed.data["evidence"] != "deregistered" and not self._was_reset(closed):
            return Claim(doubt=f"{about}: no reset of a queue pair of {closed.instance} is known before it")
        return _STANDS

    def _addresses(self, kind: str, before: Event) -> set[int]:
        """The regions of the process that claims, as events of `kind` before its claim name them."""
        return {
            event.data["address"]
            for event in self.history.by_kind[kind]
            if (event.instance, event.incarnation) == (before.instance, before.incarnation) and event.seq < before.seq
        }

    def _was_reset(self, closed: Event) -> bool:
        before = self.history.causality.before
        return any(
            event.data["owner"] == closed.instance and event.data["state"] == "RESET" and before(event, closed)
            for event in self.history.by_kind["queue-pair"]
        )

    def _completed_before(self, write: Write, closed: Event) -> bool:
        completed = write.completed
        if completed is None or not write.succeeded:
            return False
        if write.completed_too_early:  # the engine may have seen for itself that the bytes are there
            return write.landing_before(closed, self.history.causality)
        return self.history.causality.before(completed, closed)

    def _wrong_with(self, write: Write, closed: Event) -> str | None:
        """Why this write contradicts the claim, if it does."""
        before = self.history.causality.before
        if before(closed, write.posted):
            return f"write {write.id} is posted after it ({number(write.posted)})"
        if write.completed is None:
            return None if self._gaps else f"write {write.id} never completed"
        if not write.succeeded:
            return f"write {write.id} completed with {write.completed.data['status']}, which proves nothing"
        if before(closed, write.completed):
            return f"write {write.id} completed after it ({number(write.completed)})"
        if write.landing_after(closed, self.history.causality):
            return f"write {write.id} landed after it ({number(write.lower)}), whatever the transport had said"
        return None

    def _gap(self, life: Life, grant: Grant, writes: list[Write]) -> str | None:
        """Completions close a grant only if everything granted was posted; else more may come."""
        size = grant.opened.data["bytes"]
        blocks = self._blocks.count(life.instance)
        posted = {write.layer for write in writes}
        if not size or len(posted) >= blocks or (grant.opened.data["to"] == NIC and self._posts_no_more(grant)):
            return None
        missing = ", ".join(self._blocks.name(block) for block in range(blocks) if block not in posted)
        return f"no write of its {missing} was posted, and posting is not closed"

    def _posts_no_more(self, grant: Grant) -> bool:
        """Whether the attempt of a source page had ended when its grant was closed."""
        opened, closed = grant.opened, grant.closed
        ended = self._ended.get((opened.instance, opened.request, opened.attempt))
        return ended is not None and closed is not None and ended < closed.seq

    @cached_property
    def _ended(self) -> dict[tuple[str, str | None, int | None], int]:
        """By attempt: the number of the first event by which its prefill was done with it."""
        ended: dict[tuple[str, str | None, int | None], int] = {}
        for event in self.history.by_kind["attempt-ended"]:
            ended.setdefault((event.instance, event.request, event.attempt), event.seq)
        return ended

    def _acknowledgement(self, writes: list[Write], closed: Event) -> str | None:
        sent = self._sent.get(closed.data["by"])
        if sent is None:
            return f"nobody sent the message {closed.data['by']!r}"
        if sent.data["type"] not in ACKNOWLEDGEMENTS:
            return f"{sent.data['type']!r} acknowledges nothing"
        if (sent.request, sent.attempt) != (closed.request, closed.attempt):
            return f"the acknowledgement is of {sent.request} attempt {sent.attempt}"
        if not sent.data.get("clean", True):
            return "the acknowledgement says that not every write succeeded"
        own = [write for write in writes if write.posted.instance == sent.instance]
        for write in own:
            if write.posted.seq > sent.seq:
                return f"write {write.id} is posted after the acknowledgement"
            if write.completed is not None and write.completed.seq > sent.seq:
                return f"write {write.id} was outstanding when it was acknowledged"
        return None


def _had_left(write: Write) -> bool:
    """Whether a gate had all of its bytes when the writer was told that they had landed: nobody reads their source."""
    return write.held is not None and write.held.data.get("action") == "early-success" and write.succeeded


def _about(life: Life, closed: Event) -> str:
    return f"evidence for page {life.page} gen {life.gen} ({closed.data['evidence']!r})"

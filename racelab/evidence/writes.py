"""One-sided writes, each put together from what its writer and the gate on its way reported.

A landing carries no clock. It lies after `lower` (the post, or the gate's release) and before the
`uppers` (the gate's word that the target applied it, a successful completion). Whoever compares
it with another event asks `landing_before` and `landing_after`, which answer from happened-before
and never from a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from racelab.evidence.causality import Causality
from racelab.evidence.events import Event
from racelab.evidence.history import History

Fate = Literal["landed", "lost", "held", "unknown"]


class Source(NamedTuple):
    """Where a read takes its bytes."""

    instance: str
    page: int
    gen: int


class Write(msgspec.Struct, eq=False, gc=False):
    """One posted write, or read; `page` and `gen` are the destination's."""

    posted: Event
    id: str
    layer: int
    """the number of its memory block (racelab.evidence.blocks)"""
    address: int
    bytes: int
    fingerprint: str
    completed: Event | None = None
    held: Event | None = None
    released: Event | None = None
    landed: Event | None = None
    lost: Event | None = None
    ghost: bool = False
    """the first attempt of a write that its transport gave up and sent again: a copy that may still land"""

    @property
    def is_read(self) -> bool:
        """Whether its bytes go to whoever posted it."""
        return self.posted.data.get("op") == "read"

    @property
    def source(self) -> Source:
        """Of a read: the page that its bytes come from."""
        data = self.posted.data
        return Source(data["source_instance"], data["source_page"], data["source_gen"])

    @property
    def has_its_bytes(self) -> bool:
        """Of a held read: whether the gate holds what the source had, and not the request for it."""
        return self.held is not None and "fingerprint" in self.held.data

    @property
    def succeeded(self) -> bool:
        """Whether its writer's API said so."""
        return self.completed is not None and self.completed.data["status"] == "ok"

    @property
    def torn(self) -> int | None:
        """How many of its bytes landed, if the rest was lost on the way."""
        return self.landed.data.get("tear") if self.landed is not None else None

    @property
    def fate(self) -> Fate:
        """A torn write has landed, as far as it came; `held` is still at the gate; `unknown` is a failed or
        missing completion and no word of a gate."""
        if self.is_read and self.succeeded:
            return "landed"
        if self.landed is not None:
            return "landed" if not self.landed.data.get("code") else "lost"
        if self.lost is not None:
            return "lost" if self.lost.kind == "dropped" or self.lost.data.get("code") else "unknown"
        if self.held is not None:
            return "held" if self.released is None else "unknown"
        return "landed" if self.succeeded else "unknown"

    @property
    def lower(self) -> Event:
        """The latest event that the landing surely follows."""
        return self.released or self.held or self.posted

    @property
    def completed_too_early(self) -> bool:
        """Of a write: whether the API reported success while the gate still had the bytes: the transport's error."""
        if self.held is None or self.completed is None or not self.succeeded or self.is_read:
            return False
        return self.landed is None or self.completed.hlc < self.landed.hlc

    @property
    def uppers(self) -> list[Event]:
        """Events that the landing surely precedes; a completion that came too early is none."""
        bounds = [self.landed] if self.landed is not None else []
        if self.completed is not None and self.succeeded and not self.completed_too_early:
            bounds.append(self.completed)
        return bounds

    def landing_before(self, event: Event, causality: Causality) -> bool:
        """Whether the landing is proven to precede `event`."""
        completed = self.completed
        if self.held is None and self.landed is None and completed is not None:  # no gate: nearly every write
            return completed.data["status"] == "ok" and causality.before(completed, event)
        return any(causality.before(upper, event) for upper in self.uppers)

    def landing_after(self, event: Event, causality: Causality) -> bool:
        """Whether the landing is proven to follow `event`."""
        return causality.before(event, self.lower) or causality.before(event, self.posted)


GIVEN_UP = ("ghost", "fail")
"""Actions of a gate after which an RDMA transport sends again what it was told had failed (docs/rdma.md); over
TCP Mooncake gives it up with its connection."""


class Writes:
    """Every write of a history by its id."""

    def __init__(self, history: History) -> None:
        self.by_id: dict[str, Write] = {}
        for event in history.by_kind["posted"]:
            data = event.data
            self.by_id[data["write"]] = Write(
                event,
                data["write"],
                data.get("block", data["layer"]),
                data["address"],
                data["bytes"],
                data["fingerprint"],
            )
        self.slots = [write for write in self.by_id.values() if "slot" in write.posted.data]
        """those of metadata, which go to no page: `iter` leaves them out"""
        for event in history.by_kind["completed"]:
            for identity in event.data["writes"]:
                write = self.by_id.get(identity)
                if write is not None and write.completed is None:
                    write.completed = event
        ghosts = self._ghosts(history)
        for kind, field in _GATE_FIELDS.items():
            for event in history.by_kind[kind]:
                what = event.data["what"]
                write = ghosts.get(what) or self.by_id.get(what)
                if write is not None:
                    setattr(write, field, event)

    def _ghosts(self, history: History) -> dict[str, Write]:
        """What a gate gave up in the transport's place, or lost while the transport says that it has landed: the write
        itself went again, and its gate events are these."""
        ghosts: dict[str, Write] = {}
        if history.header.transport != "rdma":
            return ghosts
        for event in history.of("held", "dropped"):
            write = self.by_id.get(event.data["what"])
            if write is None or write.id in ghosts:
                continue
            if event.data.get("action") in GIVEN_UP or (event.kind == "dropped" and write.succeeded):
                ghost = replace(write, id=f"{write.id} (first attempt)", ghost=True)
                ghosts[write.id] = self.by_id[ghost.id] = ghost
        return ghosts

    def __iter__(self) -> Iterator[Write]:
        if not self.slots:
            return iter(self.by_id.values())
        return (write for write in self.by_id.values() if "slot" not in write.posted.data)

    def __len__(self) -> int:
        return len(self.by_id)


_GATE_FIELDS = {
    "held": "held",
    "released": "released",
    "landed": "landed",
    "torn": "landed",
    "dropped": "lost",
    "unlanded": "lost",
}

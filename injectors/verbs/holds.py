"""What the verbs gate holds: writes that were announced and wanted, and how far each has come.

A write is one work request, or several where the transport cuts it into slices; it is held once all of
its bytes have stopped, and has landed once all of them were acknowledged by the responder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from injectors.verbs.layout import MOVES, STATUSES, Message
from racelab.errors import LabError
from racelab.evidence.recorder import Recorder
from racelab.transport.lanes import Lanes, WriteIdentity

_ENDS = {
    "flushed": "its queue pair went into ERR before it was handed to the device",
    "lost": "its queue pair was reset or destroyed, or its packets were lost",
}


@dataclass
class Watched:
    """A write that a hold wants; `sender` is the instance that posts it, `watch` its number at the gate there."""

    identity: WriteIdentity
    hold: str
    sender: str
    watch: int
    stopped_bytes: int = 0
    landed_bytes: int = 0
    withheld_bytes: int = 0
    held: bool = False
    let_go: str | None = None
    over: bool = False
    batch: bool = False
    """whether it is wanted with all that was submitted with it"""


@dataclass
class _Hold:
    action: str
    payload: str
    delays: Iterator[float] | None = None
    open: bool = True
    writes: list[Watched] = field(default_factory=list)


Wanted = tuple[Watched, str, str]
"""A write with its hold's action and payload."""


class Holds:
    """Shared by all threads of the gate, under one lock."""

    gate = "verbs"

    def __init__(
        self, recorder: Recorder, later: Callable[[float, Watched], None] = lambda delay_ms, write: None
    ) -> None:
        """`later` is to call `due` for a write that is delayed, once so many ms are over."""
        self._recorder = recorder
        self._later = later
        self._lock = threading.Lock()
        self._lanes = Lanes()
        self._holds: dict[str, _Hold] = {}
        self._watched: dict[int, Watched] = {}
        self._watches = 0

    # -- the conductor's commands

    def arm(
        self,
        hold: str,
        match: Mapping[str, Any],
        count: int,
        action: str,
        payload: str,
        delays: Iterator[float] | None = None,
    ) -> None:
        """Stop the next `count` announced writes that agree with `match`."""
        with self._lock:
            if any(not write.over for write in self._writes(hold) if write.held):
                raise LabError(f"hold {hold!r} still holds writes of before")
            self._lanes.disarm(hold)
            self._lanes.arm(hold, match, count)
            self._holds[hold] = _Hold(action, payload, delays)
            self._recorder.record("armed", hold=hold, gate=self.gate, match=dict(match), count=count)

    def let_go(self, hold: str, how: str) -> list[Watched]:
        """End a hold: its rule ends, and what it has stopped is to be told `how` (release or drop).

        A write that is watched and has not come yet passes. What is delayed goes by itself.
        """
        with self._lock:
            if hold not in self._holds:
                known = ", ".join(self._holds) or "none"
                raise LabError(f"no hold {hold!r} at the {self.gate} gate; armed here: {known}")
            self._lanes.disarm(hold)
            self._holds[hold].open = False
            going = [write for write in self._writes(hold) if write.let_go is None and not write.over]
            if self._holds[hold].delays is not None:
                going = [write for write in going if not write.held]
            for write in going:
                write.let_go = how
                if write.held and self._loses_completion(write):
                    # before its process can be told: what it does then comes after this
                    self._end(write, "told", **{"as": "completed" if how == "release" else "lost"})
                elif how == "release" and write.held:
                    self._record("released", write)
            return going

    def due(self, write: Watched) -> bool:
        """The delay of a write is over: whether it is to go on now."""
        with self._lock:
            if write.let_go is not None or write.over:
                return False
            write.let_go = "release"
            self._record("released", write)
            return True

    def _loses_completion(self, write: Watched) -> bool:
        return self._holds[write.hold].action == "lose-completion"

    def reset(self, incarnation: int) -> dict[str, Any]:
        """Begin an incarnation: no rules, no watches. What has stopped and is not over is named."""
        with self._lock:
            self._recorder.incarnation = incarnation
            held = [write.identity.write for write in self._watched.values() if write.stopped_bytes and not write.over]
            self._watched = {number: write for number, write in self._watched.items() if write.identity.write in held}
            self._holds = {name: hold for name, hold in self._holds.items() if any(map(_stays, hold.writes))}
            return {"held": held, "armed": self._lanes.forget()}

    # -- what the processes say

    def announce(self, sender: str, writes: Sequence[WriteIdentity]) -> list[Wanted]:
        """Those of `writes` that a hold wants, each with its hold's action and payload."""
        with self._lock:
            wanted = []
            for identity in writes:
                name = self._lanes.choose(identity)
                hold = self._holds.get(name or "")
                if name is None or hold is None or not hold.open:
                    continue
                self._watches += 1
                whole = self._lanes.takes_batches(name)
                write = Watched(identity, name, sender, self._watches, batch=whole)
                self._watched[write.watch] = write
                hold.writes.append(write)
                wanted.append((write, hold.action, hold.payload))
            return wanted

    def moved(self, message: Message) -> None:
        """A work request of a watched write has come further."""
        with self._lock:
            write = self._watched.get(message.watch)
            if write is None or write.over:
                return
            handle: Callable[[Watched, Message], None] | None = getattr(self, f"_{MOVES[message.state]}", None)
            if handle is not None:
                handle(write, message)

    def process_ended(self, name: str) -> None:
        """What has stopped in a process ends with it."""
        with self._lock:
            for write in self._watched.values():
                if write.sender != name or write.over:
                    continue
                if write.landed_bytes:
                    write.over = True  # and nobody is left to be told
                elif write.stopped_bytes and write.let_go:
                    self._end(write, "unlanded", why=f"{name} has ended, and perhaps the request with it")
                elif write.stopped_bytes:  # before the doorbell: it never left
                    self._end(write, "dropped", fenced=f"{name} has ended, and its queue pair with it")

    # -- the moves; the lock is held

    def _queued(self, write: Watched, message: Message) -> None:
        write.stopped_bytes += message.size
        if self._loses_completion(write) or write.stopped_bytes < write.identity.bytes or write.held:
            return
        hold = self._holds[write.hold]
        if hold.action == "pass":
            self._record("passed", write)
            return
        write.held = True
        about: dict[str, Any] = {"action": hold.action} if hold.action != "hold" else {}
        if hold.delays is not None:
            about["delay_ms"] = next(hold.delays)
        self._record("held", write, **about)
        if hold.delays is not None:
            self._later(about["delay_ms"], write)

    def _completed(self, write: Watched, message: Message) -> None:
        if message.status == 0:
            self._land(write, message.size)
        elif self._holds[write.hold].action in ("hold", "delay", "pass") and write.let_go != "drop":
            self._end(write, "unlanded", why=STATUSES.get(message.status, f"status {message.status}"))

    def _withheld(self, write: Watched, message: Message) -> None:
        write.withheld_bytes += message.size
        if write.withheld_bytes >= write.identity.bytes and not write.held:
            write.held = True
            self._record("withheld", write)

    def _late(self, write: Watched, message: Message) -> None:
        if message.status == 0:
            self._land(write, message.size)
        else:
            self._end(write, "dropped", fenced="the responder's queue pair or its key was not what it was any more")

    def _flushed(self, write: Watched, message: Message) -> None:
        self._end(write, "unlanded", why=_ENDS["flushed"])

    def _lost(self, write: Watched, message: Message) -> None:
        if write.let_go == "drop" or self._holds[write.hold].action == "fail":
            self._end(write, "dropped")
        else:
            self._end(write, "unlanded", why=_ENDS["lost"])

    def _land(self, write: Watched, size: int) -> None:
        write.landed_bytes += size
        if write.landed_bytes < write.identity.bytes:
            return
        if self._loses_completion(write) and write.let_go is None:
            self._record("landed", write, code=0)
        else:
            self._end(write, "landed", code=0)

    def _end(self, write: Watched, kind: str, **data: Any) -> None:
        write.over = True
        self._record(kind, write, **data)

    def _writes(self, hold: str) -> list[Watched]:
        return self._holds[hold].writes if hold in self._holds else []

    def _record(self, kind: str, write: Watched, **data: Any) -> None:
        identity = write.identity
        self._recorder.record(
            kind,
            identity.request,
            identity.attempt,
            identity.page,
            identity.gen,
            hold=write.hold,
            what=identity.write,
            address=identity.address,
            bytes=identity.bytes,
            layer=identity.layer,
            chunk=identity.chunk,
            **identity.names,
            **({"op": "read", "peer_address": identity.peer_address} if identity.op == "read" else {}),
            **(identity.together if write.batch else {}),
            **data,
        )


def _stays(write: Watched) -> bool:
    return bool(write.stopped_bytes) and not write.over

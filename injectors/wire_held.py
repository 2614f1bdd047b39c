"""A write at the wire gate: whose it is, and, once it has stopped, what is to become of it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from racelab.errors import LabError
from racelab.evidence.events import Event
from racelab.evidence.recorder import Recorder
from racelab.transport.lanes import WriteIdentity

HALF_OPEN = "half-open"
STOPS = ("hold", "ghost", "fail", "delay", "early-success", HALF_OPEN)
"""Actions under which a write stops whole, before its target has any of it."""

LOSES_COMPLETION = "lose-completion"
PASSES = "pass"

EVERY_BIT = 0xFF
"""What is changed of a byte that is corrupted."""

Lose = Callable[[bool], None]
"""Resets the writer's connection, and with True the target's too."""


class Announced:
    """A write that was announced, and the hold that wants it, if one does, alone or with its `batch`."""

    __slots__ = ("batch", "hold", "identity")

    def __init__(self, identity: WriteIdentity, hold: str | None, *, batch: bool = False) -> None:
        self.identity = identity
        self.hold = hold
        self.batch = batch

    def record(self, recorder: Recorder, kind: str, hold: str | None, **data: Any) -> Event:
        """Record what happened to this write."""
        identity = self.identity
        data |= identity.names
        return recorder.record(
            kind,
            identity.request,
            identity.attempt,
            identity.page,
            identity.gen,
            hold=hold,
            what=identity.write,
            address=identity.address,
            bytes=identity.bytes,
            layer=identity.layer,
            chunk=identity.chunk,
            **({"op": "read", "peer_address": identity.peer_address} if identity.op == "read" else {}),
            **(identity.together if self.batch else {}),
            **data,
        )


class Held:
    """A write that stopped, whole, until it is told to go on or is lost.

    `go` starts the write towards its target without waiting for it; `payload` are its bytes as they
    will go. One with a `delay_ms` goes on by itself, so long after it stopped at `since_ns`.
    """

    def __init__(
        self, announced: Announced, hold: str, go: Callable[[], None], lose: Lose, payload: memoryview | None = None
    ) -> None:
        self.announced = announced
        self.hold = hold
        self.go = go
        self.lose = lose
        self.payload = payload
        self.changed: dict[str, int] = {}
        self.delay_ms: float | None = None
        self.since_ns = 0
        self.lost = False
        self.orphan = False
        """whether its writer has been reset, and hears nothing of it any more"""
        self.answered = False
        """whether its writer has been told already that it succeeded"""
        self.told = threading.Event()
        self.writers_end: Callable[[], str] | None = None
        """of one whose target's end is gone: how the kernel has its writer's"""

    def corrupt(self, offset: int) -> None:
        """Let it go on with another byte at `offset`.

        Raises:
            LabError: it has no such byte.
        """
        identity = self.announced.identity
        if offset >= identity.bytes:
            raise LabError(f"{identity.op} {identity.write} has {identity.bytes:,} bytes: none at offset {offset:,}")
        self.changed = {"corrupt": offset}
        if self.payload is not None:
            self.change(self.payload)

    def change(self, payload: memoryview) -> None:
        """Change the byte that is to be another one, in its bytes as they will go."""
        if "corrupt" in self.changed:
            payload[self.changed["corrupt"]] ^= EVERY_BIT

    def tear(self, size: int) -> None:
        """Let it break off after `size` bytes.

        Raises:
            LabError: nothing would be lost of it.
        """
        identity = self.announced.identity
        if size >= identity.bytes:
            whose = f"{identity.op} {identity.write}"
            raise LabError(f"{whose} has {identity.bytes:,} bytes: it cannot be torn after {size:,}")
        self.changed = {"tear": size}

    @property
    def torn(self) -> int | None:
        """How many bytes of it go on, if not all."""
        return self.changed.get("tear")

    def end(self, *, both_ends: bool = False) -> None:
        """It is lost: its writer is reset."""
        self.lost = True
        self.lose(both_ends)
        self.told.set()

    def goes_on(self) -> bool:
        """Wait for the conductor's word; False if the write was lost. Ends with the process at the latest."""
        self.told.wait()
        return not self.lost


class Hold:
    """Writes stopped under one rule, in the order in which they stopped.

    `open` while more may join; `going` once it was released. `delays` are the waits of a hold that delays.
    """

    def __init__(self, action: str, delays: Iterator[float] | None, payload: str, count: int) -> None:
        self.action = action
        self.payload = payload
        self.count = count
        self.delays = delays
        self.open = True
        self.going = False
        self.queue: deque[Held] = deque()
        self._tells: list[tuple[Held, Callable[[], None]]] = []

    def answer(self, held: Held, tell: Callable[[], None]) -> None:
        """Tell the writers that they succeeded, when the last of them is here."""
        self._tells.append((held, tell))
        if not self._is_full():
            return
        for answered, tell_now in self._tells:
            answered.answered = True
            tell_now()

    def _is_full(self) -> bool:
        """Whether all that was asked for is here: so many writes, or all of so many batches."""
        here = [held.announced for held, _ in self._tells]
        if not here[0].batch:
            return len(here) >= self.count
        sizes = {announced.identity.batch: announced.identity.batch_writes for announced in here}
        return len(sizes) >= self.count and len(here) >= sum(sizes.values())

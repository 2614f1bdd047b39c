"""The wire gate's book: which writes were announced, which are wanted, and which are held."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from racelab.errors import LabError
from racelab.evidence.recorder import Recorder
from racelab.transport.lanes import Lanes, WriteIdentity

GATE = "wire"

_EVERY_BIT = 0xFF


class Announced:
    """A write that was announced, and the hold that wants it, if one does."""

    __slots__ = ("hold", "identity")

    def __init__(self, identity: WriteIdentity, hold: str | None) -> None:
        self.identity = identity
        self.hold = hold

    def record(self, recorder: Recorder, kind: str, hold: str | None, **data: Any) -> None:
        """Record what happened to this write."""
        identity = self.identity
        recorder.record(
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
            **data,
        )


class Held:
    """A write that stopped, whole, until it is told to go on or is lost.

    `go` starts the write towards its target without waiting for it; `lose` resets its writer;
    `payload` are its bytes as they will go.
    """

    def __init__(
        self,
        announced: Announced,
        hold: str,
        go: Callable[[], None],
        lose: Callable[[], None],
        payload: memoryview | None = None,
    ) -> None:
        self.announced = announced
        self.hold = hold
        self.go = go
        self.lose = lose
        self.payload = payload
        self.changed: dict[str, int] = {}
        self.lost = False
        self.told = threading.Event()

    def corrupt(self, offset: int) -> None:
        """Let it go on with another byte at `offset`.

        Raises:
            LabError: it has no such byte.
        """
        identity = self.announced.identity
        if self.payload is None or offset >= len(self.payload):
            raise LabError(f"write {identity.write} has {identity.bytes:,} bytes: none at offset {offset:,}")
        self.payload[offset] ^= _EVERY_BIT
        self.changed = {"corrupt": offset}

    def tear(self, size: int) -> None:
        """Let it break off after `size` bytes.

        Raises:
            LabError: nothing would be lost of it.
        """
        identity = self.announced.identity
        if size >= identity.bytes:
            raise LabError(f"write {identity.write} has {identity.bytes:,} bytes: it cannot be torn after {size:,}")
        self.changed = {"tear": size}

    @property
    def torn(self) -> int | None:
        """How many bytes of it go on, if not all."""
        return self.changed.get("tear")

    def goes_on(self) -> bool:
        """Wait for the conductor's word; False if the write was lost. Ends with the process at the latest."""
        self.told.wait()
        return not self.lost


class _Hold:
    """Writes held together, in the order in which they stopped.

    `open` while more may join; `going` once it was released.
    """

    def __init__(self) -> None:
        self.open = True
        self.going = False
        self.queue: deque[Held] = deque()


class Book:
    """Shared by all threads of the gate, under one lock."""

    def __init__(self, recorder: Recorder, urgently: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._recorder = recorder
        self._urgently = urgently
        self._lock = threading.Lock()
        self._lanes = Lanes()
        self._announced: dict[tuple[int, int], deque[Announced]] = defaultdict(deque)
        self._holds: dict[str, _Hold] = {}
        self.unannounced = 0
        self.ambiguous = 0

    # -- the conductor's commands

    def arm(self, hold: str, match: Mapping[str, Any], count: int) -> None:
        """Hold the next `count` announced writes that agree with `match`.

        What was announced before stays as it was: direct, or wanted by an older rule.
        """
        with self._lock:
            if hold in self._holds and self._holds[hold].queue:
                raise LabError(f"hold {hold!r} still holds writes of before")
            self._lanes.disarm(hold)
            self._lanes.arm(hold, match, count)
            self._holds[hold] = _Hold()
            self._recorder.record("armed", hold=hold, gate=GATE, match=dict(match), count=count)

    def release(self, hold: str, corrupt: int | None = None, tear: int | None = None) -> list[str]:
        """Let go what is held, one after the other, each once the one before has landed.

        The rule ends: a write that comes later passes. Returns the ids of the writes that go; with
        `corrupt` the first of them goes with the byte at that offset changed, with `tear` it breaks off
        after so many bytes, and its connection ends there.
        """
        with self._urgently(), self._lock:
            found = self._close(hold)
            if found.going or not found.queue:
                return []
            if corrupt is not None:
                found.queue[0].corrupt(corrupt)
            if tear is not None:
                found.queue[0].tear(tear)
            found.going = True
            self._let_go(found.queue[0])
            return [held.announced.identity.write for held in found.queue]

    def _let_go(self, held: Held) -> None:
        # by this thread: waking the write's own takes longer than the first bytes
        held.announced.record(self._recorder, "released", held.hold, **held.changed)
        if held.torn is None:
            held.go()
        held.told.set()

    def drop(self, hold: str) -> list[str]:
        """Lose what is held, as TCP loses it: by a reset of the writer's connection. The rule ends."""
        with self._lock:
            found = self._close(hold)
            lost = [] if found.going else list(found.queue)
            for held in lost:
                held.lose()
                held.lost = True
                found.queue.remove(held)
                held.announced.record(self._recorder, "dropped", hold)
                held.told.set()
            return [held.announced.identity.write for held in lost]

    def _close(self, hold: str) -> _Hold:
        if hold not in self._holds:
            raise LabError(f"no hold {hold!r} at the wire gate; armed here: {', '.join(self._holds) or 'none'}")
        self._lanes.disarm(hold)
        self._holds[hold].open = False
        return self._holds[hold]

    def reset(self, incarnation: int) -> dict[str, Any]:
        """Begin an incarnation: forget rules and announcements. What is held stays held, and is named."""
        with self._lock:
            self._recorder.incarnation = incarnation
            self._announced.clear()
            self.unannounced = self.ambiguous = 0
            for hold in self._holds.values():
                hold.open = False
            self._holds = {name: hold for name, hold in self._holds.items() if hold.queue}
            held = [held.announced.identity.write for hold in self._holds.values() for held in hold.queue]
            return {"held": held, "armed": self._lanes.forget()}

    # -- what the connections see

    def announce(self, writes: Sequence[WriteIdentity]) -> None:
        """These writes are about to come; the rules that want them are settled now, in this order."""
        with self._lock:
            for identity in writes:
                announced = Announced(identity, self._lanes.choose(identity))
                self._announced[identity.address, identity.bytes].append(announced)

    def arrive(self, address: int, size: int) -> Announced | None:
        """The write that a header on the wire begins; None if nobody announced it.

        Two announced writes with the same range that are both under way cannot be told apart:
        the first announced is taken to come first, and the case is counted as ambiguous.
        """
        with self._lock:
            waiting = self._announced.get((address, size))
            if waiting is None:
                self.unannounced += 1
                return None
            announced = waiting.popleft()
            if waiting:
                self.ambiguous += 1
            else:
                del self._announced[address, size]
            return announced

    def stop(
        self,
        announced: Announced,
        go: Callable[[], None],
        lose: Callable[[], None],
        payload: memoryview | None = None,
    ) -> Held | None:
        """The whole write is here: hold it, or None if its hold is over."""
        with self._lock:
            hold = self._holds.get(announced.hold or "")
            if hold is None or not hold.open or announced.hold is None:
                return None
            held = Held(announced, announced.hold, go, lose, payload)
            hold.queue.append(held)
            # under the lock, so that no release can be recorded before it
            announced.record(self._recorder, "held", announced.hold)
            return held

    def settle(self, held: Held, kind: str, data: Mapping[str, Any]) -> None:
        """A released write has landed or failed: record it, and let the next one of its hold go.

        Under one lock, so that nobody who hears of it still finds the write held.
        """
        with self._urgently(), self._lock:
            queue = self._holds[held.hold].queue
            queue.remove(held)
            held.announced.record(self._recorder, kind, held.hold, **data)
            if queue:
                self._let_go(queue[0])

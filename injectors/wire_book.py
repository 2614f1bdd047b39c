"""The wire gate's book: which writes were announced, which are wanted, and which are held."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from injectors.wire_held import HALF_OPEN, LOSES_COMPLETION, PASSES, STOPS, Announced, Held, Hold, Lose
from racelab import delays
from racelab.errors import LabError
from racelab.evidence.recorder import Recorder
from racelab.transport.lanes import Lanes, WriteIdentity

ACTIONS = (*STOPS, LOSES_COMPLETION, PASSES)
READ_ACTIONS = ("hold", "fail", "delay", PASSES)
"""The answer to a read is its data and its completion in one: neither comes without the other."""


class Book:
    """Shared by all threads of the gate, under one lock."""

    def __init__(
        self,
        recorder: Recorder,
        urgently: Callable[[], AbstractContextManager[None]] = nullcontext,
        gate: str = "wire",
    ) -> None:
        self.gate = gate
        self._recorder = recorder
        self._urgently = urgently
        self._lock = threading.Lock()
        self._lanes = Lanes()
        self._announced: dict[tuple[str, int, int], deque[Announced]] = defaultdict(deque)
        self._holds: dict[str, Hold] = {}
        self.unannounced = 0
        self.ambiguous = 0

    # -- the conductor's commands

    def arm(
        self,
        hold: str,
        match: Mapping[str, Any],
        count: int,
        action: str = "hold",
        payload: str = "at-hold",
        ms: delays.Distribution | None = None,
        seed: str = "",
    ) -> None:
        """Do `action` to the next `count` announced writes that agree with `match`.

        What was announced before stays as it was: direct, or wanted by an older rule.
        """
        reads = match.get("op") == "read"
        payloads = ("at-hold", "at-release") if reads else ("at-hold",)
        if action not in (READ_ACTIONS if reads else ACTIONS) or payload not in payloads:
            raise LabError(f"the {self.gate} gate knows no {action!r} with payload {payload!r}")
        with self._lock:
            if hold in self._holds and self._holds[hold].queue:
                raise LabError(f"hold {hold!r} still holds writes of before")
            self._lanes.disarm(hold)
            self._lanes.arm(hold, match, count)
            self._holds[hold] = Hold(action, delays.draws(ms, seed) if ms is not None else None, payload, count)
            self._recorder.record("armed", hold=hold, gate=self.gate, match=dict(match), count=count)

    def release(
        self, hold: str, corrupt: int | None = None, tear: int | None = None, order: str | None = None
    ) -> list[str]:
        """Let go what is held, one after the other, each once the one before has landed.

        The rule ends: a write that comes later passes. Returns the ids of the writes that go. With
        `corrupt` the first of them goes with the byte at that offset changed, with `tear` it breaks off
        after so many bytes, and its connection ends there; with `order` "reversed" the last one goes first.
        What is delayed goes by itself, and is not hurried.
        """
        with self._urgently(), self._lock:
            found = self._close(hold)
            if found.action == HALF_OPEN:
                raise LabError(f"of {hold!r} nothing can go on: its target's end is gone", next="drop it")
            if found.going or not found.queue or found.delays is not None:
                return []
            going = [held.announced.identity.write for held in found.queue]
            if found.action == LOSES_COMPLETION:
                self._tell(found, "completed")
                return going
            if corrupt is not None:
                found.queue[0].corrupt(corrupt)
            if tear is not None:
                found.queue[0].tear(tear)
            if order == "reversed":
                found.queue.reverse()
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
        return self._lose(hold, both_ends=False)

    def reset_connections(self, hold: str) -> list[str]:
        """Lose what is held by a reset of its connections at both ends. The rule ends."""
        return self._lose(hold, both_ends=True)

    def _lose(self, hold: str, *, both_ends: bool) -> list[str]:
        with self._lock:
            found = self._close(hold)
            lost = [] if found.going or found.delays is not None else list(found.queue)
            how = {"reset": True} if both_ends else {}
            if lost and found.action == LOSES_COMPLETION:
                self._tell(found, "lost", both_ends=both_ends, **how)
                return [held.announced.identity.write for held in lost]
            for held in lost:
                found.queue.remove(held)
                end = {"writers_end": held.writers_end()} if held.writers_end is not None else {}
                held.announced.record(self._recorder, "dropped", hold, **how, **end)
                held.end(both_ends=both_ends)
            return [held.announced.identity.write for held in lost]

    def _tell(self, found: Hold, what: str, *, both_ends: bool = False, **how: bool) -> None:
        """Tell the writers of landed writes that they have completed, or reset them."""
        while found.queue:
            held = found.queue.popleft()
            held.announced.record(self._recorder, "told", held.hold, **{"as": what}, **how)
            if what == "lost":
                held.end(both_ends=both_ends)
            else:
                held.told.set()

    def _close(self, hold: str) -> Hold:
        if hold not in self._holds:
            raise LabError(f"no hold {hold!r} at the {self.gate} gate; armed here: {', '.join(self._holds) or 'none'}")
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
                hold = self._lanes.choose(identity)
                whole = hold is not None and self._lanes.takes_batches(hold)
                announced = Announced(identity, hold, batch=whole)
                self._announced[identity.op, identity.peer_address, identity.bytes].append(announced)

    def arrive(self, address: int, size: int, op: str = "write") -> Announced | None:
        """The write, or read, that a header on the wire begins; None if nobody announced it.

        Two announced writes with the same range that are both under way cannot be told apart:
        the first announced is taken to come first, and the case is counted as ambiguous.
        """
        with self._lock:
            waiting = self._announced.get((op, address, size))
            if waiting is None:
                self.unannounced += 1
                return None
            announced = waiting.popleft()
            if waiting:
                self.ambiguous += 1
            else:
                del self._announced[op, address, size]
            return announced

    def _open_hold(self, announced: Announced) -> Hold | None:
        hold = self._holds.get(announced.hold or "")
        if hold is None or not hold.open or (announced.identity.op == "read" and hold.action not in READ_ACTIONS):
            return None
        return hold

    def keeps_question(self, announced: Announced) -> bool:
        """Whether this read is to stop before its target has been asked for its bytes."""
        with self._lock:
            hold = self._open_hold(announced)
            return hold is not None and hold.payload == "at-release"

    def cuts(self, announced: Announced) -> bool:
        """Whether the target's end of this write's connection is to go away without a word to its writer."""
        with self._lock:
            hold = self._open_hold(announced)
            return hold is not None and hold.action == HALF_OPEN

    def stops(self, announced: Announced) -> bool:
        """Whether this write is to stop; what only passes under a rule is recorded as such."""
        with self._lock:
            hold = self._open_hold(announced)
            if hold is not None and hold.action == PASSES:
                announced.record(self._recorder, "passed", announced.hold)
            return hold is not None and hold.action in STOPS

    def stop(
        self,
        announced: Announced,
        go: Callable[[], None],
        lose: Lose,
        payload: memoryview | None = None,
        tell: Callable[[], None] = lambda: None,
        writers_end: Callable[[], str] | None = None,
        **about: Any,
    ) -> Held | None:
        """The whole write is here, or what a read asked for: hold it, or None if its hold is over.

        The writer of a `ghost` is reset at once and the write kept; of a `fail` it is lost at once;
        that of an `early-success` hears by `tell` that it has landed, once all that its hold asked for is here:
        a writer that hears sooner takes the same connection for the next one, and that could not come.
        """
        with self._lock:
            hold = self._open_hold(announced)
            if hold is None or announced.hold is None:
                return None
            held = Held(announced, announced.hold, go, lose, payload)
            held.writers_end = writers_end
            about |= {"action": hold.action} if hold.action != "hold" else {}
            if hold.delays is not None:
                held.delay_ms = about["delay_ms"] = next(hold.delays)
            # under the lock, so that no release can be recorded before it
            held.since_ns = announced.record(self._recorder, "held", announced.hold, **about).mono_ns
            if hold.action == "fail":
                announced.record(self._recorder, "dropped", announced.hold)
                held.end()
                return held
            hold.queue.append(held)
            if hold.action == "early-success":
                hold.answer(held, tell)
            if hold.action == "ghost":
                held.orphan = True
                lose(False)
            return held

    def wait(self, held: Held) -> bool:
        """Until it is let go, or its delay is over; False if it was lost."""
        if held.delay_ms is not None:
            delays.wait(held.since_ns, held.delay_ms)
            with self._lock:
                held.announced.record(self._recorder, "released", held.hold)
                held.told.set()
        return held.goes_on()

    def settle(self, held: Held, kind: str, data: Mapping[str, Any]) -> None:
        """A released write has landed or failed: record it, and let the next one of its hold go.

        Under one lock, so that nobody who hears of it still finds the write held.
        """
        with self._urgently(), self._lock:
            hold = self._holds[held.hold]
            hold.queue.remove(held)
            held.announced.record(self._recorder, kind, held.hold, **data)
            if hold.queue and hold.delays is None:
                self._let_go(hold.queue[0])

    def land(self, announced: Announced, kind: str, data: Mapping[str, Any], lose: Lose) -> Held | None:
        """A write that did not stop has landed or failed: record it, and hold its status if a hold asks for that."""
        with self._urgently(), self._lock:
            hold = self._open_hold(announced)
            mine = announced.hold if hold is not None and hold.action not in STOPS else None
            announced.record(self._recorder, kind, mine, **data)
            if hold is None or mine is None or hold.action != LOSES_COMPLETION or kind != "landed":
                return None
            announced.record(self._recorder, "withheld", mine)
            held = Held(announced, mine, lambda: None, lose)
            hold.queue.append(held)
            return held

"""Metadata slots (lab `metadata-slots`): small pieces of decode's memory that prefill writes beside the KV.

Prefill computes a request's first token and writes it, with the name of its owner, into the slot that decode gave
the attempt; decode takes it there once it has committed. A slot is handed on when its request ends. As upstream
engines do it, nothing keeps a write that is still under way from landing in a slot that has another owner by then.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from racelab.engine.guards import Guards, UseSlot
from racelab.engine.job import Job
from racelab.engine.live import Live
from racelab.engine.pool import Allocate, PagePool
from racelab.engine.transformer import Transformer
from racelab.evidence.fingerprint import fingerprint
from racelab.evidence.recorder import Recorder
from racelab.transport.lanes import WriteIdentity
from racelab.transport.mooncake import Write

_CONTENT = struct.Struct("<IIi52s")
SLOT_BYTES = _CONTENT.size


class Content(NamedTuple):
    """Whose metadata a slot holds, and the first token; nobody's while nothing was written."""

    owner: str | None
    attempt: int
    token: int


class SlotMemory:
    """`count` slots, one after the other, registered with the transport as one region."""

    def __init__(self, count: int, allocate: Allocate = lambda size: None) -> None:
        self.count = count
        self._memory = allocate(count * SLOT_BYTES)
        self._bytes: NDArray[numpy.uint8] = (
            numpy.zeros(count * SLOT_BYTES, dtype=numpy.uint8) if self._memory is None else self._memory.bytes
        )

    @property
    def size(self) -> int:
        """Bytes of all slots."""
        return self.count * SLOT_BYTES

    def address(self, slot: int) -> int:
        """Where a slot begins."""
        base = self._memory.address if self._memory is not None else int(self._bytes.ctypes.data)
        return base + slot * SLOT_BYTES

    def clear(self) -> None:
        """Nobody has written yet."""
        self._bytes[:] = 0

    def _of(self, slot: int) -> NDArray[numpy.uint8]:
        return self._bytes[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES]

    def fill(self, slot: int, content: Content) -> None:
        """What a slot holds from now on."""
        name = (content.owner or "").encode()
        packed = _CONTENT.pack(content.attempt, len(name), content.token, name)
        self._of(slot)[:] = numpy.frombuffer(packed, dtype=numpy.uint8)

    def read(self, slot: int) -> Content:
        """What a slot holds now."""
        attempt, length, token, name = _CONTENT.unpack(self._of(slot).tobytes())
        return Content(name[:length].decode() or None, attempt, token)

    def fingerprint(self, slot: int) -> str:
        """Of all its bytes."""
        return fingerprint(self._of(slot))


class Slots:
    """Decode's books of its slots: LIFO, as with pages."""

    def __init__(self, memory: SlotMemory, recorder: Recorder, guards: Guards) -> None:
        self.memory = memory
        self.free = list(reversed(range(memory.count)))
        self._recorder = recorder
        self._guards = guards

    def take(self, live: Live) -> None:
        """A request that is admitted gets a slot."""
        live.slot = self.free.pop()
        self._recorder.record("slot-taken", live.name, live.attempt, slot=live.slot)

    def release(self, live: Live) -> None:
        """The request has ended; what the slot holds stays in it."""
        if live.slot is not None:
            self.free.append(live.slot)
            self._recorder.record("slot-freed", live.name, live.attempt, slot=live.slot)
            live.slot = None

    def first_token(self, live: Live) -> int | None:
        """What the request's slot says; None if a guard has something against it: decode can compute it itself."""
        if live.slot is None:
            return None  # it has ended
        found = self.memory.read(live.slot)
        question = UseSlot(
            *(live.name, live.attempt, None, None, "slot-read"),
            slot=live.slot,
            owner=found.owner,
            owner_attempt=found.attempt,
        )
        if self._guards.refuse(question):
            return None
        self._recorder.record(
            "slot-read",
            live.name,
            live.attempt,
            slot=live.slot,
            token=found.token,
            owner=found.owner,
            owner_attempt=found.attempt,
        )
        return found.token

    def advertised(self, live: Live) -> dict[str, Any]:
        """What prefill has to know of the request's slot."""
        assert live.slot is not None
        return {"slot": [live.slot, self.memory.address(live.slot)]}

    @property
    def taken(self) -> int:
        """Slots that requests have."""
        return self.memory.count - len(self.free)


class Metadata:
    """Prefill's side: its slots are the sources of its writes, one for each page that a job could start with."""

    def __init__(self, memory: SlotMemory, pool: PagePool, model: Transformer) -> None:
        self.memory = memory
        self._pool = pool
        self._model = model

    def write(self, job: Job, chunk: int, name: str) -> Write:
        """The write that brings the first token of a prompt whose keys and values are there."""
        assert job.slot is not None
        slot, address = job.slot
        pages = [ticket.page for ticket in job.sources]
        logits = self._model.forward(job.prompt[-1:], job.transferred, self._pool.cache, pages)
        source = pages[0]
        self.memory.fill(source, Content(job.request, job.attempt, int(logits.argmax())))
        identity = WriteIdentity(
            write=name,
            request=job.request,
            attempt=job.attempt,
            chunk=chunk,
            layer=None,
            page=None,
            gen=None,
            address=address,
            bytes=SLOT_BYTES,
            slot=slot,
        )
        return Write(identity, self.memory.address(source), None, self.memory.fingerprint(source))

"""Prefill and decode of the reference engine in one process: real engines, real memory, no network.

    with the guards that are asked for: duet.submit(...), duet.play(), duet.history()

Messages pass as JSON, writes are copied at once and completed at the next turn. What comes out is a
history of the engine's own making, for tests of the engine's rules and of the checkers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import torch

from racelab.engine.clock import VirtualClock
from racelab.engine.decode import Decode
from racelab.engine.guards import GUARDS, guarded
from racelab.engine.mail import Mail
from racelab.engine.pool import PagePool
from racelab.engine.prefill import Prefill
from racelab.engine.prompts import prompt
from racelab.engine.reference import Reference
from racelab.engine.slots import SLOT_BYTES, Metadata, SlotMemory, Slots
from racelab.engine.transformer import Transformer
from racelab.evidence.events import Event
from racelab.evidence.history import Header, History
from racelab.evidence.recorder import Recorder
from racelab.instances import named, role_of
from racelab.scenario import Lab, Request, Scenario
from racelab.scenario.steps import Submit
from racelab.transport.messages import Message, decode, encode
from racelab.transport.mooncake import Completion, Write, of_a_read

TURNS_MAX = 10_000


class _Wire:
    """What an engine sees as its transport: it writes from `source` to `target`, or reads from there."""

    def __init__(self, recorder: Recorder, source: PagePool, target: PagePool) -> None:
        self.segment = "segment"
        self._recorder = recorder
        self._source = source
        self._target = target
        self._batches: list[tuple[Write, ...]] = []
        self.held = False
        self.slots: dict[str, SlotMemory] = {}
        self.fails: Callable[[Write], bool] = lambda write: False
        """which go by themselves, as at a gate, and complete with an error: they are lost"""

    def post(self, segment: str, writes: list[Write]) -> None:
        for fails in (True, False):
            if batch := [write for write in writes if self.fails(write) is fails]:
                self._submit(batch)

    def _submit(self, writes: list[Write]) -> None:
        for write in writes:
            identity = write.identity
            about = (identity.request, identity.attempt, identity.page, identity.gen)
            self._recorder.record(
                "posted",
                *about,
                write=identity.write,
                batch=f"b-{writes[0].identity.write}",
                lane="direct",
                layer=identity.layer,
                **identity.of,
                chunk=identity.chunk,
                address=identity.address,
                bytes=identity.bytes,
                source_page=write.source_page,
                fingerprint=write.fingerprint,
                chunks=write.chunks,
                **(of_a_read(write) if identity.op == "read" else {}),
            )
        self._batches.append(tuple(writes))

    def poll(self) -> list[Completion]:
        batches, self._batches = ([], self._batches) if self.held else (self._batches, [])
        return [self._complete(writes) for writes in batches]

    def _complete(self, writes: tuple[Write, ...]) -> Completion:
        ok = not any(map(self.fails, writes))
        status, code = ("ok", 1) if ok else ("failed", -1)
        for write in writes if ok else ():
            if write.identity.slot is not None:
                self._copy_slot(write)
                continue
            assert write.source_page is not None
            assert write.identity.page is not None
            block, size = _block(write), write.identity.bytes
            self._target.put(write.identity.page, block, 0, self._source.get(write.source_page, block, 0, size))
        first = writes[0].identity
        batch = f"b-{first.write}"
        identities = [write.identity.write for write in writes]
        self._recorder.record(
            "completed", first.request, first.attempt, batch=batch, writes=identities, status=status, code=code
        )
        return Completion(batch, writes, status, code)

    def _copy_slot(self, write: Write) -> None:
        source = (write.source_address - self.slots["prefill"].address(0)) // SLOT_BYTES
        assert write.identity.slot is not None
        self.slots["decode"].fill(write.identity.slot, self.slots["prefill"].read(source))

    @property
    def outstanding(self) -> int:
        return sum(map(len, self._batches))


class Duet:
    """Both engines, their mail and their clock."""

    def __init__(
        self,
        requests: Mapping[str, Request],
        lab: Lab | None = None,
        guards: Iterable[str] = tuple(GUARDS),
        build: Callable[..., Decode] = Decode,
        model: Transformer | None = None,
    ) -> None:
        self.lab = lab or Lab(prefix_cache=True)
        self.requests = dict(requests)
        self.guards = list(guards)
        torch.set_num_threads(1)  # as an instance does
        self.events: list[Event] = []
        self.conductor = Recorder("conductor", self.events.append)
        self.clock = VirtualClock()
        self.stop_tokens: dict[str, int] = {}
        """by request; what `stop-at` amounts to"""
        self.transfers: dict[str, str] = {}
        """by request, the transfer id that its client gives it"""
        self.lose: Callable[[Message], bool] = lambda message: False
        """which messages never arrive"""
        self.computing = False
        """whether prefill and decode are amid something long, and what they are to do next has to wait"""
        self._work: deque[Callable[[], None]] = deque()
        self._mail: deque[bytes] = deque()
        self._attempts: dict[str, int] = {}
        self._forwarded = 0
        model = model or Transformer(self.lab.layers)
        sides = {}
        for role in self.lab.instances:
            pages = self.lab.decode_pages if role_of(role) == "decode" else self.lab.prefill_pages
            recorder = Recorder(role, self.events.append)
            recorder.virtual_ms = lambda: self.clock.now_ms
            shares: dict[str, Any] = {"ranks": self.lab.ranks, "streams": self.lab.streams}
            pool = PagePool(pages, self.lab.layers, self.lab.page_tokens, **shares)
            pool.refill(pages)
            mail = Mail(recorder, lambda message: self._mail.append(encode(message)))
            sides[role] = (self.lab, recorder, guarded(self.guards, recorder), pool, model, mail, self.clock)
            self._describe(recorder, pool)
        self.recorders = {role: side[1] for role, side in sides.items()}
        self.pools = {role: side[3] for role, side in sides.items()}
        self.wire = _Wire(self.recorders["prefill"], self.pools["prefill"], self.pools["decode"])
        self.reads = _Wire(self.recorders["decode"], self.pools["prefill"], self.pools["decode"])
        metadata = slots = None
        if self.lab.metadata_slots is not None:
            self.wire.slots = {
                "prefill": SlotMemory(self.lab.prefill_pages),
                "decode": SlotMemory(self.lab.metadata_slots),
            }
            metadata = Metadata(self.wire.slots["prefill"], self.pools["prefill"], model)
            slots = Slots(self.wire.slots["decode"], self.recorders["decode"], sides["decode"][2])
            where = self.wire.slots["decode"]
            self.recorders["decode"].record(
                "slot-region", address=where.address(0), bytes=where.size, slots=where.count
            )
        self.prefill = Prefill(*sides["prefill"], self.wire, self._work.append, metadata)  # type: ignore[arg-type]
        self.prefills, self.wires = {"prefill": self.prefill}, {"prefill": self.wire}
        for name in named("prefill", self.lab.prefills)[1:]:
            wire = self.wires[name] = _Wire(self.recorders[name], self.pools[name], self.pools["decode"])
            self.prefills[name] = Prefill(*sides[name], wire, self._work.append)  # type: ignore[arg-type]
        more: dict[str, Any] = {"transport": self.reads} if self.lab.transfer == "pull" else {}
        more |= {"slots": slots} if slots is not None else {}
        self.decode = build(*sides["decode"], "segment", self._work.append, **more)
        self.conductor.record("run-started", run=1, seed=0, guards=self.guards)
        self.conductor.record("phase", phase="schedule")

    def _describe(self, recorder: Recorder, pool: PagePool) -> None:
        free = list(range(pool.pages))
        sizes = {"pages": pool.pages, "page_bytes": pool.page_bytes, "layers": pool.layers, "blocks": len(pool.blocks)}
        recorder.record("pool", **sizes, free=free, pattern=pool.pattern_chunks)
        pool.record_regions(recorder)

    def submit(self, *names: str, prefill: str = "prefill") -> None:
        """These requests arrive at once, to be filled by this prefill."""
        for name in names:
            request = self.requests[name]
            if self.lab.transfer == "pull":
                self._attempts[name] = self._attempts.get(name, 0) + 1
                attempt = self._attempts[name]
                self.prefill.submit(name, attempt, self._prompt(name), request.new_tokens, request.timeout_ms)
                continue
            transfer = self.transfers.get(name)
            more = self._more(name)
            where = {"transfer": transfer, "prefill": prefill}
            attempt = self.decode.submit(name, self._prompt(name), request.new_tokens, *more, **where)  # type: ignore[arg-type]
            if self.lab.router:
                self.prefills[prefill].offer(name, attempt, self._prompt(name), transfer)

    def _prompt(self, name: str) -> list[int]:
        request = self.requests[name]
        return prompt(request.salt or name, request.prompt_tokens, 0, request.prefix, request.prefix_tokens)

    def _more(self, name: str) -> tuple[int | None, int | None]:
        return self.requests[name].timeout_ms, self.stop_tokens.get(name)

    def present(self, name: str, of: str) -> None:
        """A client presents the latest reference that was made for `of`."""
        made = [event for event in self.events if event.kind == "referenced" and event.request == of]
        self._attempts[name] = self._attempts.get(name, 0) + 1
        self._forward(name, self._attempts[name], made[-1])

    def _forward(self, name: str, attempt: int, made: Event) -> None:
        self.recorders["decode"].learned(made.instance, made.seq, made.hlc)
        reference = msgspec.convert(made.data["reference"], Reference)
        tokens = self.requests[name].new_tokens
        self.decode.submit(name, self._prompt(name), tokens, *self._more(name), attempt, reference)

    def play(self, *, until: Callable[[Event], bool] = lambda event: False) -> None:
        """Let everything happen that needs nothing from outside, or stop right after an event."""
        for _ in range(TURNS_MAX):
            seen = len(self.events)
            moved = self.turn()
            if any(map(until, self.events[seen:])):
                return
            if not moved:
                return
        raise AssertionError("the engines do not come to rest")

    def turn(self) -> bool:
        """Let one thing happen; False if there is nothing to do."""
        if self._mail:
            self._deliver(decode(self._mail.popleft()))
        elif self._work and not self.computing:
            self._work.popleft()()
        elif len(made := [event for event in self.events if event.kind == "referenced"]) > self._forwarded:
            event = made[self._forwarded]
            self._forwarded += 1
            assert event.request is not None
            assert event.attempt is not None
            self._forward(event.request, event.attempt, event)
        else:
            done = [(self.prefills[name], each) for name, wire in self.wires.items() for each in wire.poll()]
            done += [(self.decode, each) for each in self.reads.poll()]
            for engine, completion in done:
                engine.on_completion(completion)
            return bool(done)
        return True

    def pass_time(self, ms: int) -> None:
        """Time passes from timer to timer, and what each causes happens before the next."""
        while ms > 0:
            due_ms = self.clock.next_due_ms()
            step_ms = ms if due_ms is None else min(ms, max(due_ms, 1))
            self.clock.advance(step_ms)
            ms -= step_ms
            self.play()

    def _deliver(self, message: Message) -> None:
        if self.lose(message):
            return
        engine = self.decode if message.to == "decode" else self.prefills[message.to]
        engine.on_message(message)

    def look(self, page: int, layer: int, start: int, end: int) -> Event:
        """Decode reads its own memory, and takes apart what it saw."""
        pool, recorder = self.pools["decode"], self.recorders["decode"]
        recorder.learned("prefill", self.recorders["prefill"].seq, self.recorders["prefill"].clock.tick())
        seen = pool.fingerprint(page, layer, start, end)
        where = {"layer": layer, "start": start, "end": end, "fingerprint": seen, "why": "asked"}
        look = recorder.record("look", None, None, page, self.decode.ledger.gen[page], **where)
        recorder.record("chunks", fingerprint=seen, chunks=pool.seen.of(seen))
        return look

    def memory(self, page: int, layer: int) -> torch.Tensor:
        """The bytes of one page's layer on decode, to be changed at will."""
        pool = self.pools["decode"]
        return torch.from_numpy(pool.memory(layer)[page])

    def history(self) -> History:
        """Drain, take stock, and put the history together."""
        self.reads.held = self.computing = False
        for wire in self.wires.values():
            wire.held = False
        self.play()
        self.conductor.record("phase", phase="drain")
        pulls_ms = self.lab.lease_ms if self.lab.transfer == "pull" else 0
        self.pass_time((self.lab.request_timeout_ms or 0) + pulls_ms + self.lab.drain_timeout_ms)
        for role, engine in (("decode", self.decode), *self.prefills.items()):
            ledger, left = engine.ledger, engine.leftovers() | {"timers": self.clock.pending()}
            recorder = self.recorders[role]
            recorder.record("quiesced", pool=self.pools[role].pages, states=ledger.counts(), leftovers=left)
        steps: list[Any] = [Submit(request=name) for name in self.requests]
        made = Scenario(scenario="duet", about="In one process.", lab=self.lab, requests=self.requests, steps=steps)
        header = Header(scenario=made, target="reference", policy="ledger", guards=self.guards)
        return History(header, list(self.events))


def sharing_and_eviction() -> History:
    """Shared prefixes and eviction: pages that are used again after their writes are over."""
    prefix = {"prefix": "system", "prefix_tokens": 32}
    sizes = {"r1": 40, "r2": 43, "r3": 90}
    requests = {name: Request(prompt_tokens=size, **prefix) for name, size in sizes.items()}
    duet = Duet(requests, Lab(prefix_cache=True, decode_pages=8))
    duet.submit("r1", "r2", "r3")
    duet.play()
    duet.submit("r1")
    return duet.history()


def _block(write: Write) -> int:
    """The memory block that a write goes to."""
    return write.identity.block if write.identity.block is not None else write.identity.layer

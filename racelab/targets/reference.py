"""One prefill or decode instance of the reference engine: event loop, transport, bus and engine.

The conductor configures it for each run (`reset`), acts on it, and asks for looks and for rest.
Everything happens on one loop, and whatever was recorded leaves before anything is answered.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import msgspec
import torch

from racelab.channel.frames import Command
from racelab.channel.link import Link
from racelab.engine.clock import RealClock, VirtualClock
from racelab.engine.decode import Decode
from racelab.engine.glue_faults import GLUE_FAULTS, SOUND, Glue
from racelab.engine.guards import Guards, guarded
from racelab.engine.local_work import LocalWork
from racelab.engine.mail import Mail
from racelab.engine.pool import PagePool
from racelab.engine.prefill import Prefill
from racelab.engine.prompts import prompt
from racelab.engine.reference import Reference
from racelab.engine.slots import Metadata, SlotMemory, Slots
from racelab.engine.transformer import Transformer
from racelab.evidence.recorder import Recorder
from racelab.instances import role_of
from racelab.scenario import Lab
from racelab.transport.bus import Bus
from racelab.transport.home import Home
from racelab.transport.messages import Message
from racelab.transport.mooncake import OwnProcess, Transport
from racelab.vm.home import MachineHome

POLLS_AT_ONCE = 48
POLL_INTERVAL_S = 1e-3
"""The completion queue is looked at on every turn of the loop for a while after a post or a completion, as
long as there is something that no hold wanted, and else once an interval (a held write). asyncio cannot wait for
less than a millisecond. It orders nothing."""


class Instance:
    """Built inside its own process; `run` returns when the conductor has hung up."""

    def __init__(
        self,
        name: str,
        hub: str,
        token: str,
        host: str,
        transport: str,
        device: str = "",
        machine: dict[str, Any] | None = None,
        port: int | None = None,
    ) -> None:
        torch.set_num_threads(1)
        self.name = name
        self.role = role_of(name)
        self.recorder = Recorder(name)
        self._home: Home = (
            MachineHome(name, host, device, port, **machine) if machine else OwnProcess(host, transport, device, port)
        )
        self.transport = Transport(host, self.recorder, protocol=transport, home=self._home)
        self.link = Link(
            hub,
            token,
            self.recorder,
            segment=self.transport.segment,
            torch=str(torch.__version__),
            **self._home.facts,
        )
        self.clock: VirtualClock = VirtualClock()
        self.bus: Bus | None = None
        self.engine: Prefill | Decode | None = None
        self._pools: dict[tuple[int, int, int, int, tuple[str, ...]], PagePool] = {}
        self._slots: SlotMemory | None = None
        self._in_use: SlotMemory | None = None
        self._models: dict[int, Transformer] = {}
        self._pool: PagePool | None = None
        self._polling = False
        self._polls_at_once = 0
        self._watched = 0
        self._later: asyncio.TimerHandle | None = None
        """the next look at the completion queue, if it is not due at once"""
        self._listening: asyncio.TimerHandle | None = None
        self._handlers: dict[str, Callable[..., Any]] = {
            "reset": self.reset,
            "use_gate": self.transport.use_gate,
            "peer_replaced": self.transport.peer_replaced,
            "arm_lane": self.transport.arm_lane,
            "disarm_lane": self.transport.disarm_lane,
            "arm_work": self.arm_work,
            "release_work": self.release_work,
            "submit": self.submit,
            "abort": self.abort,
            "retry": self.retry,
            "retract": self.retract,
            "advance": self.advance,
            "retire": self.retire,
            "look": self.look,
            "dissect": self.dissect,
            "sync": self.sync,
            "timers": self.timers,
            "register": self.register,
            "unregister": self.unregister,
            "unmap": self.unmap,
            "quiesce": self.quiesce,
        }

    async def run(self) -> None:
        """Serve the conductor until it hangs up."""
        gc.freeze()  # what torch and Ray have loaded stays; collections need not look at it again
        loop = asyncio.get_running_loop()
        self._loop = loop
        gone = loop.create_future()
        loop.add_reader(self.link.fileno(), self._on_readable, gone)
        try:
            await gone
        finally:
            loop.remove_reader(self.link.fileno())
            if self.bus is not None:
                await self.bus.__aexit__(None, None, None)
            self.transport.close()
            self._home.close()
            self.link.close()

    def _on_readable(self, gone: asyncio.Future[None]) -> None:
        commands = self.link.ready()
        if commands is None:
            if not gone.done():
                gone.set_result(None)
            return
        for command in commands:
            if command.name == "join_bus":
                self._loop.create_task(self._join_bus(command))
            else:
                self.link.answer(command, self._handlers)
        self._watch_completions()

    async def _join_bus(self, command: Command) -> None:
        """Connect to the broker (through its gate); the only command that has to wait."""
        try:
            self.bus = await Bus(command.args["address"], command.args["lab"], self.name, self._on_message).__aenter__()
        except Exception as error:  # reported to the conductor, which decides
            self.link.reply(command, error=str(error))
        else:
            self.link.reply(command)

    def _on_message(self, message: Message) -> None:
        if self.engine is not None:
            self.engine.on_message(message)
            self._after_work()

    def _soon(self, work: Callable[[], None]) -> None:
        """Run engine work on the next turn of the loop, after whatever has already arrived.

        What it records leaves with the last piece of work that is due: a send wakes the conductor.
        """

        def run() -> None:
            work()
            self._after_work()

        self._loop.call_soon(run)

    def _after_work(self) -> None:
        if self.engine is None or not self.engine.busy:
            self.link.flush()
        self._watch_completions()

    def _watch_completions(self) -> None:
        """Look at the completion queue often once there is more that nothing holds, and at least once an interval."""
        if self._unhindered > self._watched:
            self._polls_at_once = POLLS_AT_ONCE
            if self._later is not None:
                self._later.cancel()
                self._poll_soon()
        self._watched = self._unhindered
        if not self._polling and self._under_way:
            self._polling = True
            self._poll_soon()

    def _poll_soon(self) -> None:
        self._later = None
        self._loop.call_soon(self._poll)

    @property
    def _under_way(self) -> int:
        """What the transport has not finished: writes, and notifications of them."""
        return self.transport.outstanding + self.transport.notices.under_way

    @property
    def _unhindered(self) -> int:
        """What of it no hold wanted, and so is about to end."""
        return self.transport.direct_outstanding + self.transport.notices.under_way

    def _listen(self) -> None:
        """Ask the transport for its notifications, once an interval: it tells nobody of them by itself."""
        self._listening = self._loop.call_later(POLL_INTERVAL_S, self._listen)
        for message in self.transport.told():
            self._on_message(message)

    def _poll(self) -> None:
        engine = self.engine
        assert engine is not None
        completions = self.transport.poll()
        for completion in completions:
            engine.on_completion(completion)
        if isinstance(engine, Prefill):
            engine.note_notices()
        if not engine.busy:
            self.link.flush()
        self._later = None
        self._watched = self._unhindered
        if not self._under_way:
            self._polling = False
            return
        self._polls_at_once = POLLS_AT_ONCE if completions else self._polls_at_once - 1
        if self._polls_at_once > 0 and self._watched:
            self._poll_soon()
        else:
            self._later = self._loop.call_later(POLL_INTERVAL_S, self._poll)

    # -- commands

    def reset(
        self,
        incarnation: int,
        epoch: int,
        shape: dict[str, Any],
        guards: list[str],
        seed: int,
        glue_fault: str | None = None,
        numbers_from: int = 0,
        generations_from: int = 0,
    ) -> dict[str, int]:
        """Begin a new incarnation: pool refilled with the epoch's pattern, memory registered anew.

        One that takes the place of a dead process within a run counts its events and its pages' generations
        on from there, so that neither stands for two things in one history.
        """
        if self._under_way:
            raise RuntimeError(f"{self._under_way} write(s) or notification(s) of the last run are outstanding")
        lab = Lab(**shape)
        self._seed = seed
        self._stopping: dict[str, LocalWork] = {}
        """by hold, the queue in which it stops local work"""
        self._pulls = lab.transfer == "pull"
        self.recorder.incarnation = incarnation
        self.recorder.seq = max(self.recorder.seq, numbers_from)
        self.clock.close()
        clock = RealClock(self._loop, self._after_work) if lab.clock == "real" else VirtualClock()
        self.clock = clock
        self.recorder.virtual_ms = lambda: clock.now_ms
        pages = lab.decode_pages if self.role == "decode" else lab.prefill_pages
        self._pool = pool = self._pool_for(pages, lab)
        pool.refill(epoch)
        self.transport.forget_lanes()
        if self._listening is not None:
            self._listening.cancel()
        self._listening = self._loop.call_later(0, self._listen) if self._hears_notices(lab) else None
        self._in_use = slots = self._slots_for(lab)
        self.register()
        pool.check_memory()
        self.engine = self._build(
            lab,
            pool,
            slots,
            guarded(guards, self.recorder),
            GLUE_FAULTS[glue_fault] if glue_fault is not None else SOUND,
        )
        self.engine.ledger.gen = [generations_from] * pages
        free = list(reversed(self.engine.ledger.free))
        shares: dict[str, Any] = {} if pool.is_plain else {"blocks": len(pool.blocks)}
        self.recorder.record(
            "pool",
            pages=pages,
            page_bytes=pool.page_bytes,
            layers=pool.layers,
            free=free,
            pattern=pool.pattern_chunks,
            generations_from=generations_from,
            **shares,
        )
        pool.record_regions(self.recorder)
        if slots is not None:
            self.recorder.record("slot-region", address=slots.address(0), bytes=slots.size, slots=slots.count)
        if generations_from:
            self.engine.greet()
        return {"address_0": pool.address(0)}

    def _build(
        self, lab: Lab, pool: PagePool, slots: SlotMemory | None, guards: Guards, glue: Glue
    ) -> Prefill | Decode:
        assert self.bus is not None, "the bus is joined before the first run"
        self.bus.qos = lab.control_qos
        model = self._model_for(lab.layers)
        mail = Mail(self.recorder, self.bus.send)
        if self.role == "prefill":
            metadata = Metadata(slots, pool, model) if slots is not None else None
            own = (lab, self.recorder, guards, pool, model, mail, self.clock, self.transport, self._soon)
            return Prefill(*own, metadata)
        given = Slots(slots, self.recorder, guards) if slots is not None else None
        return Decode(
            *(lab, self.recorder, guards, pool, model, mail, self.clock, self.transport.segment, self._soon, glue),
            transport=self.transport if lab.transfer == "pull" else None,
            slots=given,
        )

    def _hears_notices(self, lab: Lab) -> bool:
        return self.role == "decode" and lab.news == "notify"

    def _model_for(self, layers: int) -> Transformer:
        if layers not in self._models:
            self._models[layers] = Transformer(layers)
        return self._models[layers]

    def _pool_for(self, pages: int, lab: Lab) -> PagePool:
        key = (pages, lab.layers, lab.page_tokens, lab.ranks, tuple(lab.streams))
        if key not in self._pools:
            shares: dict[str, Any] = {"ranks": lab.ranks, "streams": lab.streams}
            self._pools[key] = PagePool(pages, lab.layers, lab.page_tokens, self._home.memory, **shares)
        return self._pools[key]

    def _slots_for(self, lab: Lab) -> SlotMemory | None:
        """Decode's metadata slots, or prefill's sources of what it writes there: a page each."""
        if lab.metadata_slots is None:
            return None
        count = lab.metadata_slots if self.role == "decode" else lab.prefill_pages
        if self._slots is None or self._slots.count != count:
            self._slots = SlotMemory(count, self._home.memory)
        self._slots.clear()
        return self._slots

    def arm_work(self, hold: str, match: dict[str, Any], count: int) -> None:
        """Stop the next `count` pieces of local work that agree with `match`."""
        assert self.engine is not None
        queue = self.engine.work
        if isinstance(self.engine, Decode) and match.get("op") == "register":
            queue = self.engine.registrations
        self._stopping[hold] = queue
        queue.arm(hold, match, count)

    def release_work(self, hold: str) -> str | None:
        """Let local work go on; the hold that still stands before it, if one does."""
        return self._stopping.pop(hold).release(hold)

    def submit(
        self,
        name: str,
        salt: str,
        prompt_tokens: int,
        new_tokens: int,
        prefix: str | None = None,
        prefix_tokens: int = 0,
        timeout_ms: int | None = None,
        stop_token: int | None = None,
        attempt: int | None = None,
        reference: dict[str, Any] | None = None,
        transfer: str | None = None,
        prefill: str = "prefill",
    ) -> int | None:
        """The client sends a request to decode, and a router to prefill as well. If its KV is to be pulled the client
        sends it to prefill, and then to decode with the reference that prefill gave it."""
        tokens = prompt(salt, prompt_tokens, self._seed, prefix, prefix_tokens)
        if isinstance(self.engine, Prefill):
            assert attempt is not None
            if self._pulls:
                self.engine.submit(name, attempt, tokens, new_tokens, timeout_ms)
            else:
                self.engine.offer(name, attempt, tokens, transfer)
            return attempt
        assert self.engine is not None
        given = msgspec.convert(reference, Reference) if reference is not None else None
        return self.engine.submit(name, tokens, new_tokens, timeout_ms, stop_token, attempt, given, transfer, prefill)

    def abort(self, name: str) -> None:
        """The client, or a router, gives up on a request."""
        assert self.engine is not None
        self.engine.abort(name)

    def retry(self, name: str, prefill: str) -> None:
        """A router has another prefill serve a request."""
        assert isinstance(self.engine, Decode)
        self.engine.retry(name, prefill)

    def retract(self, name: str) -> bool:
        """The scheduler takes a request's pages back for others."""
        assert isinstance(self.engine, Decode)
        return self.engine.retract(name)

    def advance(self, ms: int) -> int:
        """Virtual time passes here."""
        return self.clock.advance(ms)

    def retire(self) -> None:
        """The next run is without this instance: no timer of the last one fires in it."""
        self.clock.close()

    def look(self, ranges: list[dict[str, Any]], why: str) -> None:
        """Read own memory: the fingerprint of each of `ranges` (page, layer, start, end, write)."""
        assert self._pool is not None
        assert self.engine is not None
        for where in ranges:
            if "slot" in where:
                assert self._slots is not None
                seen = self._slots.fingerprint(where["slot"])
                self.recorder.record("look", layer=None, fingerprint=seen, why=why, **where)
                continue
            page = where.pop("page")
            seen = self._pool.fingerprint(page, where["layer"], where["start"], where["end"])
            gen = self.engine.ledger.gen[page]
            self.recorder.record("look", None, None, page, gen, fingerprint=seen, why=why, **where)

    def dissect(self, fingerprints: list[str]) -> None:
        """Say of which chunks consisted what was seen under each of these fingerprints, where that is known."""
        assert self._pool is not None
        for whole in fingerprints:
            chunks = self._pool.seen.of(whole)
            if chunks is not None:
                self.recorder.record("chunks", fingerprint=whole, chunks=chunks)

    def sync(self) -> dict[str, Any]:
        """Whether this instance could still act without hearing anything, and when its next timer falls due."""
        assert self.engine is not None
        assert self.bus is not None
        if self.bus.failed:
            raise RuntimeError(self.bus.failed)
        return {"busy": self.engine.busy or not self.bus.idle, "next_due_ms": self.clock.next_due_ms()}

    def register(self) -> None:
        """Have the transport know the pool's memory, and that of the metadata slots."""
        pool, slots = self._pool, self._in_use
        assert pool is not None
        pool.map_again()
        regions = [(pool.address(block), pool.block_bytes(block)) for block in range(len(pool.blocks))]
        self.transport.register([*regions, (slots.address(0), slots.size)] if slots is not None else regions)

    def unregister(self, fault: str) -> None:
        """Take the pool's memory back from the transport, whatever is under way to it."""
        pool = self._pool
        assert pool is not None
        self.transport.unregister()
        for block in range(len(pool.blocks)):
            about: dict[str, Any] = {"fault": fault, "peer": self.name, "bytes": pool.block_bytes(block)}
            self.recorder.record("unregistered", address=pool.address(block), **about)

    def unmap(self, fault: str) -> None:
        """Have nothing mapped where the transport has the pool's memory registered, whatever is under way to it."""
        pool = self._pool
        assert pool is not None
        pool.unmap()
        for block in range(len(pool.blocks)):
            about: dict[str, Any] = {"fault": fault, "peer": self.name, "bytes": pool.block_bytes(block)}
            self.recorder.record("unmapped", address=pool.address(block), **about)

    def timers(self, within_ms: int | None = None, until_ms: int | None = None) -> dict[str, Any]:
        """How many timers have fired, and when those fall due that do so within so long, or until then."""
        until = self.clock.now_ms + within_ms if within_ms is not None else until_ms or 0
        return {"fired": self.clock.fired, "due": self.clock.due_by(until), "now_ms": self.clock.now_ms}

    def quiesce(self) -> dict[str, Any]:
        """The books at rest: states, leftovers, and pages that a foreign epoch has touched."""
        self.transport.notices.settle()
        if isinstance(self.engine, Prefill):
            self.engine.note_notices()
        assert self.engine is not None
        assert self._pool is not None
        ledger = self.engine.ledger
        untouched = [page for page in range(self._pool.pages) if page not in ledger.ever_taken]
        foreign = self._pool.foreign(untouched)
        self.recorder.record("scan", pages=untouched, foreign=foreign)
        self.transport.record_sockets()
        leftovers = self.engine.leftovers() | {"timers": self.clock.pending()}
        self.recorder.record("quiesced", pool=self._pool.pages, states=ledger.counts(), leftovers=leftovers)
        return {"foreign": foreign, "leftovers": leftovers}


def run(name: str, hub: str, token: str, host: str, transport: str, **place: Any) -> None:
    """Be the instance of this name until the conductor hangs up."""
    instance = Instance(name, hub, token, host, transport, **place)
    asyncio.run(instance.run())

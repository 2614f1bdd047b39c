"""The decode instance: owns the pages that prefill writes into, and answers the client.

    submit  -> pages: those that the prefix cache has, and fresh ones with grants, which reserve asks
               prefill to fill (or queued until pages are free)
    written -> stop evidence for the chunk's grants; when all chunks are there: committed
    failed  -> prefill has ended the attempt: so does decode
    committed -> its full pages are published; one token at a time over the pages: read, finished
    time-out / abort / no word from prefill -> the request ends now; its pages go the way that the guards allow

A request that comes with a reference to its pages claims and reads them instead (racelab.engine.pull).

What each event means for a page is the ledger's business, whether it may happen the guards'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from racelab.engine.batch import Batch
from racelab.engine.clock import VirtualClock
from racelab.engine.glue_faults import SOUND, Glue
from racelab.engine.growth import Growth
from racelab.engine.guards import (
    SILENCE,
    ApplyControl,
    CloseOnFailure,
    CommitTransfer,
    ForgetPages,
    Guards,
    KeepWaiting,
    SendUnregistered,
    SkipNotice,
    Ticket,
)
from racelab.engine.handles import Handles
from racelab.engine.live import Live
from racelab.engine.local_work import LocalWork
from racelab.engine.mail import NOBODY, Mail
from racelab.engine.pool import PagePool
from racelab.engine.pull import NIC, Pulls
from racelab.engine.retraction import Retracting
from racelab.engine.retries import Retries
from racelab.engine.shares import Shares
from racelab.engine.slots import Slots
from racelab.engine.streams import Draft
from racelab.engine.tails import LOOKS_MAX, PARTS, Tails
from racelab.engine.transformer import Transformer
from racelab.engine.zero_fill import ZeroFill
from racelab.evidence.recorder import Recorder
from racelab.instances import named
from racelab.scenario import Lab
from racelab.transport.messages import Message
from racelab.transport.mooncake import Completion, Transport


class Decode(Retracting):
    """Single-threaded: every method runs on the instance's event loop."""

    def __init__(
        self,
        shape: Lab,
        recorder: Recorder,
        guards: Guards,
        pool: PagePool,
        model: Transformer,
        mail: Mail,
        clock: VirtualClock,
        segment: str,
        soon: Callable[[Callable[[], None]], None],
        glue: Glue = SOUND,
        transport: Transport | None = None,
        slots: Slots | None = None,
    ) -> None:
        self.ledger = glue.ledger(pool.pages, recorder, guards, clock, shape.drain_timeout_ms, self._admit)
        self.cache = glue.cache(self.ledger, guards, recorder, pool)
        self.work = LocalWork(recorder)
        self.registrations = LocalWork(recorder)
        """of transfers: done by a thread of their own, and no part of the stream"""
        self._zero_fill = ZeroFill(self.work, guards, pool)
        self._shares = Shares(pool, shape)
        self._tails = Tails(pool, guards, self._shares)
        self._slots = slots
        self._shape = shape
        self._recorder = recorder
        self._guards = guards
        self._pool = pool
        self._draft = Draft.of(pool)
        self._model = model
        self._mail = mail
        self._clock = clock
        self._segment = segment
        self._soon = soon
        self._requests: dict[str, Live] = {}
        self._attempts: dict[tuple[str, int], Live] = {}
        self._transfers: dict[str, Live] = {}
        """by transfer id, whose it is now; a request without one of its own goes by its name"""
        self._queue: list[Live] = []
        self._batch = Batch(recorder, shape.max_batch)
        self._growth = Growth(shape, recorder, self.cache, self._preempt)
        self._step_due = False
        self._retries = Retries(recorder, guards, self.ledger, mail, self._fill_again, self._begin_anew)
        self._pulls: Pulls | None = None
        if transport is not None:
            own = (shape, recorder, guards, pool, mail, clock, self.ledger, transport)
            self._pulls = Pulls(*own, self._enqueue, self._commit, self._fail)

    def greet(self) -> None:
        """Tell every prefill that this decode has taken another one's place."""
        for prefill in named("prefill", self._shape.prefills):
            self._mail.send("hello", prefill, NOBODY, 0)

    # -- admission

    def _admit(self) -> None:
        while self._queue and not self._growth.takes_first:
            request = self._queue[0]
            has_slot = self._slots is None or bool(self._slots.free)
            taken = has_slot and self.cache.take(request.keys, request.pages_needed, request.name, request.attempt)
            if not taken:
                self._recorder.record(
                    "queued", request.name, request.attempt, needs=request.pages_needed, free=len(self.ledger.free)
                )
                return
            self._queue.pop(0)
            request.tickets, request.hits = taken
            self._begin(request)

    def _begin(self, request: Live) -> None:
        """A request has its pages."""
        self._growth.holders.append(request)
        if self._slots is not None:
            self._slots.take(request)
        hits: dict[str, int] = {"hits": request.hits} if request.hits else {}
        shown = [[ticket.page, ticket.gen] for ticket in request.tickets]
        self._recorder.record("admitted", request.name, request.attempt, tickets=shown, **hits)
        if self._shape.zero_fill and self._zero_fill.must_wait(request):
            self.work.behind(lambda: self._ask(request))
        else:
            self._ask(request)

    def _ask(self, request: Live) -> None:
        """Register its transfer, and have its pages filled: not before that is done, if a guard says so."""
        if self._registers_late(request):
            self.registrations.behind(lambda: self._fill(request))
        else:
            self._fill(request)

    def _registers_late(self, request: Live) -> bool:
        """Make its transfer known to whoever takes news of it; whether it has to be before it is asked for."""
        about = (request.name, request.attempt)
        self.registrations.add("register", request.register, of=[about])
        if request.registered:
            return False
        question = SendUnregistered(*about, None, None, "sent", queued=self.registrations.waiting)
        return self._guards.refuse(question) is not None

    def _fill(self, request: Live) -> None:
        """Have those pages filled that do not hold the request's prompt yet."""
        if request.ended is not None:
            return
        granted = self._grant(request)
        self.cache.publish(request.tickets, request.keys, committed=False)
        if request.hits == granted:
            self._commit(request)
        elif request.pulled and self._pulls is not None:
            self._pulls.begin(request)
        else:
            self._reserve(request)

    def _grant(self, request: Live) -> int:
        """Grant the pages that are to be filled; the index of the first after them."""
        granted = -(-request.transferred // self._shape.page_tokens)
        filled = self._pulls.pages_of(request) if request.pulled and self._pulls is not None else granted
        for index in range(request.hits, filled):
            size_bytes = self._pool.valid_bytes(index, request.transferred)
            if not request.pulled:
                self._tails.mark(request.tickets[index], index, request.transferred)
            self.ledger.grant(request.tickets[index], NIC if request.pulled else request.prefill, size_bytes)
        return granted

    def _fill_again(self, request: Live) -> None:
        """The same, by another prefill."""
        self._grant(request)
        self._reserve(request)

    def _reserve(self, request: Live) -> None:
        granted = -(-request.transferred // self._shape.page_tokens)
        pages = [[ticket.page, ticket.gen] for ticket in request.tickets[request.hits : granted]]
        chunk_tokens = self._shape.chunk_tokens
        first_chunk = request.hits * self._shape.page_tokens // chunk_tokens
        chunks = range(first_chunk, -(-request.transferred // chunk_tokens))
        request.expect(chunks, self._shares)
        request.reserved = True
        limit_ms = self._shape.receive_timeout_ms
        request.watchdog = self._clock.after(limit_ms, lambda: self._waited(request, limit_ms))
        self._mail.send(
            "reserve",
            request.prefill,
            request.name,
            request.attempt,
            transfer=request.transfer,
            prompt=request.prompt,
            first_page=request.hits,
            pages=pages,
            segment=self._segment,
            regions=[self._pool.address(block) for block in range(len(self._pool.blocks))],
            **(self._slots.advertised(request) if self._slots is not None else {}),
        )

    # -- what prefill says

    def on_message(self, message: Message) -> None:
        """Handle one control message."""
        self._mail.received(message)
        if message.type == "hello":
            self._on_hello(message.sender)
            return
        if message.type == "claimed" and self._pulls is not None:
            self._pulls.on_message(message)
            return
        request = self._transfers.get(message.transfer or message.request)
        own = self._attempts.get((message.request, message.attempt))
        answers = message.type == "abort-ack"  # to what decode itself has sent
        if request is None or own is None or not (own.registered or answers):
            self._mail.ignored(message, "no such transfer here")
        elif message.type == "written":
            self._on_written(message, request)
        elif message.type == "failed":
            self._on_failed(message, request)
        elif answers:
            if message.body["clean"] and not self._tails.distrusts_end(message):
                self._close_grants(message, "acknowledged")
        else:
            self._mail.ignored(message, f"decode takes no {message.type}")

    def _on_hello(self, prefill: str) -> None:
        """Prefill has been replaced: it knows nothing of what was asked of its predecessor."""
        open_ones = (one for one in self._requests.values() if one.reserved and not one.committed and one.ended is None)
        waiting = [one for one in open_ones if one.prefill == prefill]
        for request in waiting:
            about = (request.name, request.attempt, None, None, SILENCE)
            limit_ms = self._shape.receive_timeout_ms
            if self._guards.refuse(KeepWaiting(*about, waited_ms=0, limit_ms=limit_ms, replaced=True)):
                self._fail(request, f"{prefill} has been replaced")

    def _on_written(self, message: Message, request: Live, looks: int = 0) -> None:
        assert message.chunk is not None
        ok = message.body["status"] == "ok"
        own = self._attempts[message.request, message.attempt]
        as_agreed = message.body["tokens"] == own.transferred  # else it ends elsewhere
        if ok and as_agreed and self._tails.distrusts(message):
            if looks < LOOKS_MAX:  # and look again
                later_ms = max(self._shape.drain_timeout_ms // PARTS, 1) << looks
                self._clock.after(later_ms, lambda: self._on_written(message, request, looks + 1))
            return
        handle = (message.chunk, self._shares.of(message))
        share = self._shares.all[handle[1]]
        handles = own.handles
        if handles.note(*handle, ok=ok):
            self._close_grants(message, "completions")
        elif not ok:
            self._hear_failure(message, handles)
        if self._refuses(message, request, "committed") or not request.reserved:
            return
        final = message.body.get("final", False)
        if share.is_companion:
            request.companions.note(handle, str(share.stream), ok=ok)
        else:
            request.note(handle, ok, final)
        whole = request.news_due <= 0 or final or request.has_the_last
        if not request.committed and (whole or not ok):
            self._conclude(request, message, whole)

    def _hear_failure(self, message: Message, handles: Handles) -> None:
        """One rank's writes failed: the end of the attempt's writes, if no guard minds."""
        about = (message.request, message.attempt, None, None, "grant-closed")
        if not self._guards.refuse(CloseOnFailure(*about, outstanding=handles.outstanding)):
            for ticket in self.ledger.granted_to(message.request, message.attempt):
                self.ledger.close(ticket, "failure-report", message.id)
            self._admit()

    def _on_failed(self, message: Message, request: Live) -> None:
        if self._refuses(message, request, "failed"):
            return
        if request.committed or request.ended is not None:
            self._mail.ignored(message, "its KV is committed" if request.committed else "it has ended")
        else:
            self._fail(request, f"prefill has ended it: {message.body['why']}", message.id)

    def _refuses(self, message: Message, request: Live, leads_to: str) -> bool:
        """Whether a guard has something against a message that is to change the request."""
        question = ApplyControl(
            *(message.request, message.attempt, None, None, leads_to),
            message=message.type,
            live_attempt=request.attempt,
            ended=request.ended is not None,
            live_request=request.name,
        )
        return self._guards.refuse(question) is not None

    def _conclude(self, request: Live, message: Message, whole: bool) -> None:
        """News of the last part, or of a failure: the KV is complete, or will never be, or is still to come."""
        tokens = message.body["tokens"]
        question = CommitTransfer(
            *(request.name, request.attempt, None, None, "committed"),
            failed=len(request.chunks_failed),
            missing=len(request.chunks_missing),
            tokens_written=tokens,
            tokens_reserved=request.transferred,
        )
        refused = self._guards.refuse(question)
        if refused is None:
            if whole and not request.companions.apart(request.name, request.attempt, self._guards):
                self._commit(request, message.id)
            elif whole and request.companions.failed:
                self._fail(request, "prefill reported a failed write", message.id)
        elif request.chunks_failed:
            self._fail(request, "prefill reported a failed write", message.id)
        elif tokens != request.transferred:
            self._fail(request, f"prefill transfers {tokens} of {request.transferred} tokens", message.id)

    def _waited(self, request: Live, limit_ms: int) -> None:
        """Nothing more is heard of a transfer for so long."""
        about = (request.name, request.attempt, None, None, SILENCE)
        if self._guards.refuse(KeepWaiting(*about, waited_ms=limit_ms, limit_ms=limit_ms)):
            self._fail(request, f"no word from prefill for {limit_ms:,} ms")

    def _close_grants(self, message: Message, evidence: str) -> None:
        for page, gen in message.body["pages"]:
            self.ledger.close(Ticket(page, gen, message.request, message.attempt), evidence, message.id)
        self._admit()

    def on_completion(self, completion: Completion) -> None:
        """Handle what the transport said of a batch of reads."""
        assert self._pulls is not None
        self._pulls.on_completion(completion)
        self._admit()

    # -- serving

    def _commit(self, request: Live, by: str | None = None) -> None:
        """Its KV is complete, by message `by` or by what the prefix cache has."""
        request.committed = True
        request.stop_watching()
        seen = self._fingerprints(request)
        self._recorder.record("committed", request.name, request.attempt, fingerprints=seen, by=by)
        self.cache.publish(request.tickets, request.keys, committed=True)
        if request.reserved and self._slots is not None:
            request.first_token = self._slots.first_token(request)
        if request.reserved:
            self._mail.send("complete", request.prefill, request.name, request.attempt, transfer=request.transfer)
        if request.pulled and self._pulls is not None:
            self._pulls.committed(request)
        self._batch.join(request)
        self._schedule()

    # -- the end of a request

    def _end(self, request: Live, kind: str, **data: Any) -> None:
        request.ended = kind
        request.stop_watching()
        if request.timer is not None:
            request.timer.cancel()
        self._recorder.record(kind, request.name, request.attempt, **data)
        if request in self._queue:
            self._queue.remove(request)
        waited = self._batch.leave(request)
        if request in self._growth.holders:
            self._growth.holders.remove(request)
        if request.reserved and not request.committed:
            question = SkipNotice(request.name, request.attempt, None, None, SILENCE, peer=request.prefill)
            if self._guards.refuse(question):
                about = (request.name, request.attempt)
                self._mail.send("abort", request.prefill, *about, transfer=request.transfer, why=kind)
        if request.pulled and self._pulls is not None:
            self._pulls.ended(request)
        forgotten = ForgetPages(request.name, request.attempt, None, None, SILENCE, where="waiting for a batch")
        if not waited or self._guards.refuse(forgotten):
            self.cache.release(request.tickets, kind)
        if self._slots is not None:
            self._slots.release(request)
        self._admit()

    # -- at rest

    @property
    def busy(self) -> bool:
        """Whether there is work that needs nothing from outside."""
        return self._step_due and not self.work.stopped

    def leftovers(self) -> dict[str, int]:
        """What must be zero when the instance is at rest."""
        return {
            "requests": sum(request.ended is None for request in self._requests.values()),
            "queued": len(self._queue),
            "running": self._batch.count,
            "grants": self.ledger.outstanding,
            "references": self.ledger.referenced,
            "local work": self.work.waiting + self.registrations.waiting,
            "slots": self._slots.taken if self._slots is not None else 0,
        }

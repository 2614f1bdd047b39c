"""The prefill instance: computes a prompt's KV chunk by chunk and writes it into decode's pages.

    reserve -> for each chunk: forward, post its pages' layers -> written per chunk when they complete
    abort   -> post no more; abort-ack once nothing is outstanding
    complete-> the source pages may go
    no word from decode -> the same, and decode is told

A request that is to be pulled comes from the client instead of by `reserve`, and is not posted
(racelab.engine.leases).

Source pages are on a ledger of their own: a posted write is a grant to the local NIC until its
completion, so a release during a transfer drains like on decode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from racelab.engine.clock import VirtualClock
from racelab.engine.guards import SILENCE, AcknowledgeAbort, Guards, KeepWaiting, PostChunk, PostUncomputed, SkipNotice
from racelab.engine.handles import Handle
from racelab.engine.job import Job
from racelab.engine.leases import Sources
from racelab.engine.ledger import Ledger
from racelab.engine.local_work import LocalWork
from racelab.engine.mail import NOBODY, Mail
from racelab.engine.pool import PagePool
from racelab.engine.rooms import Rooms
from racelab.engine.shares import Shares
from racelab.engine.slots import Metadata
from racelab.engine.streams import Draft
from racelab.engine.transformer import Transformer
from racelab.evidence.recorder import Recorder
from racelab.instances import mark_of, named
from racelab.scenario import Lab
from racelab.transport.lanes import WriteIdentity
from racelab.transport.messages import Message
from racelab.transport.mooncake import Completion, Transport, Write

NIC = "nic"


class Prefill:
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
        transport: Transport,
        soon: Callable[[Callable[[], None]], None],
        metadata: Metadata | None = None,
    ) -> None:
        self.ledger = Ledger(pool.pages, recorder, guards, clock, shape.drain_timeout_ms, self._admit)
        self.work = LocalWork(recorder)
        own = (shape, recorder, guards, pool, mail, clock, self.ledger, transport.segment)
        self.sources = Sources(*own, self._release)
        self._metadata = metadata
        self._shape = shape
        self._recorder = recorder
        self._guards = guards
        self._clock = clock
        self._pool = pool
        self._shares = Shares(pool, shape)
        self._draft = Draft.of(pool)
        self._model = model
        self._mail = mail
        self._transport = transport
        self._soon = soon
        self._rooms = Rooms(guards)
        self._waiting: list[Job] = []
        self._by_write: dict[str, Job] = {}
        self._writes = 0
        self._steps_due = 0

    def greet(self) -> None:
        """Tell every decode that this prefill has taken another one's place."""
        for decode in named("decode", self._shape.decodes):
            self._mail.send("hello", decode, NOBODY, 0)

    # -- clients and routers

    def submit(self, name: str, attempt: int, prompt: list[int], new_tokens: int, timeout_ms: int | None) -> None:
        """A client's request that decode will pull."""
        self._take_up(self.sources.submit(name, attempt, prompt, new_tokens, timeout_ms))

    def offer(self, name: str, attempt: int, prompt: list[int], transfer: str | None = None) -> None:
        """A router sends a request here as well as to decode, whose reserve says which pages to fill."""
        self._recorder.record("offered", name, attempt, prompt_tokens=len(prompt))
        why = self._rooms.closed(name, attempt, transfer)
        job = self._rooms.find(name, attempt, transfer)
        if job is None or not job.is_of(name, attempt):
            job = Job(name, attempt, transfer, prompt)
            self._rooms.enter(job)
        job.offered = True
        if why is not None:
            self._release(job, why)
        elif job.reserved:
            self._begin(job)
        else:
            limit_ms = self._shape.bootstrap_timeout_ms
            job.limit = self._clock.after(limit_ms, lambda: self._release(job, "no pages from decode in time"))

    def abort(self, name: str) -> None:
        """The router gives a request up here, or a client one whose reference it does not have yet; harmless if
        it has ended."""
        if self._shape.transfer == "pull":
            self.sources.abort(name)
            return
        given_up = [job for job in self._rooms if job.request == name and not job.released]
        for job in given_up:
            self._give_up(job, "aborted by the router")
        if not given_up:
            self._recorder.record("abort-ignored", name, None, why="nothing of it is under way here")

    # -- what arrives

    def on_message(self, message: Message) -> None:
        """Handle one control message."""
        self._mail.received(message)
        if self._shape.transfer == "pull" and self.sources.on_message(message):
            if message.type in ("complete", "release-source"):
                self._admit()  # what it acknowledges may have ended a drain, of an attempt that was over before
            return
        if message.type == "reserve":
            self._accept(message)
            return
        if message.type == "hello":
            self._on_hello(message.sender)
            return
        about = (message.request, message.attempt)
        job = self._rooms.find(*about, message.transfer)
        if message.type == "abort" and about in self._rooms.turned_down:  # whoever is in its room is another one
            body: dict[str, Any] = {"clean": True, "pages": self._rooms.turned_down.pop(about)}
            self._mail.send("abort-ack", message.sender, *about, transfer=message.transfer, **body)
        elif job is None:
            self._rooms.close(message.request, message.attempt, message.transfer, message.type)
            self._mail.ignored(message, "no such attempt here")
        elif message.type == "abort":
            self._abort(job, message.id)
        elif message.type == "complete":
            self._release(job, "complete", message.id)
        else:
            self._mail.ignored(message, f"prefill takes no {message.type}")

    def _on_hello(self, decode: str) -> None:
        """Decode has been replaced: it will never say that it is done with what its predecessor asked for."""
        for job in [job for job in self._rooms if job.reserved and job.decode == decode and not job.released]:
            about = (job.request, job.attempt, None, None, SILENCE)
            question = KeepWaiting(*about, waited_ms=0, limit_ms=self._shape.source_hold_ms, replaced=True)
            if self._guards.refuse(question):
                self._release(job, "decode has been replaced")

    def on_completion(self, completion: Completion) -> None:
        """Handle what the transport said of a batch; every batch is of one rank's share of one chunk of one attempt."""
        ok = completion.status == "ok"
        job = self._by_write[completion.writes[0].identity.write]
        handles = Counter((write.identity.chunk, self._shares.of(write.identity)) for write in completion.writes)
        for write in completion.writes:
            del self._by_write[write.identity.write]
            if write.source_page is not None:
                self._note_write_done(job, write.source_page, ok, completion.batch)
        for handle, count in handles.items():  # in the order in which they were posted
            job.outstanding[handle] -= count
            if not ok:
                job.failed.add(handle)
            if job.outstanding[handle] == 0:
                del job.outstanding[handle]
                self._tell_written(job, handle)
        if job.owes_ack and not job.outstanding:
            self._acknowledge(job)
        self._admit()

    def _note_write_done(self, job: Job, page: int, ok: bool, batch: str) -> None:
        """A source page is free of the NIC once the writes of all its blocks have succeeded."""
        if ok and job.outgoing.succeed(page, batch):
            self._close_source(job, page, batch)

    def _close_source(self, job: Job, page: int, batch: str) -> None:
        source = next(ticket for ticket in job.sources if ticket.page == page)
        self.ledger.close(source, "completions", batch)

    # -- one attempt

    def _accept(self, message: Message) -> None:
        job = self._rooms.find(message.request, message.attempt, message.transfer)
        bootstrapped = job is not None and job.is_of(message.request, message.attempt) and not job.released
        if job is not None and bootstrapped and job.reserved:
            self._mail.ignored(message, "it is being served")
            return
        refusal = None if bootstrapped else self._rooms.refusal(message)
        if refusal is not None:
            self._turn_down(message, refusal)
            return
        body = message.body
        if job is None or not bootstrapped:
            job = Job(message.request, message.attempt, message.transfer, body["prompt"])
            job.offered = not self._shape.router
            self._rooms.enter(job)
        job.reserved, job.decode = True, message.sender
        job.segment, job.regions = body["segment"], body["regions"]
        job.first_page, job.pages = body["first_page"], [(page, gen) for page, gen in body["pages"]]
        job.slot = tuple(body["slot"]) if "slot" in body else None
        if job.limit is not None:
            job.limit.cancel()
        hold_ms = self._shape.source_hold_ms
        job.limit = self._clock.after(hold_ms, lambda: self._waited(job, hold_ms))
        if job.offered:
            self._begin(job)

    def _turn_down(self, message: Message, why: str) -> None:
        """Answer a reserve for which nothing will be posted."""
        about = (message.request, message.attempt)
        closed = self._rooms.closed(*about, message.transfer)
        if closed == "abort":  # decode has asked before: nothing was posted, and nothing will be
            body: dict[str, Any] = {"clean": True, "pages": message.body["pages"]}
            self._mail.send("abort-ack", message.sender, *about, transfer=message.transfer, **body)
        else:
            self._rooms.turned_down[about] = message.body["pages"]
            self._mail.send("failed", message.sender, *about, transfer=message.transfer, why=why)

    def _begin(self, job: Job) -> None:
        """The request is here, and so are decode's pages."""
        job.hold_to(self._shape.prefill_token_limit)
        self._take_up(job)

    def _take_up(self, job: Job) -> None:
        """There is a prompt to compute."""
        self._rooms.enter(job)
        self._waiting.append(job)
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            job = self._waiting[0]
            computed = job.transferred + (job.slot is not None)  # for the first token, the last of the prompt too
            needs = -(-computed // self._shape.page_tokens)
            sources = self.ledger.take(needs, job.request, job.attempt)
            if sources is None:
                self._recorder.record("queued", job.request, job.attempt, needs=needs, free=len(self.ledger.free))
                return
            self._waiting.pop(0)
            job.sources = sources
            tickets = [[ticket.page, ticket.gen] for ticket in sources]
            self._recorder.record("accepted", job.request, job.attempt, prompt_tokens=len(job.prompt), tickets=tickets)
            self._schedule(job)

    def _schedule(self, job: Job) -> None:
        self._steps_due += 1
        self._soon(lambda: self._step(job))

    def _step(self, job: Job) -> None:
        """Have one chunk computed and post it; later chunks queue behind whatever else is due."""
        self._steps_due -= 1
        start = job.next_chunk * self._shape.chunk_tokens
        if job.released or start >= job.transferred:
            return
        end = min(start + self._shape.chunk_tokens, job.transferred)
        layers = self._layers(job, start, end)
        for stage in self._shares.stages:
            self._forward(job, start, end, stage, layers)
            self._send(job, job.next_chunk, start, end, stage)
        job.next_chunk += 1
        if end < job.transferred:
            self._schedule(job)
        elif job.pulled:
            self.work.behind(lambda: None if job.released else self.sources.pin(job))

    def _layers(self, job: Job, start: int, end: int) -> Iterator[object]:
        """Computes one layer after the other, of the model and of the draft model."""
        tokens, pages = job.prompt[start:end], job.source_pages
        layers = self._model.fill_by_layer(tokens, start, self._pool.cache, pages)
        return layers if self._draft is None else chain(layers, self._draft.fill_by_layer(tokens, start, pages))

    def _forward(self, job: Job, start: int, end: int, stage: list[int], layers: Iterator[object]) -> None:
        """The keys and values of one chunk, or of one layer of it, in the order of the stream."""
        pages = job.source_pages
        shares = [self._shares.all[number] for number in stage]
        blocks = {block for share in shares for block in share.blocks}
        layer = shares[0].layer
        first, last = start // self._shape.page_tokens, -(-end // self._shape.page_tokens)

        def computed() -> dict[str, object]:
            rows = self._pool.fingerprints(job.sources[:last], job.transferred)
            return {"fingerprints": [row for row in rows if row[0] in pages[first:last] and row[2] in blocks]}

        self.work.add(
            "forward",
            lambda: _advance(layers, by_one=layer is not None),
            of=[(job.request, job.attempt)],
            chunk=job.next_chunk,
            layer=layer,
            pages=pages[first:last],
            left_behind=computed,
        )

    def _send(self, job: Job, chunk: int, start: int, end: int, stage: list[int]) -> None:
        """Post a chunk; not before its forward has run, if a guard says so."""
        if self.work.stopped and self._guards.refuse(
            PostUncomputed(job.request, job.attempt, None, None, "posted", chunk=chunk)
        ):
            self.work.behind(lambda: None if job.released else self._post(job, chunk, start, end, stage))
        else:
            self._post(job, chunk, start, end, stage)

    def _post(self, job: Job, chunk: int, start: int, end: int, stage: list[int]) -> None:
        """Write a chunk's pages, or a layer of them, less those that decode has: they were computed for what follows
        them."""
        is_last = stage is self._shares.stages[-1]
        if is_last:
            job.posted_tokens = end
        first = max(start // self._shape.page_tokens, job.first_page)
        last = (end - 1) // self._shape.page_tokens
        if first > last:
            return
        places = range(first, last + 1)
        for index in places:
            page = job.sources[index].page
            if page not in job.outgoing:
                self.ledger.grant(job.sources[index], NIC, self._pool.valid_bytes(index, job.transferred))
                job.outgoing.begin(page, len(self._pool.blocks))
            job.outgoing.post(page, sum(len(self._shares.all[number].blocks) for number in stage))
        by_rank: dict[int | None, list[Write]] = {}
        for number in stage:
            share = self._shares.all[number]
            writes = [self._write(job, chunk, index, block) for index in places for block in share.blocks]
            job.outstanding[chunk, number] = len(writes)
            for write in writes:
                self._by_write[write.identity.write] = job
            by_rank.setdefault(share.rank, []).extend(writes)
        for writes in by_rank.values():  # all streams of a rank at once: unless a gate parts them they arrive together
            self._transport.post(job.segment, writes)
        if job.slot is not None and end == job.transferred and self._shares.of_metadata in stage:
            self._post_metadata(job, chunk)
        if job.aborted and not job.unposted:
            self._release(job, "abort")

    def _post_metadata(self, job: Job, chunk: int) -> None:
        """The first token, as a part of the last chunk."""
        assert self._metadata is not None
        write = self._metadata.write(job, chunk, self._next_write())
        job.outstanding[chunk, self._shares.of_metadata] += 1
        self._by_write[write.identity.write] = job
        self._transport.post(job.segment, [write])

    def _next_write(self) -> str:
        self._writes += 1
        return f"w{self._recorder.incarnation}-{self._writes}{mark_of(self._recorder.instance)}"

    def _write(self, job: Job, chunk: int, index: int, block: int) -> Write:
        size = self._pool.valid_bytes(index, job.transferred, block)
        page, gen = job.pages[index - job.first_page]
        source = job.sources[index].page
        identity = WriteIdentity(
            write=self._next_write(),
            request=job.request,
            attempt=job.attempt,
            chunk=chunk,
            page=page,
            gen=gen,
            address=job.regions[block] + page * self._pool.page_sizes[block],
            bytes=size,
            block=None if self._pool.is_plain else block,
            writer=self._recorder.instance if self._shape.prefills > 1 else None,
            **self._pool.share(block),
        )
        whole = self._pool.fingerprint(source, block, 0, size)
        return Write(
            identity,
            source_address=self._pool.place(block, source),
            source_page=source,
            fingerprint=whole,
            chunks=self._pool.seen.of(whole),
            to=job.decode if self._shape.decodes > 1 else None,
        )

    def _tell_written(self, job: Job, handle: Handle) -> None:
        chunk, share = handle
        count = self._shape.chunk_tokens // self._shape.page_tokens
        start = chunk * count - job.first_page
        body: dict[str, Any] = {"final": True} if job.placeholder else {}
        self._mail.send(
            "written",
            job.decode,
            job.request,
            job.attempt,
            chunk=chunk,
            **self._shares.all[share].names,
            transfer=job.transfer,
            notify=self._notifies(job) if handle not in job.failed else None,
            status="failed" if handle in job.failed else "ok",
            tokens=job.transferred,
            **body,
            pages=job.pages[max(start, 0) : min(start + count, len(job.sources) - job.first_page)],
        )

    def _notifies(self, job: Job) -> Callable[[Message], None] | None:
        """What tells decode of writes that have completed, if the transport does: it has no word for a failure."""
        if self._shape.news != "notify":
            return None
        page, _ = job.pages[0]
        address = job.regions[0] + page * self._pool.page_bytes
        return lambda message: self._transport.notices.tell(job.segment, address, message)

    def note_notices(self) -> None:
        """See which notifications the transport did not take."""
        for message, code in self._transport.notices.outcomes():
            if code != 0:
                self._mail.unsent(message, f"Mooncake's notification: code {code}")

    # -- the end of an attempt

    def _abort(self, job: Job, by: str) -> None:
        """Decode has given the attempt up: post no more, unless no guard minds, and say when nothing is under way."""
        job.aborted = True
        about = (job.request, job.attempt, None, None, "posted")
        if not job.unposted or self._guards.refuse(PostChunk(*about, aborted=True)):
            self._release(job, "abort", by)
        self._acknowledge(job)

    def _acknowledge(self, job: Job) -> None:
        """Say that nothing of an aborted attempt can land any more, now or when it is so; `clean` if every
        completion was a success."""
        outstanding, failed = sum(job.outstanding.values()), len(job.failed)
        about = (job.request, job.attempt, None, None, "page-free")
        refused = self._guards.refuse(AcknowledgeAbort(*about, outstanding=outstanding, failed=failed))
        job.owes_ack = refused is not None and outstanding > 0
        if not job.owes_ack:
            body: dict[str, Any] = {"clean": refused is None, "pages": job.pages}
            self._mail.send("abort-ack", job.decode, job.request, job.attempt, transfer=job.transfer, **body)

    def _waited(self, job: Job, limit_ms: int) -> None:
        """Decode has not said for so long that it is done with the attempt."""
        about = (job.request, job.attempt, None, None, SILENCE)
        if self._guards.refuse(KeepWaiting(*about, waited_ms=limit_ms, limit_ms=limit_ms)):
            self._give_up(job, f"no word from decode for {limit_ms:,} ms")

    def _give_up(self, job: Job, why: str) -> None:
        """The attempt ends here first. Decode is told if it is known which decode it is: its reserve says so."""
        self._release(job, why)
        question = SkipNotice(job.request, job.attempt, None, None, SILENCE, peer=job.decode)
        if job.reserved and self._guards.refuse(question):
            self._mail.send("failed", job.decode, job.request, job.attempt, transfer=job.transfer, why=why)

    def _release(self, job: Job, why: str, by: str | None = None) -> None:
        """The attempt is over, on the word of message `by` if there is one: its source pages may go."""
        if job.released:
            return
        job.over = why
        if job.limit is not None:
            job.limit.cancel()
        if job in self._waiting:
            self._waiting.remove(job)
        self._recorder.record("attempt-ended", job.request, job.attempt, why=why, by=by)
        for page, batch in job.outgoing.stop().items():
            self._close_source(job, page, batch)
        for source in job.sources:
            self.ledger.release(source, why)
        self._admit()

    # -- at rest

    @property
    def busy(self) -> bool:
        """Whether there is work that needs nothing from outside."""
        return self._steps_due > 0

    def leftovers(self) -> dict[str, int]:
        """What must be zero when the instance is at rest."""
        return {
            "requests": sum(not job.released for job in self._rooms),
            "queued": len(self._waiting),
            "writes": self._transport.outstanding,
            "local work": self.work.waiting,
            "grants": self.ledger.outstanding,
        }


def _advance(layers: Iterator[object], *, by_one: bool) -> None:
    """Compute the next layer, or all of them."""
    for _ in layers:
        if by_one:
            return

"""Decode's side of a pull: it presents a reference, reads the source pages into its own, and says when it is done.

arrive  -> claim -> claimed: queue for pages, and renew the lease at half of it until the reads are over
begin   -> one read a page's layer, or each rank's share of it, posted with the page granted to the local NIC
all completed -> commit -> complete: the source may go
the request ends before that -> release-source, once no read is outstanding
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from racelab.engine.clock import Timer, VirtualClock
from racelab.engine.guards import SILENCE, CloseOnFailure, CommitTransfer, Guards, LetLeaseLapse, SkipNotice
from racelab.engine.ledger import Ledger
from racelab.engine.live import Live
from racelab.engine.mail import Mail
from racelab.engine.pool import PagePool
from racelab.engine.reference import Reference
from racelab.evidence.recorder import Recorder
from racelab.instances import mark_of
from racelab.scenario import Lab
from racelab.transport.lanes import WriteIdentity
from racelab.transport.messages import Message
from racelab.transport.mooncake import Completion, Transport, Write

NIC = "nic"


@dataclass
class Pull:
    """One attempt's reference and what is under way for it."""

    live: Live
    reference: Reference
    segment: str = ""
    regions: list[int] = field(default_factory=list)
    claimed: bool = False
    outstanding: int = 0
    unfinished: dict[int, int] = field(default_factory=dict)
    """reads without a successful completion, by page"""
    failed: bool = False
    over: bool = False
    stale: bool = False
    renewal: Timer | None = None


class Pulls:
    """The pulled attempts of one decode instance; `queue`, `commit` and `fail` are decode's own next steps."""

    def __init__(
        self,
        shape: Lab,
        recorder: Recorder,
        guards: Guards,
        pool: PagePool,
        mail: Mail,
        clock: VirtualClock,
        ledger: Ledger,
        transport: Transport,
        queue: Callable[[Live], None],
        commit: Callable[[Live], None],
        fail: Callable[[Live, str], None],
    ) -> None:
        self._shape = shape
        self._recorder = recorder
        self._guards = guards
        self._pool = pool
        self._mail = mail
        self._clock = clock
        self._ledger = ledger
        self._transport = transport
        self._queue = queue
        self._commit = commit
        self._fail = fail
        self._pulls: dict[tuple[str, int], Pull] = {}
        self._by_read: dict[str, Pull] = {}
        self._reads = 0

    # -- the right to read

    def arrive(self, live: Live, reference: Reference) -> None:
        """A request has come with a reference: claim what it names."""
        pull = Pull(live, reference)
        self._pulls[live.name, live.attempt] = pull
        self._send("claim", pull, pages=[list(ticket) for ticket in reference.pages])

    def on_message(self, message: Message) -> None:
        """Prefill answers a claim."""
        pull = self._pulls[message.request, message.attempt]
        if pull.live.ended is not None:
            self._mail.ignored(message, "the attempt has ended")  # prefill has been told, or is told by its lease
        elif message.body["status"] != "ok":
            pull.stale = True
            self._fail(pull.live, "the reference is stale")
        else:
            pull.claimed = True
            pull.segment, pull.regions = message.body["segment"], message.body["regions"]
            self._renew_in_time(pull)
            self._queue(pull.live)

    def _renew_in_time(self, pull: Pull) -> None:
        pull.renewal = self._clock.after(self._shape.lease_ms // 2, lambda: self._renew(pull))

    def _renew(self, pull: Pull) -> None:
        question = LetLeaseLapse(pull.live.name, pull.live.attempt, None, None, "lease-expired")
        if self._guards.refuse(question):
            self._send("renew", pull)
            self._renew_in_time(pull)

    # -- reads

    def begin(self, live: Live) -> None:
        """The request has its pages, granted to the local NIC: read into those that the cache did not have."""
        pull = self._of(live)
        last = self.pages_of(live)
        blocks = range(len(self._pool.blocks))
        pull.unfinished = {ticket.page: len(blocks) for ticket in live.tickets[live.hits : last]}
        pull.outstanding = len(pull.unfinished) * len(blocks)
        for rank in range(self._pool.ranks):  # each reads its own share
            share = blocks[rank :: self._pool.ranks]
            reads = [self._read(pull, index, block) for index in range(live.hits, last) for block in share]
            for read in reads:
                self._by_read[read.identity.write] = pull
            if reads:
                self._transport.post(pull.segment, reads)
        if not pull.outstanding:
            self._conclude(pull)

    def pages_of(self, live: Live) -> int:
        """As many of its pages as its reference has the KV of."""
        tokens = min(live.transferred, self._of(live).reference.tokens)
        return -(-tokens // self._shape.page_tokens)

    def _conclude(self, pull: Pull) -> None:
        """Everything that the reference names was read."""
        live, tokens = pull.live, pull.reference.tokens
        question = CommitTransfer(
            *(live.name, live.attempt, None, None, "committed"),
            failed=0,
            missing=0,
            tokens_written=tokens,
            tokens_reserved=live.transferred,
        )
        if self._guards.refuse(question):
            self._fail(live, f"the reference is of {tokens} of {live.transferred} tokens")
        else:
            self._commit(live)

    def _read(self, pull: Pull, index: int, block: int) -> Write:
        self._reads += 1
        live = pull.live
        ticket = live.tickets[index]
        source_page, source_gen = pull.reference.pages[index]
        address = self._pool.place(block, ticket.page)
        identity = WriteIdentity(
            write=f"d{self._recorder.incarnation}-{self._reads}{mark_of(self._recorder.instance)}",
            request=live.name,
            attempt=live.attempt,
            chunk=index * self._shape.page_tokens // self._shape.chunk_tokens,
            block=None if self._pool.is_plain else block,
            **self._pool.share(block),
            page=ticket.page,
            gen=ticket.gen,
            address=address,
            bytes=self._pool.valid_bytes(index, min(live.transferred, pull.reference.tokens), block),
            op="read",
            writer=self._recorder.instance if self._shape.decodes > 1 else None,
            source=pull.regions[block] + source_page * self._pool.page_sizes[block],
        )
        return Write(
            identity,
            source_address=address,
            source_page=source_page,
            fingerprint=pull.reference.fingerprints[index][block],
            chunks=pull.reference.chunks[index][block] or None,
            source_gen=source_gen,
            reads_from=pull.reference.instance,
        )

    def on_completion(self, completion: Completion) -> None:
        """What the transport said of a batch of reads, all of one attempt."""
        pull = self._by_read[completion.writes[0].identity.write]
        ok = completion.status == "ok"
        pull.failed = pull.failed or not ok
        pull.outstanding -= len(completion.writes)
        for read in completion.writes:
            del self._by_read[read.identity.write]
            if ok and read.identity.page is not None:
                self._arrived(pull, read.identity.page, completion.batch)
        live = pull.live
        if not ok and pull.outstanding and self._pool.ranks > 1:
            self._hear_failure(pull, completion.batch)
        if live.ended is not None:
            self._say_when_over(pull)
        elif pull.failed:
            self._fail(live, "a read failed")
        elif not pull.outstanding:
            self._conclude(pull)

    def _hear_failure(self, pull: Pull, batch: str) -> None:
        """A rank's reads failed, and others' are under way: the end of all, if no guard minds."""
        about = (pull.live.name, pull.live.attempt)
        if not self._guards.refuse(CloseOnFailure(*about, None, None, "grant-closed", outstanding=pull.outstanding)):
            for ticket in self._ledger.granted_to(*about):
                self._ledger.close(ticket, "failure-report", batch)

    def _arrived(self, pull: Pull, page: int, batch: str) -> None:
        pull.unfinished[page] -= 1
        if pull.unfinished[page] == 0:
            ticket = next(ticket for ticket in pull.live.tickets if ticket.page == page)
            self._ledger.close(ticket, "completions", batch)

    # -- the end

    def committed(self, live: Live) -> None:
        """Everything was read and is committed: the source may go."""
        pull = self._of(live)
        self._close(pull)
        self._send("complete", pull)

    def ended(self, live: Live) -> None:
        """The request is over; if that is before its commit, prefill hears that nobody will read any more."""
        pull = self._of(live)
        if not pull.over:
            self._close(pull)
            self._say_when_over(pull)

    def _of(self, live: Live) -> Pull:
        return self._pulls[live.name, live.attempt]

    def _close(self, pull: Pull) -> None:
        pull.over = True
        if pull.renewal is not None:
            pull.renewal.cancel()

    def _say_when_over(self, pull: Pull) -> None:
        if pull.outstanding or pull.stale:
            return
        peer = pull.reference.instance
        if self._guards.refuse(SkipNotice(pull.live.name, pull.live.attempt, None, None, SILENCE, peer=peer)):
            self._send("release-source", pull, clean=not pull.failed)

    def _send(self, type: str, pull: Pull, **body: Any) -> None:
        owner: dict[str, Any] = {"made_for": pull.reference.request, "made_for_attempt": pull.reference.attempt}
        self._mail.send(type, pull.reference.instance, pull.live.name, pull.live.attempt, **owner, **body)

    @property
    def outstanding(self) -> int:
        """Reads without a completion."""
        return len(self._by_read)

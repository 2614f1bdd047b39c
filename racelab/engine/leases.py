"""Prefill's side of a pull: source pages that wait, pinned under a lease, to be read by decode.

submit   -> computed like any attempt -> referenced: the client gets a reference, and the lease begins
claim    -> claimed: the reader may read from now on (a grant), or its reference is stale
renew    -> the lease begins anew
complete -> everything was read: the grant is over, the pages may go
release-source -> the reader reads no more; `clean` if every read that it posted succeeded
the lease ends  -> the pages are released, and drain if somebody may still read them
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from racelab.engine.clock import Timer, VirtualClock
from racelab.engine.guards import Guards, HonourClaim, Ticket
from racelab.engine.job import Job
from racelab.engine.ledger import Ledger
from racelab.engine.mail import Mail
from racelab.engine.pool import PagePool
from racelab.engine.reference import Reference
from racelab.evidence.recorder import Recorder
from racelab.scenario import Lab
from racelab.transport.messages import Message

Attempt = tuple[str, int]


class Sources:
    """The pulled attempts of one prefill instance. `release` ends an attempt and gives its pages back."""

    def __init__(
        self,
        shape: Lab,
        recorder: Recorder,
        guards: Guards,
        pool: PagePool,
        mail: Mail,
        clock: VirtualClock,
        ledger: Ledger,
        segment: str,
        release: Callable[[Job, str], None],
    ) -> None:
        self._shape = shape
        self._recorder = recorder
        self._guards = guards
        self._pool = pool
        self._mail = mail
        self._clock = clock
        self._ledger = ledger
        self._segment = segment
        self._release = release
        self._jobs: dict[Attempt, Job] = {}
        self._timers: dict[Attempt, Timer] = {}
        """the client's patience before the reference, the lease after it"""
        self._granted: set[Ticket] = set()

    # -- the client

    def submit(self, name: str, attempt: int, prompt: list[int], new_tokens: int, timeout_ms: int | None = None) -> Job:
        """A request arrives to be computed and pulled."""
        job = Job(name, attempt, None, prompt, pulled=True)
        job.hold_to(self._shape.prefill_token_limit)
        job.first_page = -(-job.transferred // self._shape.page_tokens)  # nothing of it is posted
        job.submitted_ms = self._clock.now_ms
        self._jobs[name, attempt] = job
        self._recorder.record("submitted", name, attempt, prompt_tokens=len(prompt), new_tokens=new_tokens)
        patience_ms = timeout_ms or self._shape.request_timeout_ms
        if patience_ms is not None:
            self._start(job, patience_ms, lambda: self._give_up(job, "timed-out", waited_ms=patience_ms))
        return job

    def abort(self, name: str) -> None:
        """The client gives up before it has its reference. After that its request is decode's, and nothing here ends
        but by the lease or on decode's word."""
        job = next((job for job in reversed(self._jobs.values()) if job.request == name), None)
        if job is None:
            self._recorder.record("abort-ignored", name, None, why="no such request here")
        elif job.released or job.referenced:
            why = "it is over here" if job.released else "its client has the reference: it is for decode to end it"
            self._recorder.record("abort-ignored", name, job.attempt, why=why)
        else:
            self._give_up(job, "aborted")

    def _give_up(self, job: Job, kind: str, **data: int) -> None:
        self._recorder.record(kind, job.request, job.attempt, **data)
        self._end(job, kind)

    # -- the lease

    def pin(self, job: Job) -> None:
        """The whole prompt is computed: hand out the reference, and begin the lease."""
        job.referenced = True
        rows = self._pool.fingerprints(job.sources, job.transferred)
        blocks = len(self._pool.blocks)
        seen = [str(row[5]) for row in rows]
        chunks = [self._pool.seen.of(one) or "" for one in seen]
        reference = Reference(
            request=job.request,
            attempt=job.attempt,
            instance=self._recorder.instance,
            pages=[(ticket.page, ticket.gen) for ticket in job.sources],
            fingerprints=[seen[index : index + blocks] for index in range(0, len(rows), blocks)],
            chunks=[chunks[index : index + blocks] for index in range(0, len(rows), blocks)],
            submitted_ms=job.submitted_ms,
            tokens=job.transferred,
        )
        self._recorder.record("referenced", job.request, job.attempt, reference=msgspec.to_builtins(reference))
        self._begin_lease(job)

    def _begin_lease(self, job: Job) -> None:
        self._start(job, self._shape.lease_ms, lambda: self._lapse(job))

    def _start(self, job: Job, delay_ms: int, fire: Callable[[], None]) -> None:
        self._stop(job)
        self._timers[job.request, job.attempt] = self._clock.after(delay_ms, fire)

    def _stop(self, job: Job) -> None:
        timer = self._timers.pop((job.request, job.attempt), None)
        if timer is not None:
            timer.cancel()

    def _lapse(self, job: Job) -> None:
        self._recorder.record("lease-expired", job.request, job.attempt, lease_ms=self._shape.lease_ms)
        self._end(job, "lease expired")

    def _end(self, job: Job, why: str) -> None:
        self._stop(job)
        self._release(job, why)

    # -- the reader

    def on_message(self, message: Message) -> bool:
        """Handle a message about a pull; False if it is about something else."""
        if message.type not in ("claim", "renew", "complete", "release-source"):
            return False
        owner: Attempt = (message.body["made_for"], message.body["made_for_attempt"])
        job = self._jobs.get(owner)
        if message.type == "claim":
            self._claim(message, owner, job)
        elif job is None or (message.request, message.attempt) not in (owner, *job.readers):
            self._mail.ignored(message, "it may not read the pages of such an attempt")
        elif message.type == "renew":
            self._renew(message, job)
        else:
            self._acknowledged(message, job)
        return True

    def _claim(self, message: Message, owner: Attempt, job: Job | None) -> None:
        tickets = [Ticket(page, gen, *owner) for page, gen in message.body["pages"]]
        pinned = [ticket for ticket in tickets if job is not None and not job.released and ticket in job.sources]
        ended = tuple((ticket.page, ticket.gen) for ticket in tickets if ticket not in pinned)
        question = HonourClaim(message.request, message.attempt, None, None, "posted", made_for=owner, ended=ended)
        if self._guards.refuse(question):
            self._mail.send("claimed", message.sender, message.request, message.attempt, status="stale")
            return
        for index, ticket in enumerate(tickets):
            if ticket in pinned and ticket not in self._granted:
                self._granted.add(ticket)
                self._ledger.grant(ticket, message.sender, self._pool.valid_bytes(index, job.transferred if job else 0))
        if job is not None and not job.released:
            job.readers.add((message.request, message.attempt))
            self._begin_lease(job)
        regions = [self._pool.address(block) for block in range(len(self._pool.blocks))]
        self._mail.send(
            "claimed",
            message.sender,
            message.request,
            message.attempt,
            status="ok",
            segment=self._segment,
            regions=regions,
        )

    def _renew(self, message: Message, job: Job) -> None:
        if job.released:
            self._mail.ignored(message, "the lease is over")
        else:
            self._begin_lease(job)

    def _acknowledged(self, message: Message, job: Job) -> None:
        """The reader posts no more reads, and those that it posted are over."""
        if message.body.get("clean", True):
            for source in job.sources:
                if source in self._granted:
                    self._granted.discard(source)
                    self._ledger.close(source, "acknowledged", message.id)
        self._end(job, message.type)

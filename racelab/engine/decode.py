"""The decode instance: owns the pages that prefill writes into, and answers the client.

    submit  -> pages, grants, reserve to prefill (or queued until pages are free)
    written -> stop evidence for the chunk's grants; when all chunks are there: committed
    committed -> one token at a time over the pages: read, finished
    time-out / abort -> the request ends now; its pages go the way that the guards allow

What each event means for a page is the ledger's business, whether it may happen the guards'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from racelab.engine.clock import Timer, VirtualClock
from racelab.engine.guards import ApplyControl, Guards, Ticket
from racelab.engine.ledger import Ledger
from racelab.engine.mail import Mail
from racelab.engine.pool import PagePool
from racelab.engine.transformer import Transformer
from racelab.evidence.recorder import Recorder
from racelab.scenario import Lab
from racelab.transport.messages import Message

PREFILL = "prefill"

Fingerprint = list[int | str]
"""[page, gen, layer, start, end, hex]"""


@dataclass
class Live:
    """One attempt of one request, from its arrival on."""

    name: str
    attempt: int
    prompt: list[int]
    new_tokens: int
    pages_needed: int
    timer: Timer
    submitted_ms: int
    tickets: list[Ticket] = field(default_factory=list)
    granted: int = 0
    chunks_missing: set[int] = field(default_factory=set)
    tokens: list[int] = field(default_factory=list)
    committed: bool = False
    ended: str | None = None
    last_read: list[Fingerprint] = field(default_factory=list)


class Decode:
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
    ) -> None:
        self.ledger = Ledger(pool.pages, recorder, guards, clock, shape.drain_timeout_ms, self._admit)
        self._shape = shape
        self._recorder = recorder
        self._guards = guards
        self._pool = pool
        self._model = model
        self._mail = mail
        self._clock = clock
        self._segment = segment
        self._soon = soon
        self._requests: dict[str, Live] = {}
        self._queue: list[Live] = []
        self._running: list[Live] = []
        self._step_due = False

    # -- the client

    def submit(self, name: str, prompt: list[int], new_tokens: int) -> int:
        """A request arrives; returns its attempt, counted from 1 for each name."""
        previous = self._requests.get(name)
        if previous is not None and previous.ended is None:
            raise ValueError(f"{name} is already being served")
        attempt = previous.attempt + 1 if previous else 1
        request = Live(
            name,
            attempt,
            prompt,
            new_tokens,
            pages_needed=-(-(len(prompt) + new_tokens) // self._shape.page_tokens),
            timer=self._clock.after(self._shape.request_timeout_ms, lambda: self._time_out(request)),
            submitted_ms=self._clock.now_ms,
        )
        self._requests[name] = request
        self._recorder.record("submitted", name, attempt, prompt_tokens=len(prompt), new_tokens=new_tokens)
        self._queue.append(request)
        self._admit()
        return attempt

    def abort(self, name: str) -> None:
        """The client gives up; harmless if the request has ended."""
        request = self._requests[name]
        if request.ended is None:
            self._end(request, "aborted")

    def _time_out(self, request: Live) -> None:
        if request.ended is None:
            self._end(request, "timed-out", waited_ms=self._clock.now_ms - request.submitted_ms)

    # -- admission

    def _admit(self) -> None:
        while self._queue:
            request = self._queue[0]
            tickets = self.ledger.take(request.pages_needed, request.name, request.attempt)
            if tickets is None:
                self._recorder.record(
                    "queued", request.name, request.attempt, needs=request.pages_needed, free=len(self.ledger.free)
                )
                return
            self._queue.pop(0)
            request.tickets = tickets
            self._reserve(request)

    def _reserve(self, request: Live) -> None:
        transferred = len(request.prompt) - 1
        request.granted = -(-transferred // self._shape.page_tokens)
        request.chunks_missing = set(range(-(-transferred // self._shape.chunk_tokens)))
        shown = [[ticket.page, ticket.gen] for ticket in request.tickets]
        self._recorder.record("admitted", request.name, request.attempt, tickets=shown)
        for index, ticket in enumerate(request.tickets[: request.granted]):
            self.ledger.grant(ticket, PREFILL, self._pool.valid_bytes(index, transferred))
        self._mail.send(
            "reserve",
            PREFILL,
            request.name,
            request.attempt,
            prompt=request.prompt,
            pages=shown[: request.granted],
            segment=self._segment,
            regions=[self._pool.address(layer) for layer in range(self._pool.layers)],
        )

    # -- what prefill says

    def on_message(self, message: Message) -> None:
        """Handle one control message."""
        self._mail.received(message)
        if message.type == "written":
            self._on_written(message)
        elif message.type == "abort-ack":
            if message.body["clean"]:
                self._close_grants(message, "acknowledged")
        else:
            self._mail.ignored(message, f"decode takes no {message.type}")

    def _on_written(self, message: Message) -> None:
        ok = message.body["status"] == "ok"
        if ok:
            self._close_grants(message, "completions")
        request = self._requests[message.request]
        question = ApplyControl(
            message.request,
            message.attempt,
            None,
            None,
            "committed",
            message="written",
            live_attempt=request.attempt,
            ended=request.ended is not None,
        )
        if self._guards.refuse(question):
            return
        if not ok:
            self._end(request, "failed", why="prefill reported a failed write")
            return
        assert message.chunk is not None
        request.chunks_missing.discard(message.chunk)
        if not request.chunks_missing and not request.committed:
            self._commit(request)

    def _close_grants(self, message: Message, evidence: str) -> None:
        for page, gen in message.body["pages"]:
            self.ledger.close(Ticket(page, gen, message.request, message.attempt), evidence, message.id)
        self._admit()

    # -- serving

    def _commit(self, request: Live) -> None:
        request.committed = True
        self._recorder.record("committed", request.name, request.attempt, fingerprints=self._fingerprints(request))
        self._mail.send("complete", PREFILL, request.name, request.attempt)
        self._running.append(request)
        self._schedule()

    def _schedule(self) -> None:
        if not self._step_due:
            self._step_due = True
            self._soon(self._step)

    def _step(self) -> None:
        """One token for every running request."""
        self._step_due = False
        for request in list(self._running):
            self._generate(request)
        if self._running:
            self._schedule()

    def _generate(self, request: Live) -> None:
        index = len(request.tokens)
        self._note_read(request, index)
        token = request.tokens[-1] if request.tokens else request.prompt[-1]
        pages = [ticket.page for ticket in request.tickets]
        logits = self._model.forward([token], len(request.prompt) - 1 + index, self._pool.kv, pages)
        request.tokens.append(int(logits.argmax()))
        if len(request.tokens) == request.new_tokens:
            self._end(request, "finished", tokens=request.tokens)

    def _note_read(self, request: Live, index: int) -> None:
        """Record what attention reads: at the first token, at the last, and whenever it changed."""
        seen = self._fingerprints(request)
        if seen != request.last_read or index == request.new_tokens - 1:
            request.last_read = seen
            self._recorder.record("read", request.name, request.attempt, token=index, fingerprints=seen)

    def _fingerprints(self, request: Live) -> list[Fingerprint]:
        """Of the prompt's valid bytes in every page and layer; the tail is decode's to append."""
        transferred = len(request.prompt) - 1
        return [
            [ticket.page, ticket.gen, layer, 0, size, self._pool.fingerprint(ticket.page, layer, 0, size)]
            for index, ticket in enumerate(request.tickets[: request.granted])
            for size in [self._pool.valid_bytes(index, transferred)]
            for layer in range(self._pool.layers)
        ]

    # -- the end of a request

    def _end(self, request: Live, kind: str, **data: Any) -> None:
        request.ended = kind
        request.timer.cancel()
        self._recorder.record(kind, request.name, request.attempt, **data)
        if request in self._queue:
            self._queue.remove(request)
        if request in self._running:
            self._running.remove(request)
        if request.tickets and not request.committed:
            self._mail.send("abort", PREFILL, request.name, request.attempt, why=kind)
        for ticket in request.tickets:
            self.ledger.release(ticket, kind)
        self._admit()

    # -- at rest

    @property
    def busy(self) -> bool:
        """Whether there is work that needs nothing from outside."""
        return self._step_due

    def leftovers(self) -> dict[str, int]:
        """What must be zero when the instance is at rest."""
        return {
            "requests": sum(request.ended is None for request in self._requests.values()),
            "queued": len(self._queue),
            "running": len(self._running),
            "grants": self.ledger.outstanding,
        }

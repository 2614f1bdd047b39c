"""How decode answers: one token at a time for every running request, over the pages that it has committed.

The base of `Decode`, whose books it uses; what it read is recorded at the first token, at the last, and whenever it
has changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from racelab.engine.batch import Batch
from racelab.engine.growth import Growth
from racelab.engine.live import Live
from racelab.engine.local_work import LocalWork
from racelab.engine.pool import Fingerprint, PagePool
from racelab.engine.streams import Draft
from racelab.engine.transformer import Transformer
from racelab.evidence.fingerprint import fingerprint
from racelab.evidence.recorder import Recorder
from racelab.scenario import Lab

TOKENS_READ_IN_FULL = 4
"""Up to here a request looks at all its pages at every token, as it does at its last one."""


class Answering(ABC):
    """One step of everybody is one piece of local work."""

    work: LocalWork
    _pool: PagePool
    _draft: Draft | None
    _model: Transformer
    _recorder: Recorder
    _soon: Callable[[Callable[[], None]], None]
    _shape: Lab
    _batch: Batch
    _growth: Growth
    _step_due: bool

    @abstractmethod
    def _admit(self) -> None:
        """Give pages to whoever waits for them."""

    @abstractmethod
    def _end(self, request: Live, kind: str, **data: Any) -> None:
        """The request is over."""

    def _schedule(self) -> None:
        if not self._step_due:
            self._step_due = True
            self._soon(self._queue_step)

    def _queue_step(self) -> None:
        """A step is the last thing on the stream: it sees what was done before. Who is in it is settled now, if
        batches have a size."""
        self._batch.close()
        running = [(request.name, request.attempt) for request in self._batch.running]
        if running:
            self.work.add("forward", self._step, of=running)
        else:
            self._step()

    def _step(self) -> None:
        """One token for every running request that has room for it."""
        self._step_due = False
        if self._shape.preemption:
            self._growth.make_room(self._batch.running)
            self._admit()
        running = list(self._batch.running)
        looks = self._look(running)
        for request, look in zip(running, looks, strict=True):
            self._generate(request, look)
        if self._batch.due:
            self._schedule()

    def _generate(self, request: Live, look: bool) -> None:
        index = len(request.tokens)
        if look:
            self._note_read(request, index)
        token = request.tokens[-1] if request.tokens else request.prompt[-1]
        pages = [ticket.page for ticket in request.tickets]
        position = len(request.prompt) - 1 + index
        if self._draft is not None:
            request.drafted.append(self._draft.propose(token, position, pages))
        logits = self._model.forward([token], position, self._pool.cache, pages)
        token = int(logits.argmax())
        if index == 0 and request.first_token is not None:
            token = request.first_token
        request.tokens.append(token)
        drafted = {"drafted": request.drafted} if request.drafted else {}
        if len(request.tokens) == request.new_tokens:
            self._end(request, "finished", tokens=request.answered + request.tokens, **drafted)
        elif token == request.stop_token:
            if not look:
                self._note_read(request, index, last=True)
            self._end(request, "finished", tokens=request.answered + request.tokens, stopped=True, **drafted)

    def _look(self, running: list[Live]) -> list[bool]:
        """Who looks at all that it reads for this token. Asked for all together: each alone finds cold caches."""
        return [self._looks_at_all(request) for request in running]

    def _looks_at_all(self, request: Live) -> bool:
        """Whether a request looks at all that it reads for this token. If not it has looked at one piece of a page,
        in turn, and found it as before: what that costs does not grow with the context."""
        index, pieces = len(request.tokens), request.pieces
        if not pieces or index == request.new_tokens - 1:
            return True
        piece, seen = pieces[index % len(pieces)]
        return fingerprint(piece) != seen

    def _note_read(self, request: Live, index: int, *, last: bool = False) -> None:
        """Record what attention reads: at the first token, at the last, and whenever it changed."""
        if TOKENS_READ_IN_FULL - 1 <= index < request.new_tokens - 1:
            # before everything: what changes in between differs from its piece when that has its turn
            request.pieces = self._pool.pieces(request.tickets, request.transferred)
        seen = self._fingerprints(request)
        if seen != request.last_read or last or index == request.new_tokens - 1:
            request.last_read = seen
            self._recorder.record("read", request.name, request.attempt, token=index, fingerprints=seen)

    def _fingerprints(self, request: Live) -> list[Fingerprint]:
        return self._pool.fingerprints(request.tickets, request.transferred)

"""How requests come to decode: from a client, from a router that wants another prefill, or by themselves, once more.

The part of `Decode` between its answering and its transfers: each attempt is known by name, number and transfer id,
and waits for pages in a queue.
"""

from __future__ import annotations

from typing import Any

from racelab.engine.answering import Answering
from racelab.engine.clock import VirtualClock
from racelab.engine.guards import Guards, RegisterTransfer
from racelab.engine.live import Live
from racelab.engine.prefix_cache import content_keys
from racelab.engine.pull import Pulls
from racelab.engine.reference import Reference
from racelab.engine.retries import Retries

PREFILL = "prefill"


class Arrivals(Answering):
    """Its books are those of `Decode`."""

    _clock: VirtualClock
    _guards: Guards
    _requests: dict[str, Live]
    _attempts: dict[tuple[str, int], Live]
    _transfers: dict[str, Live]
    _queue: list[Live]
    _pulls: Pulls | None
    _retries: Retries

    def submit(
        self,
        name: str,
        prompt: list[int],
        new_tokens: int,
        timeout_ms: int | None = None,
        stop_token: int | None = None,
        attempt: int | None = None,
        reference: Reference | None = None,
        transfer: str | None = None,
        prefill: str = PREFILL,
    ) -> int:
        """A request arrives; returns its attempt, counted from 1 for each name unless the client counts.
        `timeout_ms` is its own time-out, `transfer` an id that the client chose for the transfer, `prefill` who is
        to fill its pages.

        With a `reference` its KV is pulled; one that was made for this `attempt` says when the client submitted it.
        """
        previous = self._requests.get(name)
        if previous is not None and previous.ended is None:
            raise ValueError(f"{name} is already being served")
        if attempt is None:
            attempt = previous.attempt + 1 if previous else 1
        forwarded = reference is not None and (reference.request, reference.attempt) == (name, attempt)
        since_ms = reference.submitted_ms if reference is not None and forwarded else self._clock.now_ms
        request = Live(
            name,
            attempt,
            prompt,
            new_tokens,
            pages_needed=0,
            timer=None,
            timeout_ms=timeout_ms,
            submitted_ms=since_ms,
            stop_token=stop_token,
            transfer=transfer,
            prefill=prefill,
            keys=[],
        )
        self._arrive(request, "forwarded" if forwarded else "submitted")
        refusal = self._claim_id(request)
        if refusal is not None:
            self._fail(request, refusal)
        elif reference is None:
            self._enqueue(request)
        else:
            assert self._pulls is not None, "the lab pushes"
            request.pulled = True
            self._pulls.arrive(request, reference)
        return attempt

    def _arrive(self, request: Live, kind: str | None) -> None:
        """An attempt is here, with all that follows from its prompt; `kind` is the event that says so, if it is new."""
        size = len(request.prompt)
        request.pages_needed = self._growth.pages_at_first(size, request.new_tokens)
        if self._shape.prefix_cache:
            request.keys = content_keys(request.prompt[:-1], self._shape.page_tokens)
        patience_ms = request.timeout_ms or self._shape.request_timeout_ms
        if patience_ms is not None:
            request.timer = self._clock.at(request.submitted_ms + patience_ms, lambda: self._time_out(request))
        self._requests[request.name] = self._attempts[request.name, request.attempt] = request
        keys: dict[str, Any] = {"keys": request.keys} if request.keys else {}
        about = (request.name, request.attempt)
        if kind is None:
            return
        self._recorder.record(kind, *about, prompt_tokens=size, new_tokens=request.new_tokens, **keys)

    def _come_again(self, request: Live, prefill: str, *, ahead: bool = False) -> None:
        """A request whose attempt has ended here comes again by itself; `ahead` of all that wait for pages."""
        again = request.next_attempt()
        again.prefill = prefill
        self._take_in(again, "submitted", ahead=ahead)

    def _take_in(self, again: Live, kind: str | None, *, ahead: bool = False) -> None:
        self._arrive(again, kind)
        self._transfers[again.transfer or again.name] = again
        self._queue.insert(0 if ahead else len(self._queue), again)
        self._admit()

    def _preempt(self, request: Live, by: Live) -> None:
        """The pages of one are needed for another."""
        self._end(request, "preempted", needed_by=by.name, answered=len(request.tokens))
        self._come_again(request, request.prefill, ahead=True)

    def _enqueue(self, request: Live) -> None:
        self._queue.append(request)
        self._admit()

    def _claim_id(self, request: Live) -> str | None:
        """Let news of a transfer id find this request from now on; why not, if a guard is against it."""
        room = request.transfer or request.name
        holder = self._transfers.get(room)
        if holder is not None and holder.ended is None:
            held_by = f"{holder.name} attempt {holder.attempt}"
            about = (request.name, request.attempt, None, None, "admitted")
            if self._guards.refuse(RegisterTransfer(*about, transfer=room, held_by=held_by)):
                return f"its transfer id {room} is in use"
        self._transfers[room] = request
        return None

    def abort(self, name: str) -> None:
        """The client gives up; harmless if the request has ended, or never came."""
        request = self._requests.get(name)
        if request is None:
            self._recorder.record("abort-ignored", name, None, why="no such request here")
        elif request.ended is not None:
            self._recorder.record("abort-ignored", name, request.attempt, why="it is over here")
        else:
            self._end(request, "aborted")

    def retry(self, name: str, prefill: str) -> None:
        """A router has another prefill serve a request; harmless if its KV is there, or it has ended."""
        self._retries.retry(self._requests[name], prefill)

    def _begin_anew(self, request: Live, prefill: str) -> None:
        """The request ends, and comes again as its next attempt."""
        self._fail(request, f"it is to begin anew with {prefill}")
        self._come_again(request, prefill)

    def _time_out(self, request: Live) -> None:
        if request.ended is None:
            self._end(request, "timed-out", waited_ms=self._clock.now_ms - request.submitted_ms)

    def _fail(self, request: Live, why: str, by: str | None = None) -> None:
        self._end(request, "failed", why=why, by=by)

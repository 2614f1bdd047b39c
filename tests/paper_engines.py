"""The engines on paper: what prefill and decode would record, page by page and message by message.

`Engines` keeps events with their numbers, clocks and causal edges, two pools, and the mail between
the two sides. Gates and the conductor are `paper_lab.Paper`, which plays a scenario on it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from racelab.evidence.events import Event
from racelab.evidence.fingerprint import fingerprint
from racelab.scenario import Scenario

TOKEN_BYTES = 1024
ADDRESSES = {"decode": 0x7000_0000, "prefill": 0x7000_0000}


def tokens_of(request: str, count: int, *seen: str) -> list[int]:
    """What a request answers, given the fingerprints that it read."""
    return [int(fingerprint(f"{request}{index}{seen}".encode()), 16) % 997 for index in range(count)]


@dataclass
class _Pool:
    """One instance's books."""

    pages: int
    free: list[int]
    gen: list[int] = field(default_factory=list)
    state: list[str] = field(default_factory=list)
    grants: set[tuple[int, int]] = field(default_factory=set)


@dataclass
class _Request:
    name: str
    attempt: int
    prompt: int
    new_tokens: int
    submitted_ms: int
    tickets: list[tuple[int, int]] = field(default_factory=list)
    sources: list[tuple[int, int]] = field(default_factory=list)
    missing: set[int] = field(default_factory=set)
    outstanding: dict[int, set[str]] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    ended: str | None = None
    aborted: bool = False
    done: bool = False


class Engines:
    """Prefill and decode. `wanted` is the gates' question: which hold, if any, stops this thing?"""

    def __init__(self, scenario: Scenario, guards: tuple[str, ...]) -> None:
        self.lab = scenario.lab
        self.guards = guards
        self.events: list[Event] = []
        self.seq: dict[str, int] = {}
        self.learned: dict[str, dict[str, int]] = {}
        self.clock_ms = 0
        self.memory: dict[tuple[int, int], str] = {}
        self.requests: dict[str, _Request] = {}
        self.attempts: dict[tuple[str, int], _Request] = {}
        self.queue: list[_Request] = []
        self.stopped: dict[str, list[tuple[Event, Any]]] = {}
        self.mail: deque[tuple[Event, dict[str, Any]]] = deque()
        self.writes = self.messages = self.batches = 0
        self.pools = {
            "decode": self._pool("decode", self.lab.decode_pages),
            "prefill": self._pool("prefill", self.lab.prefill_pages),
        }
        self.timers: list[tuple[int, int, Callable[[], None]]] = []
        self.refused: Event | None = None
        self.direct_bytes = 0

    def wanted(self, subject: str, fields: dict[str, Any]) -> str | None:
        """Nothing is: there are no gates."""
        return None

    # -- recording

    def emit(self, kind: str, instance: str, about: tuple[Any, ...] = (), **data: Any) -> Event:
        """Record an event; `about` is request, attempt, page, gen."""
        if instance == "conductor":
            self.learned["conductor"] = {name: seq for name, seq in self.seq.items() if name != "conductor"}
        self.seq[instance] = self.seq.get(instance, 0) + 1
        request, attempt, page, gen = (*about, None, None, None, None)[:4]
        data = {key.rstrip("_"): value for key, value in data.items()}
        event = Event(
            kind=kind,
            instance=instance,
            seq=self.seq[instance],
            mono_ns=len(self.events) * 100_000,
            hlc=(1_000_000 + len(self.events) * 100) << 12,
            clock_ms=self.clock_ms if instance in ADDRESSES else 0,
            request=request,
            attempt=attempt,
            page=page,
            gen=gen,
            after=self.learned.pop(instance, {}),
            data=data,
        )
        self.events.append(event)
        return event

    def learn(self, instance: str, other: str) -> None:
        """`instance` hears from `other`; a command of the conductor passes on all that it has heard."""
        heard = self.seq if other == "conductor" else {other: self.seq[other]}
        news = {name: seq for name, seq in heard.items() if name != instance}
        self.learned.setdefault(instance, {}).update(news)

    def _after(self, delay_ms: int, fire: Callable[[], None]) -> None:
        heapq.heappush(self.timers, (self.clock_ms + delay_ms, len(self.events), fire))

    # -- pages

    def _pool(self, instance: str, pages: int) -> _Pool:
        size, layers = self.lab.page_tokens * TOKEN_BYTES, self.lab.layers
        free = list(reversed(range(pages)))
        self.emit("pool", instance, pages=pages, page_bytes=size, layers=layers, free=list(reversed(free)))
        for layer in range(layers):
            address = ADDRESSES[instance] + layer * pages * size
            self.emit("region", instance, layer=layer, address=address, bytes=pages * size)
        return _Pool(pages, free, [0] * pages, ["FREE"] * pages)

    def _take_pages(self, instance: str, count: int, request: _Request) -> list[tuple[int, int]] | None:
        pool = self.pools[instance]
        if len(pool.free) < count:
            return None
        tickets = []
        for _ in range(count):
            page = pool.free.pop()
            pool.gen[page] += 1
            pool.state[page] = "PRIVATE"
            tickets.append((page, pool.gen[page]))
            self.emit("page-private", instance, (request.name, request.attempt, *tickets[-1]), from_="FREE")
        return tickets

    def _move(self, instance: str, request: _Request, ticket: tuple[int, int], kind: str, why: str) -> None:
        pool = self.pools[instance]
        before = pool.state[ticket[0]]
        pool.state[ticket[0]] = {"page-free": "FREE", "page-draining": "DRAINING"}.get(kind, "QUARANTINED")
        if kind == "page-free":
            pool.free.append(ticket[0])
        self.emit(kind, instance, (request.name, request.attempt, *ticket), from_=before, why=why)

    def _grant(self, instance: str, request: _Request, ticket: tuple[int, int], to: str, size: int) -> None:
        self.pools[instance].grants.add(ticket)
        self.emit("granted", instance, (request.name, request.attempt, *ticket), to=to, bytes=size)

    def _close(self, instance: str, request: _Request, ticket: tuple[int, int], evidence: str, by: str) -> None:
        pool = self.pools[instance]
        if ticket not in pool.grants:
            return
        pool.grants.remove(ticket)
        self.emit("grant-closed", instance, (request.name, request.attempt, *ticket), evidence=evidence, by=by)
        if pool.gen[ticket[0]] == ticket[1] and pool.state[ticket[0]] == "DRAINING":
            self._move(instance, request, ticket, "page-free", "stop evidence")

    def _release(self, instance: str, request: _Request, ticket: tuple[int, int], why: str) -> None:
        about = (request.name, request.attempt, *ticket)
        if ticket not in self.pools[instance].grants or "drain-before-free" not in self.guards:
            self._move(instance, request, ticket, "page-free", why)
            return
        guard = "drain-before-free"
        refused = self.emit("refused", instance, about, guard=guard, refuses="page-free", why="1 grant outstanding")
        self.refused = self.refused or refused
        self._move(instance, request, ticket, "page-draining", why)
        self._after(self.lab.drain_timeout_ms, lambda: self._expire(instance, request, ticket))

    def _expire(self, instance: str, request: _Request, ticket: tuple[int, int]) -> None:
        pool = self.pools[instance]
        if pool.gen[ticket[0]] != ticket[1] or pool.state[ticket[0]] != "DRAINING":
            return
        kind = "page-quarantined" if "quarantine-on-expiry" in self.guards else "page-free"
        self._move(instance, request, ticket, kind, "drain expired")

    # -- decode

    def _submit(self, name: str, prompt: int, new_tokens: int) -> None:
        attempt = self.requests[name].attempt + 1 if name in self.requests else 1
        request = _Request(name, attempt, prompt, new_tokens, self.clock_ms)
        self.requests[name] = self.attempts[name, attempt] = request
        self.learn("decode", "conductor")
        self.emit("submitted", "decode", (name, attempt), prompt_tokens=prompt, new_tokens=new_tokens)
        self._after(self.lab.request_timeout_ms, lambda: self._time_out(request))
        self.queue.append(request)
        self._admit()
        self._deliver()

    def _admit(self) -> None:
        while self.queue:
            request = self.queue[0]
            needed = -(-(request.prompt + request.new_tokens) // self.lab.page_tokens)
            tickets = self._take_pages("decode", needed, request)
            if tickets is None:
                free = len(self.pools["decode"].free)
                self.emit("queued", "decode", (request.name, request.attempt), needs=needed, free=free)
                return
            self.queue.pop(0)
            request.tickets = tickets
            self.emit("admitted", "decode", (request.name, request.attempt), tickets=[list(one) for one in tickets])
            sizes = self._sizes(request.prompt)
            request.missing = set(range(len(sizes)))
            for ticket, size in zip(tickets, sizes, strict=False):
                self._grant("decode", request, ticket, "prefill", size)
            self._send("decode", "prefill", "reserve", request)

    def _sizes(self, prompt: int) -> list[int]:
        """Bytes of each page's layer that travel: the prompt's tokens but the last."""
        left, sizes = prompt - 1, []
        while left > 0:
            sizes.append(min(left, self.lab.page_tokens) * TOKEN_BYTES)
            left -= self.lab.page_tokens
        return sizes

    def _solo(self, name: str, prompt: int) -> list[str]:
        return [
            self._content(name, index, layer)
            for index in range(len(self._sizes(prompt)))
            for layer in range(self.lab.layers)
        ]

    @staticmethod
    def _content(name: str, index: int, layer: int) -> str:
        return fingerprint(f"{name} page {index} layer {layer}".encode())

    def _time_out(self, request: _Request) -> None:
        if request.ended is None:
            self._end(request, "timed-out", waited_ms=self.clock_ms - request.submitted_ms)

    def _end(self, request: _Request, kind: str, **data: Any) -> None:
        if request.ended is not None:
            return
        committed = kind == "finished"
        request.ended = kind
        self.emit(kind, "decode", (request.name, request.attempt), **data)
        if request in self.queue:
            self.queue.remove(request)
        if request.tickets and not committed:
            self._send("decode", "prefill", "abort", request)
        for ticket in request.tickets:
            self._release("decode", request, ticket, kind)
        self._admit()

    def _seen(self, request: _Request) -> list[list[Any]]:
        return [
            [page, gen, layer, 0, size, self.memory.get((page, layer), "never")]
            for (page, gen), size in zip(request.tickets, self._sizes(request.prompt), strict=False)
            for layer in range(self.lab.layers)
        ]

    def _serve(self, request: _Request) -> None:
        about = (request.name, request.attempt)
        self.emit("committed", "decode", about, fingerprints=self._seen(request))
        self._send("decode", "prefill", "complete", request)
        seen = self._seen(request)
        self.emit("read", "decode", about, token=0, fingerprints=seen)
        if request.new_tokens > 1:
            self.emit("read", "decode", about, token=request.new_tokens - 1, fingerprints=seen)
        tokens = tokens_of(request.name, request.new_tokens, *(sight[5] for sight in seen))
        self._end(request, "finished", tokens=tokens)

    # -- messages

    def _send(self, sender: str, to: str, type_: str, request: _Request, **data: Any) -> None:
        self.messages += 1
        about = (request.name, request.attempt)
        event = self.emit("sent", sender, about, id=f"{sender}-{self.messages}", type_=type_, to=to, **data)
        fields = {"type": type_, "request": request.name, "attempt": request.attempt, "chunk": data.get("chunk")}
        hold = self.wanted("message", fields)
        if hold is not None:
            self.learn("bus", sender)
            held = self.emit("held", "bus", about, hold=hold, what=event.data["id"], type_=type_, chunk=fields["chunk"])
            self.stopped[hold].append((held, (event, data)))
        else:
            self.mail.append((event, data))

    def _deliver(self) -> None:
        while self.mail:
            sent, data = self.mail.popleft()
            to = sent.data["to"]
            request = self.attempts[sent.request or "", sent.attempt or 0]
            self.learned.setdefault(to, {})[sent.instance] = sent.seq
            extra = {key: value for key, value in data.items() if key != "pages"}
            about = (request.name, request.attempt)
            identity, kind = sent.data["id"], sent.data["type"]
            self.emit("received", to, about, id=identity, type_=kind, from_=sent.instance, **extra)
            getattr(self, f"_on_{kind.replace('-', '_')}")(request, identity, data)

    def _on_reserve(self, request: _Request, identity: str, data: dict[str, Any]) -> None:
        sizes = self._sizes(request.prompt)
        request.sources = self._take_pages("prefill", len(sizes), request) or []
        tickets = [list(one) for one in request.sources]
        about = (request.name, request.attempt)
        self.emit("accepted", "prefill", about, prompt_tokens=request.prompt, tickets=tickets)
        for chunk, size in enumerate(sizes):
            self._post(request, chunk, size)

    def _on_written(self, request: _Request, identity: str, data: dict[str, Any]) -> None:
        chunk = data["chunk"]
        ok = data["status"] == "ok"
        if ok:
            self._close("decode", request, request.tickets[chunk], "completions", identity)
            self._admit()
        if request.ended is not None or self.requests[request.name] is not request:
            about = (request.name, request.attempt)
            guard, why = "control-carries-generation", "the attempt has ended"
            if guard in self.guards:
                self.emit("refused", "decode", about, guard=guard, refuses="committed", why=why)
            else:
                self.emit("ignored", "decode", about, id=identity, type_="written", why=why)
            return
        if not ok:
            self._end(request, "failed", why="prefill reported a failed write")
            return
        request.missing.discard(chunk)
        if not request.missing:
            self._serve(request)

    def _on_abort(self, request: _Request, identity: str, data: dict[str, Any]) -> None:
        request.aborted = True
        self._end_attempt(request, "abort")
        self._acknowledge(request)

    def _on_complete(self, request: _Request, identity: str, data: dict[str, Any]) -> None:
        self._end_attempt(request, "complete")

    def _on_abort_ack(self, request: _Request, identity: str, data: dict[str, Any]) -> None:
        if data["clean"]:
            for ticket in request.tickets:
                self._close("decode", request, ticket, "acknowledged", identity)
            self._admit()

    # -- prefill

    def _post(self, request: _Request, chunk: int, size: int) -> None:
        source, gen = request.sources[chunk]
        self._grant("prefill", request, (source, gen), "nic", size)
        request.outstanding[chunk] = set()
        batches: dict[str, list[Event]] = {}
        for layer in range(self.lab.layers):
            page, dest_gen = request.tickets[chunk]
            about = (request.name, request.attempt, page, dest_gen)
            fields = {"request": request.name, "attempt": request.attempt, "chunk": chunk, "layer": layer, "page": page}
            hold = self.wanted("write", fields)
            lane = "wire" if hold is not None else "direct"
            self.writes += 1
            pool_bytes = self.lab.decode_pages * self.lab.page_tokens * TOKEN_BYTES
            address = ADDRESSES["decode"] + layer * pool_bytes + page * self.lab.page_tokens * TOKEN_BYTES
            posted = self.emit(
                "posted",
                "prefill",
                about,
                write=f"w{self.writes}",
                batch=f"b{self.batches + 1}-{lane}",
                lane=lane,
                layer=layer,
                chunk=chunk,
                address=address,
                bytes=size,
                source_page=source,
                fingerprint=self._content(request.name, chunk, layer),
            )
            request.outstanding[chunk].add(posted.data["write"])
            batches.setdefault(lane, []).append(posted)
            if hold is not None:
                self.learn("wire", "prefill")
                data = {"what": posted.data["write"], "address": address, "bytes": size, "layer": layer, "chunk": chunk}
                self.stopped[hold].append((self.emit("held", "wire", about, hold=hold, **data), posted))
        self.batches += 1
        for posted in batches.get("direct", []):
            self.direct_bytes += 24 + posted.data["bytes"]
            self._land(posted)
        for posted in batches.get("direct", []):
            self._complete(posted, "ok")

    def _land(self, posted: Event) -> None:
        self.memory[posted.page or 0, posted.data["layer"]] = posted.data["fingerprint"]

    def _complete(self, posted: Event, status: str) -> None:
        request = self.attempts[posted.request or "", posted.attempt or 0]
        chunk, write = posted.data["chunk"], posted.data["write"]
        code = 1 if status == "ok" else -1
        self.emit("completed", "prefill", batch=posted.data["batch"], writes=[write], status=status, code=code)
        request.outstanding[chunk].discard(write)
        if status != "ok":
            request.failed.add(chunk)
        if request.outstanding[chunk]:
            return
        if chunk not in request.failed:
            self._close("prefill", request, request.sources[chunk], "completions", posted.data["batch"])
        state = "failed" if chunk in request.failed else "ok"
        self._send("prefill", "decode", "written", request, chunk=chunk, status=state)
        self._acknowledge(request)

    def _acknowledge(self, request: _Request) -> None:
        if request.aborted and not any(request.outstanding.values()):
            self._send("prefill", "decode", "abort-ack", request, clean=not request.failed)

    def _end_attempt(self, request: _Request, why: str) -> None:
        if request.done:
            return
        request.done = True
        self.emit("attempt-ended", "prefill", (request.name, request.attempt), why=why)
        for source in request.sources:
            self._release("prefill", request, source, why)

"""What the executable specification knows of a system at one moment, as immutable values.

The same variables, under the same names, are in `scenarios/models/PdLedger.tla`. A request is
known by its name and attempts are counted from 1; pages, chunks and layers count from 0, as in
the engine. Everything is hashable, so that a search can tell states apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

DECODE, PREFILL = "decode", "prefill"
NIC = "nic"
NO_SLOT = -1

DRAIN_BEFORE_FREE = "drain-before-free"
QUARANTINE_ON_EXPIRY = "quarantine-on-expiry"
CONTROL_CARRIES_GENERATION = "control-carries-generation"
PUBLISH_AFTER_COMMIT = "publish-after-commit"
STOP_POSTING_ON_ABORT = "stop-posting-on-abort"
ACK_WHEN_DRAINED = "ack-when-drained"
TELL_PEER_OF_END = "tell-peer-of-end"
COMMIT_WHEN_WHOLE = "commit-when-whole"
RECEIVE_WATCHDOG = "receive-watchdog"
CHECK_INCARNATION = "check-incarnation"
REGISTER_BEFORE_SEND = "register-before-send"
LENGTHS_AGREE = "lengths-agree"
EVERY_HANDLE_STOPPED = "every-handle-stopped"
BYTES_BEFORE_COMMIT = "bytes-before-commit"
LOCAL_WORK_BEFORE_GRANT = "local-work-before-grant"
COMPUTE_BEFORE_POST = "compute-before-post"
REFERENCE_NAMES_GENERATION = "reference-names-generation"
RENEW_LEASE = "renew-lease"
SLOT_CARRIES_OWNER = "slot-carries-owner"
UNIQUE_TRANSFER_ID = "unique-transfer-id"
REMEMBER_ENDED = "remember-ended"
END_FREES_PAGES = "end-frees-pages"
COMMIT_TOGETHER = "commit-together"
RETRACTION_RENEWS_ATTEMPT = "retraction-renews-attempt"
RETRY_TAKES_OTHER_PAGES = "retry-takes-other-pages"
GUARDS = (
    *(DRAIN_BEFORE_FREE, QUARANTINE_ON_EXPIRY, CONTROL_CARRIES_GENERATION, PUBLISH_AFTER_COMMIT),
    *(STOP_POSTING_ON_ABORT, ACK_WHEN_DRAINED, TELL_PEER_OF_END, COMMIT_WHEN_WHOLE, RECEIVE_WATCHDOG),
    *(LENGTHS_AGREE, CHECK_INCARNATION, REGISTER_BEFORE_SEND, EVERY_HANDLE_STOPPED, BYTES_BEFORE_COMMIT),
    *(LOCAL_WORK_BEFORE_GRANT, COMPUTE_BEFORE_POST, REFERENCE_NAMES_GENERATION, RENEW_LEASE, SLOT_CARRIES_OWNER),
    *(UNIQUE_TRANSFER_ID, REMEMBER_ENDED, END_FREES_PAGES, COMMIT_TOGETHER),
    *(RETRACTION_RENEWS_ATTEMPT, RETRY_TAKES_OTHER_PAGES),
)

TIME_OUT, RECEIVE_TIME_OUT, ABORT, LOSE, COPY = "time-out", "receive-time-out", "abort", "lose", "copy"
OVERTAKE, FAIL, GHOST, ANSWER_EARLY, RESTART = "overtake", "fail", "ghost", "answer-early", "restart"
LEASE, OLD_REFERENCE, BOOTSTRAP_TIME_OUT = "lease", "old-reference", "bootstrap-time-out"
RETRACT, RETRY = "retract", "retry"
FAULTS = (
    *(TIME_OUT, RECEIVE_TIME_OUT, ABORT, LOSE, COPY, OVERTAKE, FAIL, GHOST, RESTART, LEASE, OLD_REFERENCE),
    *(BOOTSTRAP_TIME_OUT, RETRACT, RETRY),
)
"""What the environment may do: a client's patience ends, or the watchdogs' time; a client aborts; a message
is lost, or arrives twice, or an abort before the reserve that it follows; the completion of a write is an
error, and it lands all the same; prefill dies, and another takes its place; the lease of pulled source pages ends;
a client presents the reference of another request; prefill waits too long for decode's pages;
decode's scheduler takes the pages of a request back for others; a router has another prefill serve a request.

The completion of a write may also come before its bytes are there (ANSWER_EARLY).
"""

POST_AT_ONCE, LATE_FORWARD, LATE_FILL, LATE_REGISTER = "post-at-once", "late-forward", "late-fill", "late-register"
PULL, ROUTER, BATCH, SCALES = "pull", "router", "batch", "scales"
PARTS = (POST_AT_ONCE, LATE_FORWARD, LATE_FILL, LATE_REGISTER, PULL, ROUTER, BATCH, SCALES)
"""What a lab need not have: an abort that finds every chunk posted whose attempt has its source pages; queued
forwards, queued zeros, a queued entry for a transfer; decode that reads the pages itself; a router that takes
requests to both sides; a batch of one, for which others wait once their KV is complete;
a stream of scales beside the KV: what the last rank writes."""


class Shape(NamedTuple):
    """How many pages a request needs, and how many of them prefill fills: the others are for its answer.

    `keys` are the content keys of the first pages: equal keys mean equal bytes. Without keys there
    is nothing to find in the prefix cache and nothing to publish. A prompt that is `too_long` for prefill has
    a placeholder of one page transferred in its place. `room` is a transfer id that its client gives it.
    """

    pages: int
    granted: int
    keys: tuple[str, ...] = ()
    too_long: bool = False
    room: str | None = None


@dataclass(frozen=True)
class Config:
    """The size of a system, which guards it has and what its environment may do."""

    decode_pages: int
    prefill_pages: int
    shapes: dict[str, Shape]
    attempts_max: int = 1
    layers: int = 1
    chunk_pages: int = 1
    ranks: int = 1
    slots: int = 0
    guards: frozenset[str] = frozenset(GUARDS)
    faults: frozenset[str] = frozenset({TIME_OUT, OVERTAKE, ABORT})
    parts: frozenset[str] = frozenset()

    @cached_property
    def place(self) -> dict[str, int]:
        """Each request's place in the order of the shapes."""
        return {request: place for place, request in enumerate(self.shapes)}

    @cached_property
    def reported(self) -> frozenset[str]:
        """The guards whose refusals the specification knows to the event; those of others are not looked at."""
        queued = {COMPUTE_BEFORE_POST, LOCAL_WORK_BEFORE_GRANT, REGISTER_BEFORE_SEND, CHECK_INCARNATION}
        queued |= {EVERY_HANDLE_STOPPED, RENEW_LEASE, END_FREES_PAGES}
        if LATE_FORWARD in self.parts:  # what is queued to be posted counts as posted there
            queued.add(STOP_POSTING_ON_ABORT)
        return self.guards - queued

    def guarded(self, name: str) -> bool:
        """Whether a guard is there."""
        return name in self.guards

    @property
    def pulls(self) -> bool:
        """Whether decode reads the pages itself."""
        return PULL in self.parts

    def rank_of(self, layer: int) -> int:
        """Which rank writes a layer. A slot is rank 0's part of the last chunk: its layer is the one after the last."""
        return 0 if layer == self.layers else layer % self.ranks

    @property
    def handles(self) -> range:
        """The ranks of prefill: each tells of its own writes, and is granted the pages for itself."""
        return range(self.ranks)

    def is_kv(self, rank: int) -> bool:
        """Whether a rank writes KV, and not the scales that it needs."""
        return SCALES not in self.parts or rank < self.ranks - 1

    def chunks(self, request: str) -> int:
        """In how many chunks a request's KV is written."""
        return -(-self.shapes[request].granted // self.chunk_pages)

    def posted_pages(self, request: str) -> int:
        """How many pages prefill computes."""
        return 1 if self.shapes[request].too_long else self.shapes[request].granted

    def posted_chunks(self, request: str) -> int:
        """In how many chunks it does."""
        return 1 if self.shapes[request].too_long else self.chunks(request)

    def posted(self, request: str, chunk: int, first: int) -> range:
        """The indices of the pages that prefill writes of a chunk."""
        return range(1) if self.shapes[request].too_long else self.of_chunk(request, chunk, first)

    def of_chunk(self, request: str, chunk: int, first: int = 0) -> range:
        """The indices of a chunk's pages among those of the request, from `first` on."""
        begin = chunk * self.chunk_pages
        return range(max(begin, first), min(begin + self.chunk_pages, self.shapes[request].granted))


class Ticket(NamedTuple):
    """The right of one attempt to one incarnation of a page."""

    page: int
    gen: int
    request: str
    attempt: int


class Content(NamedTuple):
    """Whose KV some bytes are: page number `nth` of an attempt's prompt; -1 of a placeholder."""

    request: str
    attempt: int
    nth: int


class Page(NamedTuple):
    """A page's state; request and attempt are its holder's, and stay when it drains or is quarantined.

    A SHARED page's holder is who published it; `readers` are the attempts with a reference to a
    SHARED or DUP page.
    """

    state: str = "FREE"
    gen: int = 0
    request: str | None = None
    attempt: int = 0
    readers: frozenset[tuple[str, int]] = frozenset()


class Owner(NamedTuple):
    """Whose first token is in a slot."""

    request: str
    attempt: int


Grant = tuple[Ticket, int]
"""The right of one handle, a rank of the peer, to reach a page."""


class Side(NamedTuple):
    """One pool: its pages, the allocator's stack (the top first), grants without stop evidence, and the bytes.

    `content` has, for each page and layer, whose KV it holds. `epoch` is prefill's incarnation, as each side
    knows it. `rooms` says who goes by a transfer id, `slots` whose word is in each metadata slot of decode, of
    which those in `spare`, the top first, are nobody's.
    """

    pages: tuple[Page, ...]
    free: tuple[int, ...]
    grants: frozenset[Grant]
    content: tuple[tuple[Content | None, ...], ...]
    epoch: int = 0
    rooms: frozenset[tuple[str, str, int]] = frozenset()
    slots: tuple[Owner | None, ...] = ()
    spare: tuple[int, ...] = ()


class Attempt(NamedTuple):
    """One attempt of a request on decode: `missing` are chunks and ranks without news, `failed` those of which it
    is bad, `due` is how much news is expected, and `ended` says how it ended.

    The first `hits` of its tickets are pages that the prefix cache had; prefill was asked to fill
    others if it is `reserved`. It is `registered` once messages about it find it, `filled` once no zeros
    are due, and `peer` is the incarnation of prefill that decode knew when it was admitted.

    Of a pulled one `ref` names the source pages, `reading` are reads (nth, layer) without a completion, `got` those
    that succeeded, and it is `broken` once one failed. `stage` says how far it is: away (with prefill), claiming,
    here, or stale. It waits `again` where its pages were taken back and it stayed the same attempt.
    """

    tickets: tuple[Ticket, ...] = ()
    hits: int = 0
    reserved: bool = False
    missing: frozenset[tuple[int, int]] = frozenset()
    failed: frozenset[tuple[int, int]] = frozenset()
    due: int = 0
    registered: bool = True
    filled: bool = True
    peer: int = 0
    committed: bool = False
    running: bool = False
    ended: str | None = None
    slot: int = -1
    stage: str = "here"
    ref: tuple[Ticket, ...] = ()
    reading: frozenset[tuple[int, int]] = frozenset()
    got: frozenset[tuple[int, int]] = frozenset()
    broken: bool = False
    again: bool = False

    @property
    def waits_its_turn(self) -> bool:
        """Whether its KV is complete, and the batch full."""
        return self.committed and self.ended is None and not self.running


class Job(NamedTuple):
    """The same attempt on prefill.

    `stage` is none, offered (by a router; decode's pages are to come), reserved (they are here, the request is
    to come), waiting, accepted or referenced (pulled, and computed); `first` is the place of the first of `pages`;
    `computed` and `posted` are the chunks that are computed and posted next; a write is (nth, layer), without a
    completion in `outstanding`, with a successful one in `done`; `failed` are chunks and ranks. It `owes` decode an
    acknowledgement of its abort until nothing is outstanding. It was `closed` by an abort that came before anything
    else; `readers` have claimed its pages.
    """

    stage: str = "none"
    first: int = 0
    pages: tuple[Ticket, ...] = ()
    sources: tuple[Ticket, ...] = ()
    computed: int = 0
    posted: int = 0
    outstanding: frozenset[tuple[int, int]] = frozenset()
    done: frozenset[tuple[int, int]] = frozenset()
    failed: frozenset[tuple[int, int]] = frozenset()
    aborted: bool = False
    owes: bool = False
    released: bool = False
    offered: bool = False
    closed: bool = False
    readers: frozenset[tuple[str, int]] = frozenset()


class Write(NamedTuple):
    """A one-sided write, or a read, that is posted and has not landed: into `page`, out of `source`. A write of the
    layer after the last is one of metadata: its `page` is a slot."""

    request: str
    attempt: int
    nth: int
    layer: int
    page: int
    gen: int
    source: int
    source_gen: int
    epoch: int = 0


TO_PREFILL = ("reserve", "abort", "complete", "claim", "release-source")


class Message(NamedTuple):
    """A control message; `ok` is the status of `written`, and whether an `abort-ack` is clean.

    A `hello` is of no request: its `attempt` is the new incarnation of prefill.
    """

    type: str
    request: str
    attempt: int
    chunk: int | None = None
    ok: bool = True
    pages: tuple[Ticket, ...] = ()
    rank: int = 0

    @property
    def to(self) -> str:
        """The instance that it goes to."""
        return PREFILL if self.type in TO_PREFILL else DECODE


class Stray(NamedTuple):
    """History: something took effect after what it was granted for had ended, on what is `owner`'s now."""

    what: str
    request: str
    attempt: int
    owner: str | None


class State(NamedTuple):
    """Everything. `attempts` and `jobs` have one tuple a request, by the order of the configuration.

    `cache` is the prefix cache: which page, by its publisher's ticket, is found under which key.
    """

    decode: Side
    prefill: Side
    attempts: tuple[tuple[Attempt, ...], ...]
    jobs: tuple[tuple[Job, ...], ...]
    cache: frozenset[tuple[str, Ticket]]
    queue: tuple[tuple[str, int], ...]
    waiting: tuple[tuple[str, int], ...]
    wire: frozenset[Write]
    net: frozenset[Message]
    strays: frozenset[Stray]


class Effect(NamedTuple):
    """What an instance reports of a step: an event's kind and the fields that the specification fixes."""

    kind: str
    instance: str
    request: str
    attempt: int
    page: int | None = None
    gen: int | None = None
    detail: tuple[Any, ...] = ()


def initial(config: Config) -> State:
    """Nothing has been submitted, and every page is free."""
    nothing: tuple[Any, ...] = tuple(() for _ in config.shapes)
    return State(
        decode=_side(config.decode_pages, config.layers)._replace(
            slots=(None,) * config.slots, spare=tuple(range(config.slots))
        ),
        prefill=_side(config.prefill_pages, config.layers),
        attempts=nothing,
        jobs=nothing,
        cache=frozenset(),
        queue=(),
        waiting=(),
        wire=frozenset(),
        net=frozenset(),
        strays=frozenset(),
    )


def _side(pages: int, layers: int) -> Side:
    return Side((Page(),) * pages, tuple(range(pages)), frozenset(), ((None,) * layers,) * pages)

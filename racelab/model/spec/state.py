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

DRAIN_BEFORE_FREE = "drain-before-free"
QUARANTINE_ON_EXPIRY = "quarantine-on-expiry"
CONTROL_CARRIES_GENERATION = "control-carries-generation"
PUBLISH_AFTER_COMMIT = "publish-after-commit"
GUARDS = (DRAIN_BEFORE_FREE, QUARANTINE_ON_EXPIRY, CONTROL_CARRIES_GENERATION, PUBLISH_AFTER_COMMIT)

ABORT, LOSE, DUPLICATE, FAIL = "abort", "lose", "duplicate", "fail"
FAULTS = (ABORT, LOSE, DUPLICATE, FAIL)
"""What the environment may do: the client aborts, a message is lost, or arrives twice, a write fails."""


class Shape(NamedTuple):
    """How many pages a request needs, and how many of them prefill fills: the others are for its answer.

    `keys` are the content keys of the first pages: equal keys mean equal bytes. Without keys there
    is nothing to find in the prefix cache and nothing to publish.
    """

    pages: int
    granted: int
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Config:
    """The size of a system, which guards it has and what its environment may do."""

    decode_pages: int
    prefill_pages: int
    shapes: dict[str, Shape]
    attempts_max: int = 1
    layers: int = 1
    chunk_pages: int = 1
    guards: frozenset[str] = frozenset(GUARDS)
    faults: frozenset[str] = frozenset({ABORT})
    tells: bool = True
    """whether decode tells prefill of an attempt that ends early"""

    @cached_property
    def place(self) -> dict[str, int]:
        """Each request's place in the order of the shapes."""
        return {request: place for place, request in enumerate(self.shapes)}

    def chunks(self, request: str) -> int:
        """In how many chunks a request's KV is written."""
        return -(-self.shapes[request].granted // self.chunk_pages)

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
    """Whose KV some bytes are: page number `nth` of an attempt's prompt."""

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


class Side(NamedTuple):
    """One pool: its pages, the allocator's stack (the top first), grants without stop evidence, and the bytes.

    `content` has, for each page and layer, whose KV it holds.
    """

    pages: tuple[Page, ...]
    free: tuple[int, ...]
    grants: frozenset[Ticket]
    content: tuple[tuple[Content | None, ...], ...]


class Attempt(NamedTuple):
    """One attempt of a request on decode: `missing` are chunks without news, `ended` says how it ended.

    The first `hits` of its tickets are pages that the prefix cache had; prefill was asked to fill
    others if it is `reserved`.
    """

    tickets: tuple[Ticket, ...] = ()
    hits: int = 0
    reserved: bool = False
    missing: frozenset[int] = frozenset()
    committed: bool = False
    running: bool = False
    ended: str | None = None


class Job(NamedTuple):
    """The same attempt on prefill.

    `stage` is none, waiting or accepted; `first` is the place of the first of `pages`; `posted` is
    the chunk that is posted next; a write is (nth, layer), without
    a completion in `outstanding`, with a successful one in `done`.
    """

    stage: str = "none"
    first: int = 0
    pages: tuple[Ticket, ...] = ()
    sources: tuple[Ticket, ...] = ()
    posted: int = 0
    outstanding: frozenset[tuple[int, int]] = frozenset()
    done: frozenset[tuple[int, int]] = frozenset()
    failed: frozenset[int] = frozenset()
    aborted: bool = False
    released: bool = False


class Write(NamedTuple):
    """A one-sided write that is posted and has not landed: into `page`, out of `source`."""

    request: str
    attempt: int
    nth: int
    layer: int
    page: int
    gen: int
    source: int
    source_gen: int


class Message(NamedTuple):
    """A control message; `ok` is the status of `written`, and whether an `abort-ack` is clean."""

    type: str
    request: str
    attempt: int
    chunk: int | None = None
    ok: bool = True
    pages: tuple[Ticket, ...] = ()

    @property
    def to(self) -> str:
        """The instance that it goes to."""
        return PREFILL if self.type in ("reserve", "abort", "complete") else DECODE


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
        decode=_side(config.decode_pages, config.layers),
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

"""The events of an ordinary history, typed: what the look at it reads of them, and nothing that it does not know.

An event of another kind, with a field more or less, or of another type does not decode: then the history
is not an ordinary one, and the full rules judge it. So nothing new is passed over in silence.
"""

from __future__ import annotations

from typing import Literal, Union

import msgspec
from msgspec import Raw

Row = tuple[int, int, int, int, int, str]
"""page, gen, layer, start, end, fingerprint"""


State = Literal["FREE", "PRIVATE", "SHARED", "DRAINING", "QUARANTINED", "DUP"]


class Record(msgspec.Struct, forbid_unknown_fields=True, gc=False, kw_only=True, tag_field="kind"):
    """What every event has."""

    instance: str
    seq: int
    incarnation: int = 0
    mono_ns: int
    hlc: int
    clock_ms: int = 0
    request: str | None = None
    attempt: int | None = None
    page: int | None = None
    gen: int | None = None
    after: dict[str, int] | None = None


class Data(msgspec.Struct, forbid_unknown_fields=True, gc=False, kw_only=True):
    """What an event of one kind has beside that."""


class PoolData(Data):
    pages: int
    page_bytes: int
    layers: int
    free: Raw
    pattern: Raw = Raw()
    generations_from: int = 0
    blocks: int | None = None


class Pool(Record, tag="pool"):
    data: PoolData


class RegionData(Data):
    layer: int
    address: int
    bytes: int


class Region(Record, tag="region"):
    data: RegionData


class MoveData(Data):
    from_: State = msgspec.field(name="from")
    why: str = ""
    key: str = ""
    of: Raw = Raw()


class Private(Record, tag="page-private"):
    data: MoveData


class Shared(Record, tag="page-shared"):
    data: MoveData


class Dup(Record, tag="page-dup"):
    data: MoveData


class Draining(Record, tag="page-draining"):
    data: MoveData


class Quarantined(Record, tag="page-quarantined"):
    data: MoveData


class Free(Record, tag="page-free"):
    data: MoveData


class GrantData(Data):
    to: str
    bytes: int


class Granted(Record, tag="granted"):
    data: GrantData


class ClosedData(Data):
    evidence: Literal["completions", "acknowledged"]
    by: str


class Closed(Record, tag="grant-closed"):
    data: ClosedData


class HitData(Data):
    key: str
    bytes: int
    references: int


class Hit(Record, tag="cache-hit"):
    data: HitData


class DroppedData(Data):
    references: int


class Dropped(Record, tag="reference-dropped"):
    data: DroppedData


class MessageData(msgspec.Struct, gc=False):
    """Whatever else a message says, no specification asks for it."""

    id: str
    type: str
    clean: bool = True


class Sent(Record, tag="sent"):
    data: MessageData


class Received(Record, tag="received"):
    data: MessageData


class Ignored(Record, tag="ignored"):
    data: Raw


class Refused(Record, tag="refused"):
    data: Raw


class PhaseData(Data):
    phase: str


class Phase(Record, tag="phase"):
    data: PhaseData


class Submitted(Record, tag="submitted"):
    data: Raw


class TicketData(Data):
    tickets: list[tuple[int, int]]
    prompt_tokens: int = 0
    hits: int = 0


class Admitted(Record, tag="admitted"):
    data: TicketData


class Accepted(Record, tag="accepted"):
    data: TicketData


class RowData(Data):
    fingerprints: list[Row]
    token: int = 0
    keys: list[tuple[int, int, str]] = []
    by: str | None = None


class Committed(Record, tag="committed"):
    data: RowData


class Published(Record, tag="published"):
    data: RowData


class Read(Record, tag="read"):
    data: RowData


class Finished(Record, tag="finished"):
    data: Raw


class TimedOut(Record, tag="timed-out"):
    data: Raw


class Aborted(Record, tag="aborted"):
    data: Raw = Raw()


class Failed(Record, tag="failed"):
    data: Raw


class EndedData(Data):
    why: str
    by: str | None = None


class AttemptEnded(Record, tag="attempt-ended"):
    data: EndedData


class PostedData(Data):
    write: str
    batch: Raw
    lane: Raw
    layer: int
    chunk: int
    address: int
    bytes: int
    source_page: int
    fingerprint: str
    chunks: Raw = Raw()


class Posted(Record, tag="posted"):
    data: PostedData


class CompletedData(Data):
    batch: Raw
    writes: list[str]
    status: Literal["ok"]
    code: int


class Completed(Record, tag="completed"):
    data: CompletedData


class CountedData(Data):
    gate: str
    counts: dict[str, int]


class Counted(Record, tag="counted"):
    data: CountedData


class RestData(Data):
    pool: int
    states: dict[str, int]
    leftovers: dict[str, int]


class Quiesced(Record, tag="quiesced"):
    data: RestData


class Gated(msgspec.Struct, gc=False):
    """What a gate says of what it stopped."""

    what: str
    action: str = "hold"
    code: int | None = None


class Held(Record, tag="held"):
    data: Gated


class Released(Record, tag="released"):
    data: Gated


class Landed(Record, tag="landed"):
    data: Gated


_UNREAD = (
    "run-started step step-done queued chunks look scan sockets rails armed delivered "
    "offered batched grown retried passed abort-ignored blocked halted"
)
"""Kinds that no specification asks for."""

Unread = tuple(
    msgspec.defstruct(f"Unread_{kind}", [("data", Raw, Raw())], bases=(Record,), tag=kind, kw_only=True, gc=False)
    for kind in _UNREAD.split()
)

Moves = Private | Shared | Dup | Draining | Quarantined | Free
Pages = Pool | Region | Moves | Granted | Closed | Hit | Dropped
Requests = Submitted | Admitted | Accepted | Finished | TimedOut | Aborted | Failed | AttemptEnded
Rows = Committed | Published | Read
Writes = Posted | Completed | Held | Released | Landed
Rest = Phase | Sent | Received | Ignored | Refused | Counted | Quiesced

DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Union[(Pages, Requests, Rows, Writes, Rest, *Unread)])

"""The event: what one process saw or did, and the kinds there are.

`docs/history.md` is made from KINDS; a kind that is not there is refused when a history is read,
so a misspelt event is an error and never a silence.
"""

from __future__ import annotations

from typing import Any

import msgspec

SCHEMA = "racelab-history/1"


class Event(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One line of a history.

    `seq` counts without gaps within an instance, so that a lost event shows. `after` names, by
    instance, the last event of others that this process had heard of when it recorded this one
    (only what is new since its previous event): these are the causal edges. An event is plain data
    and part of no cycle, so the garbage collector need not look at it.
    """

    kind: str
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
    after: dict[str, int] = {}
    data: dict[str, Any] = {}


class Kind(msgspec.Struct, frozen=True):
    """What a kind of event means and which `data` it always has."""

    means: str
    data: tuple[str, ...] = ()


PAGE_STATES = ("FREE", "PRIVATE", "SHARED", "DRAINING", "QUARANTINED", "DUP")

STATE_AFTER = {f"page-{state.lower()}": state for state in PAGE_STATES}
"""The state that a page has after an event of each kind that moves pages."""

TERMINAL_KINDS = ("finished", "timed-out", "aborted", "failed", "preempted", "retracted")
"""An attempt of a request ends with exactly one of these, on the instance that serves the client."""

KINDS: dict[str, Kind] = {
    # conductor
    "run-started": Kind("a run begins under these guards", ("run", "seed", "guards")),
    "phase": Kind("the conductor enters schedule, aftermath, release, drain, probe or judge", ("phase",)),
    "step": Kind("a schedule step is issued", ("n", "verb", "text")),
    "step-done": Kind("a step is over; `by` is the event that let it go", ("n", "why", "by")),
    "blocked": Kind("a guard's refusal ended the schedule at this step", ("n", "guard", "by")),
    "halted": Kind("the schedule ends at the ledger violation `by`, as was asked", ("n", "by")),
    "gave-up": Kind("an await cannot be met: hang, starved, crash or claim", ("n", "why", "what")),
    "died": Kind("a process of the lab ended unasked", ("peer", "doing")),
    # prefill and decode: pages
    "pool": Kind("the page pool at the start of an incarnation", ("pages", "page_bytes", "layers", "free")),
    "region": Kind("memory registered with the transport: one layer of the pool", ("layer", "address", "bytes")),
    "unregistered": Kind("memory of a region is not registered any more", ("address", "bytes")),
    "unmapped": Kind("nothing is mapped where a region is registered", ("address", "bytes")),
    "page-private": Kind("FREE -> PRIVATE: a request takes the page under a fresh generation", ("from",)),
    "page-shared": Kind("PRIVATE -> SHARED: other requests can find the page by its content key", ("from", "key")),
    "page-dup": Kind(
        "PRIVATE -> DUP: its content is SHARED already, as page and generation `of`", ("from", "key", "of")
    ),
    "page-draining": Kind("released while grants are outstanding", ("from", "why")),
    "page-quarantined": Kind("an expired drain: counted, never read, never reused", ("from", "why")),
    "page-free": Kind("the page returns to the allocator; its generation ends", ("from", "why")),
    "granted": Kind("addresses of the page are about to be advertised to a peer", ("to", "bytes")),
    "grant-closed": Kind("stop evidence for a grant", ("evidence", "by")),
    "published": Kind("pages enter the prefix cache with these bytes", ("keys", "fingerprints")),
    "cache-hit": Kind(
        "a request takes a reference to a SHARED page in place of a transfer", ("key", "bytes", "references")
    ),
    "reference-dropped": Kind("a holder of a SHARED or DUP page is done with it", ("references",)),
    "ledger-violation": Kind(
        "a precondition of a transition did not hold, and the transition went on", ("transition", "rule", "caller")
    ),
    "refused": Kind("a guard refused what would have been event `refuses`", ("guard", "refuses", "why")),
    # prefill and decode: control messages
    "sent": Kind("a control message is published", ("id", "type", "to")),
    "received": Kind("a control message arrived", ("id", "type", "from")),
    "unreadable": Kind("a notification came whose bytes are no message", ("why",)),
    "ignored": Kind("a control message had no effect", ("id", "type", "why")),
    # metadata slots
    "slot-region": Kind("memory registered with the transport: the metadata slots", ("address", "bytes", "slots")),
    "slot-taken": Kind("an admitted request has a metadata slot", ("slot",)),
    "slot-freed": Kind("the request that had the slot has ended", ("slot",)),
    "slot-read": Kind(
        "the request takes its first token from its slot, written for `owner`",
        ("slot", "token", "owner", "owner_attempt"),
    ),
    # requests
    "submitted": Kind("the client's request arrived", ("prompt_tokens", "new_tokens")),
    "forwarded": Kind(
        "the client brought the request, with its reference, from prefill", ("prompt_tokens", "new_tokens")
    ),
    "queued": Kind("no pages: the request waits", ("needs", "free")),
    "admitted": Kind("the request has its pages", ("tickets",)),
    "grown": Kind("a request has taken one more page, for the tokens that it answers", ("token",)),
    "preempted": Kind(
        "the attempt ends: its pages are needed for another request; it comes again", ("needed_by", "answered")
    ),
    "batched": Kind("the request is in decode's steps from this one on", ("step", "size")),
    "retried": Kind("another prefill is to serve the request, into the same pages", ("before", "to")),
    "offered": Kind("a router has sent the request to prefill as well", ("prompt_tokens",)),
    "accepted": Kind("prefill took up an attempt", ("prompt_tokens", "tickets")),
    "committed": Kind("decode takes the KV as complete", ("fingerprints",)),
    "read": Kind("attention is about to read these page prefixes", ("token", "fingerprints")),
    "finished": Kind("the request answered", ("tokens",)),
    "timed-out": Kind("the request's time ran out", ("waited_ms",)),
    "aborted": Kind("the client gave up", ()),
    "abort-ignored": Kind("a client or a router gave the request up here, and it had no effect", ("why",)),
    "failed": Kind("the transfer failed and said so", ("why",)),
    "retracted": Kind("the scheduler took its pages back, and it waits again, as attempt `again`", ("again",)),
    "requeued": Kind("the same, and it waits again as the attempt that it was", ("again",)),
    "attempt-ended": Kind("prefill is done with an attempt, on the word of message `by` if there is one", ("why",)),
    "referenced": Kind("the prompt is computed: the client is given a reference to its pages", ("reference",)),
    "lease-expired": Kind("nobody renewed the lease of source pages in time", ("lease_ms",)),
    # one-sided writes
    "posted": Kind(
        "a write is about to be submitted; with `op` read, a read, whose `page` and `gen` are the reader's own",
        ("write", "batch", "lane", "layer", "chunk", "address", "bytes", "source_page", "fingerprint"),
    ),
    "completed": Kind("the writer's API returned for a batch", ("batch", "writes", "status", "code")),
    # evidence taken on demand
    "look": Kind("the receiver read its own memory", ("layer", "start", "end", "fingerprint", "why")),
    "chunks": Kind(
        "the chunks of what was seen under a fingerprint that nobody posted, as taken then", ("fingerprint", "chunks")
    ),
    "scan": Kind("pages never granted still hold this epoch's pattern", ("pages", "foreign")),
    "quiesced": Kind("the instance at rest", ("pool", "states", "leftovers")),
    "sockets": Kind("bytes on the data connections: the kernel's count and ours", ("lanes", "acked", "expected")),
    "rails": Kind("bytes that RDMA devices wrote for this process: theirs and ours", ("rails", "landed", "expected")),
    # gates
    "armed": Kind("a gate watches for what matches", ("hold", "gate", "match", "count")),
    "held": Kind("something real stopped at the gate", ("hold", "what")),
    "released": Kind("a held thing goes on", ("hold", "what")),
    "landed": Kind("the target applied a gated write and said so", ("hold", "what", "address", "bytes", "code")),
    "delivered": Kind(
        "a held message reached its subscriber's link, or the bytes of a gated read its reader's socket",
        ("hold", "what"),
    ),
    "dropped": Kind(
        "a held thing was lost; `reset` if its connection ended at both ends; `tear` or `corrupt` if it is a "
        "notification that broke off, or with a byte changed was no message any more",
        ("hold", "what"),
    ),
    "torn": Kind(
        "a gated write broke off, or what a gated read brings: its first `tear` bytes are there, the rest is lost",
        ("hold", "what", "address", "bytes", "tear"),
    ),
    "unlanded": Kind("a gated write could not be delivered to the target", ("hold", "what", "why")),
    "passed": Kind("an armed gate saw it and let it pass: a control", ("hold", "what")),
    "withheld": Kind("a write has landed, and its writer is not told", ("hold", "what")),
    "told": Kind(
        "what the writer of a withheld write is told after all: that it `completed`, or was `lost`",
        ("hold", "what", "as"),
    ),
    "counted": Kind("the gate's own byte counts beside the kernel's", ("gate", "counts")),
    # processes, as a schedule treats them
    "stopped": Kind("a step stopped every thread of a process", ("fault", "peer", "pid", "threads", "state")),
    "continued": Kind("a stopped process goes on", ("fault", "peer", "pid", "threads")),
    "killed": Kind(
        "a step killed a process; `idle` if it had reported all that it did", ("fault", "peer", "pid", "status", "idle")
    ),
    "restarted": Kind(
        "another process took the place of a killed one, at the same address",
        ("fault", "peer", "pid", "was_pid", "segment", "was_segment"),
    ),
    # local work of an instance, in the order of its stream
    "work-held": Kind("a piece of local work is stopped at the head of its stream", ("hold", "what", "op")),
    "work-released": Kind("it may start, as soon as what is before it has run", ("hold", "what", "op")),
    "work-done": Kind(
        "local work that had to wait has run; without a hold it waited behind another", ("hold", "what", "op")
    ),
    # queue pairs of an RDMA transport, as the verbs gate sees them
    "queue-pair": Kind("a queue pair's state, or its end", ("owner", "device", "qp", "state", "peer")),
    "registration": Kind(
        "memory was registered, or is not any more", ("owner", "device", "key", "address", "bytes", "valid")
    ),
    "work-request": Kind(
        "a request that was stopped, or came behind one, went further",
        ("owner", "device", "qp", "peer", "n", "move", "opcode", "key", "address", "bytes", "status"),
    ),
    # recorder
    "lost": Kind("events that the bounded recorder had to let go", ("count",)),
}

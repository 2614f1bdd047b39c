"""From the events of a history to the words of the specification.

Three tables say what each kind of event is: the beginning of an action (BEGINS), a thing that an
action in progress must report (the effects of the specification, read by DETAILS), or something
that a gate or an instance observed and that must agree with the state (OBSERVED). What the
conductor and the evidence take for themselves is in ASIDE. A kind in none of them is a gap in
the specification. `docs/validation.md` is made from these tables.

Steps that no event shows are explicit: a write lands before its successful completion, wherever
no gate saw it land. Where local work is queued a chunk is computed before it is posted, and pages are
zeroed as soon as they are taken, unless `work-done` says when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from racelab.engine.guards import GUARDS as OF_ENGINE
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.instances import ROLES
from racelab.model.spec.state import DECODE, FAULTS, GUARDS, LATE_FILL, LATE_FORWARD, PREFILL, Config, Effect, Shape
from racelab.scenario import Lab

ASIDE = frozenset(
    {
        *("run-started", "phase", "step", "step-done", "blocked", "halted", "gave-up", "died"),
        *("offered", "abort-ignored", "retried", "batched"),
        *("region", "look", "chunks", "scan", "sockets", "ledger-violation", "armed", "counted", "lost"),
        *("passed", "withheld", "told"),
        *("work-held", "work-released", "work-done", "slot-region", "slot-taken", "slot-freed", "slot-read"),
        *("rails", "registration", "queue-pair", "work-request"),
        *("stopped", "continued", "killed", "restarted", "unregistered", "unmapped"),
    }
)
"""Kinds that say nothing of the system's own steps."""

BEGINS: dict[str, str] = {
    "submitted": "Submit",
    "cache-hit": "Join",
    "reference-dropped": "Unjoin",
    "page-private": "Admit on decode, Accept on prefill",
    "admitted": "Admit, if the prefix cache has every page",
    "received": "Receive, or ReceiveCopy if the message comes once more",
    "timed-out": "TimeOut",
    "aborted": "Abort",
    "read": "Read",
    "finished": "Finish",
    "granted": "Post on prefill, Fill on decode",
    "completed": "Land for each write that has not landed, then Complete",
    "refused": "Expire or Evict, if a guard has something against it; GiveUp or GiveUpSource of the watchdog",
    "page-free": "Expire or Evict, if no guard has",
    "landed": "Land",
    "torn": "Land: a part of it is there",
    "dropped": "Lose",
}

OBSERVED: dict[str, str] = {
    "pool": "all pages are free, in the allocator's first order",
    "queued": "the first request of the queue does not find pages enough",
    "held": "the write is posted, or the message is sent",
    "released": "the write is posted, or the message is sent",
    "delivered": "the message is sent",
    "unlanded": "the write is posted",
    "quiesced": "the pages are in these states",
}

PULLED = frozenset({"forwarded", "referenced", "lease-expired"})
"""Kinds of labs whose decode pulls, of which the specification does not speak."""

PREEMPTED = frozenset({"grown", "preempted"})
"""Kinds of labs whose decode preempts."""

NO_PULLS = "pull is not modelled: the specification speaks of transfers that prefill pushes"

RETRACTED = frozenset({"retracted", "requeued"})
"""Kinds of a scheduler that takes pages back, of which it does not speak either."""

NO_RETRACTIONS = "retraction is not modelled: a request of the specification keeps its pages until it ends"


def beyond(lab: Lab) -> str | None:
    """What of a lab the specification does not speak of."""
    if lab.transfer == "pull":
        return NO_PULLS
    if len(lab.instances) > len(ROLES):
        return "the specification speaks of one prefill and one decode"
    if lab.streams:
        return "other streams are not modelled: a page of the specification holds the model's own KV alone"
    if lab.send == "layer-wise":
        return "layer-wise sending is not modelled: a rank of the specification reports a chunk as a whole"
    return None


ALWAYS = frozenset(GUARDS) - set(OF_ENGINE)
"""What the engine always does, though the specification can do without."""

NESTED = frozenset({"cache-hit", "reference-dropped", "refused", "page-free", "page-private", "admitted", "queued"})
"""An engine may admit the next request in the middle of another action, as soon as there are pages.

`refused` and `page-free` are of it where a SHARED page is evicted.
"""

ADMISSION = frozenset({"Join", "Evict", "Unjoin", "Admit", "Accept"})
"""The actions that may be amid others; none is amid one of these."""


def _tickets(event: Event) -> tuple[Any, ...]:
    return tuple((page, gen) for page, gen in event.data["tickets"])


def _read_pages(event: Event) -> tuple[Any, ...]:
    """The pages that were read, in order; each has one fingerprint a layer."""
    return tuple(dict.fromkeys((page, gen) for page, gen, *_ in event.data["fingerprints"]))


def _about(event: Event) -> tuple[int | None, bool]:
    """A message's chunk, and whether it tells of success."""
    data = event.data
    return data.get("chunk"), data.get("status", "ok") == "ok" and data.get("clean", True)


def _received(event: Event) -> tuple[Any, ...]:
    rank = (event.data.get("rank") or 0,) if event.data["type"] == "written" else ()
    return event.data["type"], *_about(event), *rank


def _sent(event: Event) -> tuple[Any, ...]:
    what = (event.data["type"], event.data["to"])
    if event.data["type"] not in _TELLING:
        return what
    rank = (event.data.get("rank") or 0,) if event.data["type"] == "written" else ()
    return *what, *_about(event), *rank


_TELLING = ("written", "abort-ack", "claimed", "release-source")
"""Messages that tell of success, or of none."""


DETAILS: dict[str, Callable[[Event], tuple[Any, ...]]] = {
    "submitted": lambda event: (),
    "page-private": lambda event: (event.data["from"],),
    "page-draining": lambda event: (event.data["from"],),
    "page-quarantined": lambda event: (event.data["from"],),
    "page-free": lambda event: (event.data["from"],),
    "admitted": lambda event: (event.data.get("hits", 0), *_tickets(event)),
    "cache-hit": lambda event: (event.data["key"], event.data["references"]),
    "reference-dropped": lambda event: (event.data["references"],),
    "published": lambda event: (tuple(map(tuple, event.data["keys"])), _read_pages(event)),
    "page-shared": lambda event: (event.data["from"], event.data["key"]),
    "page-dup": lambda event: (event.data["from"], event.data["key"], tuple(event.data["of"])),
    "accepted": _tickets,
    "granted": lambda event: (event.data["to"],),
    "grant-closed": lambda event: (event.data["evidence"],),
    "refused": lambda event: (event.data["guard"], event.data["refuses"]),
    "sent": _sent,
    "received": _received,
    "ignored": lambda event: (event.data["type"],),
    "committed": _read_pages,
    "read": _read_pages,
    "finished": lambda event: (),
    "timed-out": lambda event: (),
    "aborted": lambda event: (),
    "failed": lambda event: (),
    "attempt-ended": lambda event: (),
    **dict.fromkeys(PULLED | PREEMPTED | RETRACTED, lambda event: ()),
    "posted": lambda event: (event.data["chunk"], event.data["layer"], event.data["source_page"]),
}
"""The fields of an event that the specification fixes, beside its subject; `completed` needs the posted writes."""


def effect(event: Event, detail: tuple[Any, ...]) -> Effect:
    """The event as the specification would have announced it."""
    return Effect(event.kind, event.instance, event.request or "", event.attempt or 0, event.page, event.gen, detail)


def is_boundary(kind: str) -> bool:
    """Whether events of this kind are validated."""
    return kind in DETAILS or kind in BEGINS or kind in OBSERVED


def is_of_another_guard(config: Config, event: Event) -> bool:
    """Whether it is a refusal that the specification does not know to the event; what it changes shows elsewhere."""
    return event.kind == "refused" and event.data["guard"] not in config.reported


def config_of(history: History) -> Config:
    """The size and the guards of the system whose history this is."""
    lab = history.header.scenario.lab
    limit = lab.prefill_token_limit
    shapes: dict[str, Shape] = {}
    keys = _keys_of(history)
    for event in history.by_kind["submitted"]:
        prompt, new = event.data["prompt_tokens"], event.data["new_tokens"]
        pages = -(-(prompt + new) // lab.page_tokens)
        granted = -(-(prompt - 1) // lab.page_tokens)
        known = keys.get(event.request or "", {})
        full = range((prompt - 1) // lab.page_tokens if lab.prefix_cache else 0)
        own = tuple(known.get(place, f"{event.request}, page {place}") for place in full)
        shapes.setdefault(event.request or "", Shape(pages, granted, own, limit is not None and prompt > limit))
    parts = {LATE_FILL} if lab.zero_fill else set()
    if any(event.data["op"] == "forward" and event.instance == PREFILL for event in history.by_kind["work-held"]):
        parts.add(LATE_FORWARD)
    pools = {event.instance: event.data["pages"] for event in history.by_kind["pool"]}
    attempts = [event.attempt or 0 for event in history.by_kind["submitted"]]
    return Config(
        decode_pages=pools.get(DECODE, lab.decode_pages),
        prefill_pages=pools.get(PREFILL, lab.prefill_pages),
        shapes=shapes,
        attempts_max=max(attempts, default=1),
        layers=lab.layers,
        chunk_pages=max(1, lab.chunk_tokens // lab.page_tokens),
        guards=frozenset(history.header.guards) | ALWAYS,
        faults=frozenset(FAULTS),
        parts=frozenset(parts),
    )


def _keys_of(history: History) -> dict[str, dict[int, str]]:
    """The content keys of each request's full pages: those it was submitted with, else what the cache shows.

    Where none shows, the page was never published and no published page had its key, unless an
    engine overlooked a hit.
    """
    known: dict[str, dict[int, str]] = {}
    for event in history.by_kind["submitted"]:
        if "keys" in event.data:
            known[event.request or ""] = dict(enumerate(event.data["keys"]))
    return known or _shown_keys(history)


def _shown_keys(history: History) -> dict[str, dict[int, str]]:
    places: dict[tuple[str, int, int], int] = {}
    for event in history.by_kind["admitted"]:
        for place, (page, _) in enumerate(event.data["tickets"]):
            places[event.request or "", event.attempt or 0, page] = place
    known: dict[str, dict[int, str]] = {}
    for event in history.of("cache-hit", "page-shared", "page-dup"):
        subject = (event.request or "", event.attempt or 0, event.page or 0)
        if subject in places:
            known.setdefault(event.request or "", {})[places[subject]] = event.data["key"]
    return known

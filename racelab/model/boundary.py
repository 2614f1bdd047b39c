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
from racelab.model.spec.state import (
    BATCH,
    DECODE,
    FAULTS,
    GUARDS,
    LATE_FILL,
    LATE_FORWARD,
    LATE_REGISTER,
    PREFILL,
    PULL,
    REGISTER_BEFORE_SEND,
    ROUTER,
    Config,
    Effect,
    Shape,
)
from racelab.scenario.steps import Submit

ASIDE = frozenset(
    {
        *("run-started", "phase", "step", "step-done", "blocked", "halted", "gave-up", "died"),
        *("abort-ignored", "unreadable", "retried"),
        *("region", "look", "chunks", "scan", "sockets", "ledger-violation", "armed", "counted", "lost"),
        *("passed", "withheld", "told"),
        *("work-held", "work-released", "work-done", "slot-region"),
        *("rails", "registration", "queue-pair", "work-request"),
        *("stopped", "continued", "killed", "restarted", "unregistered", "unmapped"),
    }
)
"""Kinds that say nothing of the system's own steps."""

BEGINS: dict[str, str] = {
    "submitted": "Submit; where decode pulls, Request on prefill and Present on decode",
    "offered": "Offer",
    "referenced": "Refer",
    "forwarded": "Forward",
    "lease-expired": "Lapse",
    "failed": "Orphan",
    "attempt-ended": "GiveUpOffer",
    "cache-hit": "Join",
    "reference-dropped": "Unjoin",
    "page-private": "Admit on decode, Accept on prefill",
    "admitted": "Admit, if the prefix cache has every page",
    "received": "Receive, or ReceiveCopy if the message comes once more",
    "timed-out": "TimeOut",
    "aborted": "Abort",
    "read": "Read",
    "batched": "Enter, if its KV was complete while another was answered",
    "finished": "Finish",
    "granted": "Post on prefill, Fill on decode",
    "completed": "Land for each write that has not landed, then Complete, or CompleteRead on decode",
    "refused": "Expire or Evict, if a guard has something against it; GiveUp or GiveUpSource of the watchdog",
    "page-free": "Expire or Evict, if no guard has",
    "landed": "Land",
    "torn": "Land: a part of it is there",
    "dropped": "Lose",
}

OBSERVED: dict[str, str] = {
    "pool": "all pages are free, in the allocator's first order; Restart, if it is prefill's second",
    "queued": "the first request of the queue does not find pages enough",
    "held": "the write is posted, or the message is sent",
    "released": "the write is posted, or the message is sent",
    "delivered": "the message is sent",
    "unlanded": "the write is posted",
    "quiesced": "the pages are in these states",
}

RENEW = "renew"
"""Messages that change nothing but when a lease can end."""

PREEMPTED = frozenset({"grown", "preempted"})
"""Kinds of labs whose decode preempts."""

RETRACTED = frozenset({"retracted", "requeued"})
"""Kinds of a scheduler that takes pages back: replays do not follow it."""

NO_RETRACTIONS = (
    "retraction is not explained: what was answered is a part of the next attempt's prompt, and so of its pages"
)


def beyond(history: History) -> str | None:
    """What of a run the specification does not speak of."""
    scenario = history.header.scenario
    lab = scenario.lab
    if any(hold.action == "early-success" for hold in scenario.holds().values()):
        return "a transport that answers early is not modelled: in a history a write that has completed has landed"
    if len(lab.instances) > len(ROLES):
        return "the specification speaks of one prefill and one decode"
    if lab.transfer == "pull" and lab.ranks > 1:
        return "pulls by several ranks are not modelled: a pull of the specification has one handle"
    if lab.transfer == "pull" and lab.prefill_token_limit is not None:
        return "references to a placeholder are not modelled"
    if lab.preemption:
        return "preemption is not modelled: a request of the specification has all its pages from the first"
    if lab.max_batch is not None and lab.max_batch > 1:
        return "batches of more than one are not modelled: one request is answered, or all whose KV is complete"
    if lab.streams:
        return "other streams are not explained: their writes are posted in one batch with those of the KV"
    if lab.send == "layer-wise":
        return "layer-wise sending is not modelled: a rank of the specification reports a chunk as a whole"
    prompts = [event.data["prompt_tokens"] for event in history.by_kind["submitted"]]
    if lab.metadata_slots and any((tokens - 1) % lab.page_tokens == 0 for tokens in prompts):
        return "a prompt whose first token takes another source page is not modelled"
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
    **dict.fromkeys(PREEMPTED | RETRACTED, lambda event: ()),
    **dict.fromkeys(("forwarded", "referenced", "lease-expired", "offered"), lambda event: ()),
    "slot-taken": lambda event: (event.data["slot"],),
    "slot-freed": lambda event: (event.data["slot"],),
    "slot-read": lambda event: (event.data["slot"], event.data["owner"], event.data["owner_attempt"]),
}
"""The fields of an event that the specification fixes, beside its subject; `completed` needs the posted writes, and
`posted` the configuration."""


def posted(config: Config, event: Event) -> tuple[Any, ...]:
    """Of a write or read: its chunk, its layer in the specification, and its source."""
    if event.data.get("slot") is not None:
        return event.data["chunk"], None, None
    return event.data["chunk"], layer_of(config, event), event.data["source_page"]


def layer_of(config: Config, event: Event) -> int:
    """The specification's layer of a write: each rank's share of an engine's layer is one of its own."""
    if event.data.get("slot") is not None:
        return config.layers
    return int(event.data["layer"]) * config.ranks + (event.data.get("rank") or 0)


def effect(event: Event, detail: tuple[Any, ...]) -> Effect:
    """The event as the specification would have announced it."""
    return Effect(event.kind, event.instance, event.request or "", event.attempt or 0, event.page, event.gen, detail)


def is_boundary(kind: str) -> bool:
    """Whether events of this kind are validated."""
    return kind == "posted" or kind in DETAILS or kind in BEGINS or kind in OBSERVED


def is_of_another_guard(config: Config, event: Event) -> bool:
    """Whether it is a refusal that the specification does not know to the event; what it changes shows elsewhere."""
    return event.kind == "refused" and event.data["guard"] not in config.reported


def config_of(history: History) -> Config:
    """The size and the guards of the system whose history this is."""
    lab = history.header.scenario.lab
    limit = lab.prefill_token_limit
    rooms = _rooms_of(history)
    shapes: dict[str, Shape] = {}
    keys = _keys_of(history)
    for event in history.by_kind["submitted"]:
        prompt, new = event.data["prompt_tokens"], event.data["new_tokens"]
        pages = -(-(prompt + new) // lab.page_tokens)
        granted = -(-(prompt - 1) // lab.page_tokens)
        known = keys.get(event.request or "", {})
        full = range((prompt - 1) // lab.page_tokens if lab.prefix_cache else 0)
        own = tuple(known.get(place, f"{event.request}, page {place}") for place in full)
        shapes.setdefault(
            event.request or "",
            Shape(pages, granted, own, limit is not None and prompt > limit, rooms.get(event.request or "")),
        )
    guards = frozenset(history.header.guards) | ALWAYS
    parts = _parts_of(history, guards)
    pools = {event.instance: event.data["pages"] for event in history.by_kind["pool"]}
    attempts = [event.attempt or 0 for event in history.by_kind["submitted"]]
    return Config(
        decode_pages=pools.get(DECODE, lab.decode_pages),
        prefill_pages=pools.get(PREFILL, lab.prefill_pages),
        shapes=shapes,
        attempts_max=max(attempts, default=1),
        layers=lab.layers * lab.ranks,
        ranks=lab.ranks,
        slots=lab.metadata_slots or 0,
        chunk_pages=max(1, lab.chunk_tokens // lab.page_tokens),
        guards=guards,
        faults=frozenset(FAULTS),
        parts=frozenset(parts),
    )


def _parts_of(history: History, guards: frozenset[str]) -> set[str]:
    lab = history.header.scenario.lab
    parts = {LATE_FILL} if lab.zero_fill else set()
    parts |= {PULL} if lab.transfer == "pull" else set()
    parts |= {ROUTER} if lab.router else set()
    parts |= {BATCH} if lab.max_batch is not None else set()
    stopped = {(event.instance, event.data["op"]) for event in history.by_kind["work-held"]}
    if (PREFILL, "forward") in stopped:
        parts.add(LATE_FORWARD)
    if (DECODE, "register") in stopped:  # with its guard it is work before the pages are granted, as zeros are
        parts.add(LATE_FILL if REGISTER_BEFORE_SEND in guards else LATE_REGISTER)
    return parts


def _rooms_of(history: History) -> dict[str, str]:
    """The transfer ids that clients gave their requests."""
    rooms = {
        event.request or "": str(event.data["transfer"]) for event in history.of("sent") if "transfer" in event.data
    }
    for step in history.header.scenario.steps:
        if isinstance(step, Submit) and step.transfer_id is not None:
            rooms[step.request] = str(step.transfer_id)
    return rooms


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

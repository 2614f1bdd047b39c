"""Do all who saw a thing say the same of it?

A message has one sender, one receiver and perhaps a gate between them; a write has its writer, a
gate and the receiver's looks. Each reports the same request, attempt, page and generation, or the
history contradicts itself: then somebody changed it, or the lab is at fault, and nothing can be
concluded from it. What contradicts the rules of the system under test is the checkers' business.
"""

from __future__ import annotations

from collections.abc import Iterator

from racelab.evidence.events import TERMINAL_KINDS, Event
from racelab.evidence.history import History
from racelab.evidence.naming import attempt_name, number
from racelab.evidence.writes import Writes

_AT_A_GATE = (
    *("held", "released", "landed", "torn", "delivered", "dropped", "unlanded"),
    *("passed", "withheld", "told"),
)
_OWNER = ("request", "attempt")
_TICKET = (*_OWNER, "page", "gen")


def disagreement(history: History) -> str | None:
    """The first contradiction between two witnesses, in words; None if they agree."""
    for check in (_messages, _writes, _looks, _requests, _reservations):
        for words in check(history):
            return words
    return None


def _differing(a: Event, b: Event, fields: tuple[str, ...], *data: str) -> str | None:
    """The first field in which two events differ; data that one of them does not have is no difference."""
    for name in fields:
        if getattr(a, name) != getattr(b, name):
            return name
    for name in data:
        if name in a.data and name in b.data and a.data[name] != b.data[name]:
            return name
    return None


def _messages(history: History) -> Iterator[str]:
    before = history.causality.before
    sent = {event.data["id"]: event for event in history.by_kind["sent"]}
    for kind, key in (("received", "id"), ("ignored", "id"), *((kind, "what") for kind in _AT_A_GATE)):
        for event in history.by_kind[kind]:
            first = sent.get(event.data[key])
            if first is None:
                continue
            name = _differing(first, event, _OWNER, "type", "chunk", "rank", "stream", "status", "clean")
            if name is not None:
                yield f"{number(first)} and {number(event)} disagree about message {first.data['id']}: {name}"
            if kind == "received" and not before(first, event):
                yield f"{number(event)} has message {first.data['id']}, and does not know that {number(first)} sent it"


def _writes(history: History) -> Iterator[str]:
    writes = history.derived(Writes).by_id
    for kind in _AT_A_GATE:
        for event in history.by_kind[kind]:
            write = writes.get(event.data["what"])
            name = (
                _differing(write.posted, event, _TICKET, "address", "bytes", "layer", "rank", "stream", "chunk")
                if write
                else None
            )
            if write is not None and name is not None:
                yield f"{number(write.posted)} and {number(event)} disagree about write {write.id}: {name}"
    for event in history.by_kind["completed"]:
        for identity in event.data["writes"]:
            write = writes.get(identity)
            if write is None or event.request is None:
                continue
            if write.posted.instance != event.instance or _differing(write.posted, event, _OWNER) is not None:
                yield f"{number(write.posted)} and {number(event)} disagree about whose write {write.id} is"


def _looks(history: History) -> Iterator[str]:
    """A look is at the page that its write aims at, under the generation that the page then has."""
    taken: dict[tuple[str, int | None], int | None] = {}
    writes = history.derived(Writes).by_id
    for event in history.of("pool", "page-private", "look"):
        place = (event.instance, event.page)
        if event.kind == "pool":
            taken |= {(event.instance, page): event.data.get("generations_from", 0) for page in event.data["free"]}
        elif event.kind == "page-private":
            taken[place] = event.gen
        elif "slot" in event.data:
            continue
        elif event.gen != taken.get(place, 0):
            yield f"{number(event)} sees page {event.page} gen {event.gen}; the page is at gen {taken.get(place, 0)}"
        elif "write" in event.data and event.data["write"] in writes:
            write = writes[event.data["write"]]
            if (event.page, event.data["layer"]) != (write.posted.page, write.layer):
                yield f"{number(event)} does not look where write {write.id} goes ({number(write.posted)})"


def _requests(history: History) -> Iterator[str]:
    """Whoever is admitted, served or ended was submitted before, on the same instance."""
    submitted: set[tuple[str, str | None, int | None]] = set()
    for event in history.of("submitted", "forwarded", "admitted", "committed", "read", *TERMINAL_KINDS):
        attempt = (event.instance, event.request, event.attempt)
        if event.kind in ("submitted", "forwarded"):
            submitted.add(attempt)
        elif attempt not in submitted:
            yield f"{number(event)}: {attempt_name(event.request, event.attempt)} was never submitted"


def _reservations(history: History) -> Iterator[str]:
    """Whoever is taken up on the other side was reserved for before, and is done with once; a router may offer
    first, and a reserve may come again."""
    reserved: set[tuple[str, str | None, int | None]] = set()
    over: set[tuple[str, str | None, int | None]] = set()
    offered: set[tuple[str, str | None, int | None]] = set()
    for event in history.of("received", "submitted", "offered", "accepted", "attempt-ended"):
        attempt = (event.instance, event.request, event.attempt)
        if event.kind == "received":
            if event.data["type"] == "reserve":
                reserved.add(attempt)
                over.discard(attempt)
        elif event.kind == "submitted":  # to be pulled: the client came to prefill itself
            reserved.add(attempt)
        elif event.kind == "offered":
            offered.add(attempt)
        elif attempt not in reserved and not (event.kind == "attempt-ended" and attempt in offered):
            yield f"{number(event)}: {attempt_name(event.request, event.attempt)} was never reserved"
        elif event.kind == "attempt-ended":
            if attempt in over:
                yield f"{number(event)}: {attempt_name(event.request, event.attempt)} is done with twice"
            over.add(attempt)

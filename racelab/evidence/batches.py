"""Batches of writes: what was submitted together, and whether all of it met a hold that wants whole ones.

On the wire a batch is nothing: each of its writes is a header and its bytes on some connection of the pool. It is what
its writer submitted in one go, and what a gate learns of from the writer's announcement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from racelab.evidence.events import Event


def sizes(events: Iterable[Event]) -> dict[str, int]:
    """By batch, how many writes it has, as a gate's events say."""
    return {event.data["batch"]: event.data["batch_writes"] for event in events if "batch" in event.data}


def whole(events: Iterable[Event]) -> list[str]:
    """The batches all of whose writes have an event, in the order in which they came."""
    came = list(events)
    count = Counter(event.data.get("batch") for event in came)
    return [batch for batch, size in sizes(came).items() if count[batch] >= size]


def nth(events: list[Event], count: int) -> Event | None:
    """The last of these events, once so many batches are whole."""
    return events[-1] if len(whole(events)) >= count else None


def problems(held: list[Event], posted: Iterable[Event], count: int) -> list[str]:
    """What contradicts that so many whole batches (0: any number) were held, and nothing but them."""
    wrong = []
    found = sizes(held)
    if count and len(found) != count:
        wrong.append(f"writes of {len(found)} batch(es) were held, {count} asked for")
    submitted: dict[str, set[str]] = {batch: set() for batch in found}
    for event in posted:
        if event.data["batch"] in submitted:
            submitted[event.data["batch"]].add(event.data["write"])
    for batch, size in found.items():
        here = {event.data["what"] for event in held if event.data["batch"] == batch}
        if here != submitted[batch] or len(here) != size:
            wrong.append(f"batch {batch}: {len(here)} of its {max(size, len(submitted[batch]))} writes were held")
    return wrong

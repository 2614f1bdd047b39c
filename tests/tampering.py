"""One change to a history, with the numbers closed up: nothing but the meaning of the events gives it away.

Each takes the events, the place of the change and a source of chance; None if there is nothing to change there.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from racelab.evidence.events import Event

Tampering = Callable[[list[Event], int, random.Random], list[Event] | None]


def drop(events: list[Event], place: int, rng: random.Random) -> list[Event] | None:
    return events[:place] + events[place + 1 :]


def double(events: list[Event], place: int, rng: random.Random) -> list[Event] | None:
    copy = msgspec.structs.replace(events[place], after={})
    return [*events[: place + 1], copy, *events[place + 1 :]]


def exchange(events: list[Event], place: int, rng: random.Random) -> list[Event] | None:
    """With the next event of the same instance."""
    instance = events[place].instance
    later = [other for other in range(place + 1, len(events)) if events[other].instance == instance]
    if not later:
        return None
    changed = list(events)
    changed[place], changed[later[0]] = events[later[0]], events[place]
    return changed


def before_its_cause(events: list[Event], place: int, rng: random.Random) -> list[Event] | None:
    """A message arrives before it is sent."""
    event = events[place]
    if event.kind != "received":
        return None
    cause = next(at for at, one in enumerate(events) if one.kind == "sent" and one.data["id"] == event.data["id"])
    moved = msgspec.structs.replace(event, after={})
    return [*events[:cause], moved, *events[cause:place], *events[place + 1 :]]


def across_an_edge(events: list[Event], place: int, rng: random.Random) -> list[Event] | None:
    """What an instance did on hearing of another's event, it did before, and had not heard of it."""
    event = events[place]
    if not event.after:
        return None
    instance, seq = rng.choice(sorted(event.after.items()))
    cause = next((at for at, one in enumerate(events) if (one.instance, one.seq) == (instance, seq)), place)
    moved = msgspec.structs.replace(event, after={})
    return [*events[:cause], moved, *events[cause:place], *events[place + 1 :]]


def generation(events: list[Event], place: int, rng: random.Random) -> list[Event] | None:
    event = events[place]
    if event.gen is not None:
        return replaced(events, place, gen=event.gen + rng.choice((-1, 1)))
    for key in ("tickets", "fingerprints", "keys"):
        if event.kind != "submitted" and event.data.get(key):
            listed = [list(item) for item in event.data[key]]
            listed[rng.randrange(len(listed))][1] += 1
            return replaced(events, place, data=event.data | {key: listed})
    return None


def owner(events: list[Event], place: int, rng: random.Random) -> list[Event] | None:
    event = events[place]
    if event.request is None:
        return None
    others = sorted({other.request for other in events if other.request} - {event.request})
    if others and rng.random() < 0.5:
        return replaced(events, place, request=rng.choice(others))
    return replaced(events, place, attempt=(event.attempt or 0) + 1)


def fingerprint(events: list[Event], place: int, rng: random.Random) -> list[Event] | None:
    """Other bytes, or those of another range."""
    event = events[place]
    if event.kind == "posted":
        return replaced(events, place, data=event.data | {"fingerprint": "feedfeedfeedfeed"})
    if event.kind in ("committed", "published", "read") and event.data["fingerprints"]:
        rows = [list(row) for row in event.data["fingerprints"]]
        rows[rng.randrange(len(rows))][5] = rng.choice(["feedfeedfeedfeed", *(row[5] for row in rows)])
        return replaced(events, place, data=event.data | {"fingerprints": rows})
    return None


def replaced(events: list[Event], place: int, **fields: object) -> list[Event]:
    return [*events[:place], msgspec.structs.replace(events[place], **fields), *events[place + 1 :]]

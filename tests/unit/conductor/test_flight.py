"""What is on its way, from events in any order of arrival."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from racelab.conductor.flight import Flight
from racelab.evidence.events import Event

_numbers = itertools.count(1)


def event(kind: str, **data: Any) -> Event:
    return Event(kind=kind, instance="x", seq=next(_numbers), mono_ns=0, hlc=0, data=data)


SENT, RECEIVED = event("sent", id="m"), event("received", id="m")
POSTED, COMPLETED = event("posted", write="w"), event("completed", writes=["w"])


def held(what: str) -> Event:
    return event("held", what=what)


def released(what: str) -> Event:
    return event("released", what=what)


@pytest.mark.parametrize(
    ("events", "moving"),
    [
        ([SENT], {"m"}),
        ([SENT, RECEIVED], set()),
        ([SENT, held("m")], set()),
        ([SENT, held("m"), released("m")], {"m"}),
        ([SENT, held("m"), released("m"), event("delivered", what="m")], {"m"}),
        ([SENT, held("m"), released("m"), event("delivered", what="m"), RECEIVED], set()),
        ([SENT, held("m"), event("dropped", what="m")], set()),
        ([POSTED], {"w"}),
        ([POSTED, COMPLETED], set()),
        ([POSTED, held("w")], set()),
        ([POSTED, held("w"), COMPLETED], set()),
        ([POSTED, held("w"), COMPLETED, released("w")], {"w"}),
        ([POSTED, held("w"), COMPLETED, released("w"), event("landed", what="w")], set()),
        ([POSTED, held("w"), released("w"), event("landed", what="w")], {"w"}),
        ([POSTED, held("w"), event("dropped", what="w")], {"w"}),
        ([POSTED, held("w"), event("dropped", what="w"), COMPLETED], set()),
    ],
)
def test_what_moves(events: list[Event], moving: set[str]) -> None:
    for order in itertools.permutations(events):
        flight = Flight()
        for each in order:
            flight.see(each)
        assert flight.under_way == moving


def test_other_events_are_no_business_of_it() -> None:
    flight = Flight()
    flight.see(event("page-free", why="finished"))
    assert flight.under_way == set()

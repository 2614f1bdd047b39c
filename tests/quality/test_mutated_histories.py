"""Two hundred wrong histories: every one is refused, at the event where it begins to be wrong.

A history of the real engines is changed in one place: an event dropped, doubled, exchanged with its
neighbour, moved before its cause, or given another generation or owner. The numbers are closed up, so
that nothing but the meaning of the events can give the change away. What is accepted all the same
must be equivalent: it leads to the same state of the specification, up to messages still in the network.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import cache, partial

import histories
import pytest
from duet import Duet, sharing_and_eviction
from tampering import Tampering, before_its_cause, double, drop, exchange, generation, owner

from racelab.engine.decode import Decode
from racelab.engine.glue_faults import GLUE_FAULTS
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.model import boundary
from racelab.model.refusal import Refused
from racelab.model.replay import Replay
from racelab.model.spec.state import State
from racelab.scenario import Lab, Request

HISTORIES = 200
PREFIX = {"prefix": "system", "prefix_tokens": 32}
ENGINES = ("decode", "prefill")

AMID = ("queued", "cache-hit", "page-private", "admitted", "granted")
"""An admission may be amid whatever made room for it."""


@cache
def sharing() -> History:
    """The real engines: shared prefixes and eviction."""
    return histories.numbered(sharing_and_eviction())


@cache
def draining() -> History:
    duet = Duet({name: Request(prompt_tokens=25) for name in ("r1", "r2")}, Lab())
    duet.wire.held = True
    duet.submit("r1")
    duet.play()
    duet.decode.abort("r1")
    duet.play()
    duet.submit("r2")
    duet.wire.held = False
    duet.play()
    duet.submit("r1")
    return histories.numbered(duet.history())


@cache
def expired() -> History:
    duet = Duet({name: Request(prompt_tokens=25) for name in ("r1", "r2")}, Lab())
    duet.wire.held = True
    duet.submit("r1")
    duet.play()
    duet.clock.advance(duet.lab.request_timeout_ms)
    duet.clock.advance(duet.lab.drain_timeout_ms)
    duet.submit("r2")
    duet.wire.held = False
    duet.play()
    return histories.numbered(duet.history())


RECORDED = (sharing, draining, expired)


MUTATIONS: dict[str, Tampering] = {
    "drop": drop,
    "double": double,
    "exchange": exchange,
    "before its cause": before_its_cause,
    "generation": generation,
    "owner": owner,
}


def mutated(number: int) -> tuple[str, History, int, History]:
    """The mutation's name, the right history, the place of the change, and the wrong history."""
    rng = random.Random(number)
    while True:
        right = RECORDED[number % len(RECORDED)]()
        name = sorted(MUTATIONS)[number // len(RECORDED) % len(MUTATIONS)]
        places = [
            place
            for place, event in enumerate(right.events)
            if event.instance in ENGINES and boundary.is_boundary(event.kind)
        ]
        place = rng.choice(places)
        events = MUTATIONS[name](right.events, place, rng)
        if events is not None:
            return name, right, place, History(right.header, histories.renumbered(events))


@cache
def end_of(index: int) -> State:
    replay = Replay(RECORDED[index]())
    assert replay.run() is None
    return replay.state


def right_places(name: str, wrong: History, place: int, changed: Event) -> range:
    """Where the change begins to contradict the specification."""
    if name == "before its cause":
        cause = next(at for at, event in enumerate(wrong.events) if same_message(event, changed))
        return range(cause, cause + 1)
    if name in ("generation", "owner"):
        return range(place, place + 1)
    if name == "double" and changed.kind != "received":
        return range(place + 1, place + 2)
    instance = [at for at in range(place, len(wrong.events)) if wrong.events[at].instance == changed.instance]
    if changed.kind == "completed":  # several are reported at once, before what the first of them means
        meant = (at for at in instance if wrong.events[at].data.get("by") == changed.data["batch"])
        return range(place, next(meant) + 1)
    instance = [at for at in instance if wrong.events[at].kind not in AMID] if name == "drop" else instance
    if changed.kind == "posted":  # the writes of a chunk may be posted in any order
        return range(place, next(at for at in instance if wrong.events[at].kind != "posted") + 1)
    if name == "double":  # a second copy may arrive; that nothing is reported of it may not, but for an admission
        others = (at for at in instance[2:] if wrong.events[at].kind not in ("page-private", "accepted"))
        return range(place + 1, next(others) + 1)
    return range(place, instance[0 if name == "drop" else 1] + 1)


def same_message(event: Event, changed: Event) -> bool:
    return event.kind == "received" and event.data["id"] == changed.data["id"]


def judged(number: int) -> tuple[str, Refused | None]:
    """Check one history; returns what was done to it and how it was refused."""
    name, right, place, wrong = mutated(number)
    replay = Replay(wrong)
    refused = replay.run()
    changed = right.events[place]
    about = f"{name} {changed.kind} of {changed.request} on {changed.instance} ({number})"
    if refused is None:
        expected = end_of(number % len(RECORDED))
        assert replay.state._replace(net=frozenset()) == expected._replace(net=frozenset()), about
        assert name not in ("generation", "owner", "before its cause"), about
    else:
        assert refused.event is not None, about
        at = wrong.events.index(refused.event)
        assert at in right_places(name, wrong, place, changed), (about, refused.event, refused.why)
    return name, refused


@pytest.mark.parametrize("number", range(HISTORIES))
def test_a_wrong_history_is_refused_where_it_begins_to_be_wrong(number: int) -> None:
    judged(number)


def test_most_of_them_are_wrong() -> None:
    results = [judged(number) for number in range(HISTORIES)]
    refused = Counter(name for name, refusal in results if refusal is not None)
    accepted = Counter(name for name, refusal in results if refusal is None)
    assert accepted.total() <= HISTORIES // 8
    assert set(accepted) <= {"drop", "double", "exchange"}
    assert all(refused[name] > HISTORIES // 12 for name in MUTATIONS)


FAULTS = {
    "completion-credited-to-wrong-generation": "grant-closed",
    "release-skips-ledger": "page-free",
    "publish-before-commit": "page-shared",
}
"""Lies of decode to its ledger, and what the specification misses or does not expect."""


@pytest.mark.parametrize("fault", GLUE_FAULTS)
def test_a_fault_between_engine_and_ledger_is_a_bug_of_the_engine(fault: str) -> None:
    requests = {name: Request(prompt_tokens=size, **PREFIX) for name, size in (("r1", 40), ("r2", 43))}
    duet = Duet(requests, build=partial(Decode, glue=GLUE_FAULTS[fault]))
    duet.submit("r1")
    duet.play()
    duet.submit("r2")
    refused = Replay(duet.history()).run()
    assert refused is not None
    assert refused.gap == "engine bug"
    assert any(FAULTS[fault] in words for words in (refused.why, str(refused.event), *refused.expected))

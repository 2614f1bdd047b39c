"""Three hundred tampered histories: each really wrong one is found, each equivalent one is not flagged.

Right histories are changed in one place (`tampering`): an owner, a generation, a fingerprint, the order across
a causal edge, an event dropped or doubled or exchanged with its neighbour. Whether that made it wrong is
said by `oracle`, which is slow, obviously right, and shares no code with the checkers. What is found
is a violation, or `unknown` where evidence is missing, or a contradiction between two witnesses.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import histories
import pytest
from duet import Duet, sharing_and_eviction
from msgspec import structs
from oracle import complaints
from tampering import (
    Tampering,
    across_an_edge,
    before_its_cause,
    double,
    drop,
    exchange,
    fingerprint,
    generation,
    owner,
)

from checkers import conservation, finality, integrity, isolation
from checkers.ordinary.glance import look
from racelab.evidence.agreement import disagreement
from racelab.evidence.history import History, read
from racelab.model import boundary
from racelab.scenario import Lab, Request

TAMPERED = 300
CHECKERS = (isolation, integrity, finality, conservation)

TAMPERINGS: dict[str, Tampering] = {
    "owner": owner,
    "generation": generation,
    "fingerprint": fingerprint,
    "across an edge": across_an_edge,
    "before its cause": before_its_cause,
    "dropped": drop,
    "doubled": double,
    "exchanged": exchange,
}

FINDS_ALL = ("owner", "generation", "fingerprint")


@cache
def clean() -> History:
    return histories.play(histories.CLEAN, histories.LEDGER)


@cache
def late_into_quarantine() -> History:
    """The near miss: writes that land on quarantined pages."""
    return histories.play(histories.LATE_INTO_QUARANTINE, histories.LEDGER)


@cache
def stale_message() -> History:
    """The near miss: a second copy of what prefill says of an attempt, refused."""
    return histories.play(histories.STALE_MESSAGE, histories.LEDGER)


@cache
def aborted() -> History:
    return histories.play(histories.ABORTED, histories.LEDGER)


@cache
def sharing() -> History:
    """The real engines: shared prefixes and eviction."""
    return sharing_and_eviction()


@cache
def draining() -> History:
    """The real engines: an abort while writes are on their way."""
    duet = Duet({name: Request(prompt_tokens=25) for name in ("r1", "r2")}, Lab())
    duet.wire.held = True
    duet.submit("r1")
    duet.play()
    duet.decode.abort("r1")
    duet.play()
    duet.submit("r2")
    duet.wire.held = False
    duet.play()
    return duet.history()


RIGHT = (clean, late_into_quarantine, stale_message, aborted, sharing, draining)


def found(history: History) -> list[str]:
    """What the checkers and the comparison of witnesses say against a history."""
    said = [
        f"{checker.SPEC} {result.outcome}: {result.why or result.findings[0].what}"
        for checker in CHECKERS
        if (result := checker.rules(history)).outcome != "held"
    ]
    said += [f"{history.lost} lost"] if history.lost else []
    said += ["disorder"] if history.disorder is not None else []
    contradiction = disagreement(history)
    return said + ([contradiction] if contradiction is not None else [])


def tampered(number: int) -> tuple[str, str, History]:
    """The tampering's name, what it was done to, and the history that came of it."""
    rng = random.Random(number)
    right = histories.numbered(RIGHT[number % len(RIGHT)]())
    name = sorted(TAMPERINGS)[number // len(RIGHT) % len(TAMPERINGS)]
    places = [
        place
        for place, event in enumerate(right.events)
        if event.instance in ("decode", "prefill") and boundary.is_boundary(event.kind)
    ]
    while True:
        place = rng.choice(places)
        events = TAMPERINGS[name](right.events, place, rng)
        if events is not None:
            event = right.events[place]
            about = f"{name} {event.kind} {event.instance}:{event.seq} of {event.request} ({number})"
            return name, about, History(right.header, histories.renumbered(events))


@pytest.mark.parametrize("right", RIGHT, ids=lambda right: right.__name__)
def test_a_right_history_is_not_flagged(right: Callable[[], History]) -> None:
    assert complaints(histories.numbered(right())) == []
    assert found(histories.numbered(right())) == []


@pytest.mark.parametrize("number", range(TAMPERED))
def test_what_is_wrong_is_found_and_what_is_equivalent_is_not_flagged(number: int) -> None:
    _, about, history = tampered(number)
    assert bool(found(history)) == bool(complaints(history)), (about, complaints(history), found(history))


@pytest.mark.parametrize("number", range(TAMPERED))
def test_the_glance_at_a_file_says_what_the_full_rules_say_or_nothing(number: int, tmp_path: Path) -> None:
    _, about, history = tampered(number)
    agree_from_file(history, tmp_path, about)


def agree_from_file(history: History, folder: Path, about: object) -> bool:
    """Whether the glance found the history ordinary; then it gave the answers of the full rules."""
    history.write(folder / "history.jsonl")
    stored = read(folder)
    ordinary = look(stored)
    for checker in CHECKERS:
        result = checker.rules(history)
        assert checker.check(stored) == result, about
        assert ordinary is None or (result.outcome, result.coverage) == ("held", ordinary[checker.SPEC]), about
    return ordinary is not None


@pytest.mark.parametrize(
    "right", [clean, aborted, sharing, draining, late_into_quarantine], ids=lambda right: right.__name__
)
def test_serving_in_which_every_write_arrived_is_ordinary(right: Callable[[], History], tmp_path: Path) -> None:
    assert agree_from_file(histories.numbered(right()), tmp_path, right)


def test_a_second_attempt_is_for_the_full_rules(tmp_path: Path) -> None:
    assert not agree_from_file(histories.numbered(stale_message()), tmp_path, stale_message)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("held", {"action": "early-success"}),
        ("held", {"what": "another"}),
        ("released", {"what": "another"}),
        ("landed", {"code": 5}),
        ("landed", {"what": "another"}),
        ("completed", {"status": "failed"}),
    ],
)
def test_a_write_that_a_gate_had_and_that_did_not_plainly_arrive_is_for_the_full_rules(
    kind: str, data: dict[str, object], tmp_path: Path
) -> None:
    right = histories.numbered(late_into_quarantine())
    changed = next(event for event in right.events if event.kind == kind and event.request in ("r1", None))
    events = [structs.replace(event, data=event.data | data) if event is changed else event for event in right.events]
    assert not agree_from_file(History(right.header, events), tmp_path, kind)


@pytest.mark.parametrize("right", [clean, late_into_quarantine, draining], ids=lambda right: right.__name__)
def test_whose_word_stop_evidence_is_matters_to_the_glance_as_to_the_rules(
    right: Callable[[], History], tmp_path: Path
) -> None:
    """Each closed grant in turn, on the word of messages that its owner or somebody else sent or will send."""
    history = histories.numbered(right())
    rng = random.Random(1)
    words = [event.data["id"] for event in history.by_kind["sent"]]
    for closed in history.by_kind["grant-closed"]:
        for word in rng.sample(words, 6):
            other = structs.replace(closed, data=closed.data | {"by": word})
            events = [other if event is closed else event for event in history.events]
            agree_from_file(History(history.header, events), tmp_path, (closed, word))


FEATURES = {
    "prefix cache": Lab(prefix_cache=True, decode_pages=8),
    "layer-wise": Lab(send="layer-wise"),
    "ranks": Lab(ranks=2),
    "pull": Lab(transfer="pull"),
    "slots": Lab(metadata_slots=4),
    "router": Lab(router=True),
    "scales": Lab(streams=("scales",)),
    "draft": Lab(streams=("draft",)),
    "preemption": Lab(preemption=True),
    "small batches": Lab(max_batch=1),
    "zero fill": Lab(zero_fill=True),
}


@pytest.mark.parametrize("feature", FEATURES)
def test_whatever_an_engine_can_do_the_glance_says_what_the_rules_say_or_nothing(feature: str, tmp_path: Path) -> None:
    """As the real engines do it, and ten tamperings of that."""
    sizes = {"r1": 40, "r2": 43, "r3": 25}
    requests = {
        name: Request(prompt_tokens=size, new_tokens=6, prefix="s", prefix_tokens=16) for name, size in sizes.items()
    }
    duet = Duet(requests, FEATURES[feature])
    duet.submit(*sizes)
    duet.play()
    history = histories.numbered(duet.history())
    agree_from_file(history, tmp_path, feature)
    rng = random.Random(feature)
    for name in rng.choices(sorted(TAMPERINGS), k=10):
        place = rng.randrange(len(history.events))
        events = TAMPERINGS[name](history.events, place, rng)
        if events is not None:
            agree_from_file(History(history.header, histories.renumbered(events)), tmp_path, (feature, name, place))


def test_most_of_them_are_wrong_and_some_are_not() -> None:
    wrong = Counter()
    for number in range(TAMPERED):
        name, _, history = tampered(number)
        wrong[name, bool(complaints(history))] += 1
    assert all(wrong[name, True] for name in TAMPERINGS), wrong
    assert sum(count for (_, is_wrong), count in wrong.items() if is_wrong) > TAMPERED // 2, wrong
    assert sum(count for (_, is_wrong), count in wrong.items() if not is_wrong) > TAMPERED // 20, wrong

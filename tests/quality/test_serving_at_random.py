"""Mixed serving in any order: shared prefixes, aborts at any moment, evictions, slow writes.

The engines of `duet` are real; what varies is who comes when, who gives up and how small the pool is.
With every guard no specification may be violated and no precondition may fail, whatever the order.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from duet import Duet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkers import conservation, finality, integrity, isolation
from checkers.ordinary.glance import look
from racelab.engine.guards import GUARDS
from racelab.evidence.history import History, read
from racelab.scenario import Lab, Request

CHECKS = {check.__module__: check for check in (conservation.check, finality.check, integrity.check, isolation.check)}


ENDINGS = {"tell-peer-of-end", "stop-posting-on-abort", "ack-when-drained"}
"""Without these what prefill knows of an attempt, or says of it, is wrong, and its pages with it."""


@dataclass(frozen=True)
class Turn:
    """A request comes, something happens for a while, and maybe somebody gives up."""

    prompt_tokens: int
    new_tokens: int
    prefix: str | None
    gives_up: int | None
    """how many turns ago the request came that is given up now"""
    held: bool
    """whether bytes stay on their way until a later turn"""
    events: int
    """after how many events the next turn begins"""


turns = st.lists(
    st.builds(
        Turn,
        prompt_tokens=st.integers(2, 60),
        new_tokens=st.integers(1, 5),
        prefix=st.sampled_from([None, "a", "b"]),
        gives_up=st.none() | st.integers(0, 2),
        held=st.booleans(),
        events=st.integers(1, 60),
    ),
    min_size=2,
    max_size=8,
)


def request(turn: Turn) -> Request:
    shared = min(33, turn.prompt_tokens - 1) if turn.prefix is not None else 0
    prefix = turn.prefix if shared else None
    return Request(prompt_tokens=turn.prompt_tokens, new_tokens=turn.new_tokens, prefix=prefix, prefix_tokens=shared)


def serve(turns: list[Turn], pages: int, guards: Iterable[str] = tuple(GUARDS)) -> Duet:
    names = [f"r{number}" for number in range(len(turns))]
    requests = dict(zip(names, map(request, turns), strict=True))
    lab = Lab(prefix_cache=True, decode_pages=pages, prefill_pages=pages, layers=1)
    duet = Duet(requests, lab=lab, guards=guards)
    for number, turn in enumerate(turns):
        duet.wire.held = turn.held
        duet.submit(names[number])
        until = len(duet.events) + turn.events
        duet.play(until=lambda event, until=until: len(duet.events) >= until)
        if turn.gives_up is not None and turn.gives_up <= number:
            duet.decode.abort(names[number - turn.gives_up])
    return duet


def held_to_the_rules(history: History) -> None:
    """A glance at the file answers what the full rules answer, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "history.jsonl"
        history.write(file)
        ordinary = look(read(file))
    for checker in (conservation, finality, integrity, isolation):
        result = checker.rules(history)
        assert ordinary is None or (result.outcome, result.coverage) == ("held", ordinary[checker.SPEC])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(turns=turns, pages=st.integers(5, 9))
def test_nothing_is_violated_in_any_order(turns: list[Turn], pages: int) -> None:
    history = serve(turns, pages).history()
    assert not history.by_kind["ledger-violation"]
    for spec, check in CHECKS.items():
        result = check(history)
        assert result.outcome != "violated", (spec, [finding.what for finding in result.findings])
    held_to_the_rules(history)
    left = [event.data["leftovers"] for event in history.by_kind["quiesced"]]
    assert not any(any(counts.values()) for counts in left), left


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(turns=turns, pages=st.integers(5, 9), guards=st.sets(st.sampled_from(sorted(GUARDS))))
def test_whatever_guards_are_missing_the_engines_go_on_and_the_checkers_answer(
    turns: list[Turn], pages: int, guards: set[str]
) -> None:
    history = serve(turns, pages, sorted(guards)).history()
    held_to_the_rules(history)
    answers = {spec: check(history).outcome for spec, check in CHECKS.items()}
    assert set(answers.values()) <= {"held", "violated", "unknown"}
    if not history.by_kind["ledger-violation"] and guards >= ENDINGS:
        assert answers["checkers.conservation"] != "violated"

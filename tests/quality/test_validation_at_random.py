"""Whatever order requests come and go in, and whatever guards are missing, the specification explains the engines."""

from __future__ import annotations

import test_serving_at_random as at_random
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from racelab.engine.guards import GUARDS
from racelab.model.replay import Replay


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(turns=at_random.turns, pages=st.integers(5, 9), guards=st.sets(st.sampled_from(sorted(GUARDS))))
def test_every_event_is_explained_unless_the_books_are_wrong(
    turns: list[at_random.Turn], pages: int, guards: set[str]
) -> None:
    """Without its guards an engine may give a page to two requests; what it then publishes and finds is no ledger's."""
    history = at_random.serve(turns, pages, sorted(guards)).history()
    refused = Replay(history).run()
    if not history.by_kind["ledger-violation"]:
        assert refused is None, (refused.event, refused.why, refused.expected[:3], refused.difference)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(turns=at_random.turns, pages=st.integers(5, 9))
def test_with_all_guards_every_event_is_explained(turns: list[at_random.Turn], pages: int) -> None:
    refused = Replay(at_random.serve(turns, pages).history()).run()
    assert refused is None, (refused.event, refused.why, refused.expected[:3], refused.difference)

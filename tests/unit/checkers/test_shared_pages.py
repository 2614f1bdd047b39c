"""What the checkers make of SHARED and DUP pages: clean sharing, seeded bugs, and what only looks like one."""

from __future__ import annotations

import histories
import pytest
from duet import Duet
from histories import kind

from checkers import conservation, finality, integrity, isolation
from racelab.evidence.history import History
from racelab.scenario import Lab, Request

PREFIX = {"prefix": "system", "prefix_tokens": 32}
REQUESTS = {
    "r1": Request(prompt_tokens=40, **PREFIX),
    "r2": Request(prompt_tokens=43, **PREFIX),
    "r3": Request(prompt_tokens=33, **PREFIX),
    "r4": Request(prompt_tokens=70),
}
CHECKS = {
    "isolation": isolation.check,
    "integrity": integrity.check,
    "finality": finality.check,
    "conservation": conservation.check,
}


def outcomes(history: History) -> dict[str, str]:
    return {spec: check(history).outcome for spec, check in CHECKS.items()}


HELD = dict.fromkeys(CHECKS, "held")


@pytest.fixture(scope="module")
def shared() -> History:
    """r1 publishes, r2 and r3 take its pages, r4 pushes one of them out."""
    duet = Duet(REQUESTS)
    for names in (("r1",), ("r2", "r3"), ("r4",)):
        duet.submit(*names)
        duet.play()
    return duet.history()


@pytest.fixture(scope="module")
def doubled() -> History:
    """r1 and r2 come at once, so each fills pages of its own with the same content."""
    duet = Duet(REQUESTS)
    duet.submit("r1", "r2")
    duet.play()
    return duet.history()


def test_sharing_and_eviction_are_clean(shared: History) -> None:
    assert outcomes(shared) == HELD
    result = integrity.check(shared)
    assert result.coverage["hits"] == 4
    assert result.coverage["mismatches"] == 0
    evicted = [event for event in shared.by_kind["page-free"] if event.data["why"] == "evicted"]
    assert len(evicted) == 1
    assert not shared.by_kind["ledger-violation"]


def test_a_hit_moves_no_bytes_and_what_is_behind_it_does(shared: History) -> None:
    posted = [event.data["bytes"] for event in shared.by_kind["posted"] if event.request == "r2"]
    assert posted == [10 * 4096] * 2
    assert not [event for event in shared.by_kind["posted"] if event.request == "r3"]


def test_duplicates_are_clean(doubled: History) -> None:
    assert outcomes(doubled) == HELD
    assert len(doubled.by_kind["page-dup"]) == 2
    states = doubled.by_kind["quiesced"][0].data["states"]
    assert states == {"SHARED": 2, "FREE": 4}


def test_a_hit_that_reads_other_bytes_than_were_published(shared: History) -> None:
    read = next(event for event in shared.by_kind["read"] if event.request == "r2")
    rows = [list(row) for row in read.data["fingerprints"]]
    rows[0][5] = "0123456789abcdef"
    wrong = histories.changed(shared, kind("read", request="r2"), data={"fingerprints": rows})
    assert outcomes(wrong) == HELD | {"integrity": "violated"}
    finding = integrity.check(wrong).findings[0]
    assert (finding.page, finding.layer, finding.bytes) == (rows[0][0], 0, (0, 65536))
    assert finding.owner == "r1 attempt 1 gen 1"


def test_a_hit_by_another_key_than_the_page_was_published_under(shared: History) -> None:
    wrong = histories.changed(shared, kind("cache-hit", request="r2"), data={"key": "f" * 32})
    assert outcomes(wrong) == HELD | {"integrity": "violated"}
    assert "was published as" in integrity.check(wrong).findings[0].what


def test_what_is_published_must_have_arrived() -> None:
    """Without its guard a page can be found at admission; the writes come, but later."""
    duet = Duet(REQUESTS, guards=())
    duet.wire.held = True
    duet.submit("r1", "r3")
    duet.play()
    result = integrity.check(duet.history())
    assert result.outcome == "violated"
    assert any("r1 attempt 1 publishes page" in finding.what for finding in result.findings)
    assert any("r3 attempt 1 reads page" in finding.what for finding in result.findings)


def test_an_eviction_under_a_reader(shared: History) -> None:
    """The same events, but r4 took its page while r2 still read it."""
    wrong = histories.without(shared, lambda event: event.kind == "reference-dropped" and event.request == "r2")
    assert outcomes(wrong) == HELD | {"conservation": "violated"}
    assert any("may read it" in finding.what for finding in conservation.check(wrong).findings)


def test_a_read_without_a_reference(shared: History) -> None:
    wrong = histories.without(shared, kind("cache-hit", request="r2"))
    assert outcomes(wrong)["isolation"] == "violated"
    assert any("r2 attempt 1 takes page" in finding.what for finding in isolation.check(wrong).findings)


def test_a_page_in_two_states(doubled: History) -> None:
    wrong = histories.changed(doubled, kind("page-free", request="r2"), data={"from": "SHARED"})
    assert outcomes(wrong) == HELD | {"conservation": "violated"}


def test_a_reference_given_back_twice(shared: History) -> None:
    dropped = kind("reference-dropped", request="r2")
    event = next(event for event in shared.events if dropped(event))
    wrong = histories.with_extra(shared, lambda one: one is event, data=event.data)
    assert outcomes(wrong) == HELD | {"conservation": "violated"}


def test_books_that_do_not_count_shared_pages(shared: History) -> None:
    at_rest = kind("quiesced", "decode")
    states = next(event for event in shared.events if at_rest(event)).data["states"]
    wrong = histories.changed(shared, at_rest, data={"states": {"FREE": sum(states.values())}})
    assert outcomes(wrong) == HELD | {"conservation": "violated"}


def test_a_page_that_is_published_and_never_read_again_is_no_leftover(shared: History) -> None:
    at_rest = shared.by_kind["quiesced"][0]
    assert at_rest.data["states"]["SHARED"] > 0
    assert not any(at_rest.data["leftovers"].values())


def test_an_abort_gives_its_references_back() -> None:
    duet = Duet(REQUESTS, lab=Lab(prefix_cache=True, decode_pages=9))
    duet.submit("r1")
    duet.play()
    duet.wire.held = True
    duet.submit("r2")
    duet.play()
    duet.decode.abort("r2")
    history = duet.history()
    assert outcomes(history) == HELD
    assert [event.request for event in history.by_kind["aborted"]] == ["r2"]
    assert [event.data["references"] for event in history.by_kind["reference-dropped"]][-2:] == [0, 0]

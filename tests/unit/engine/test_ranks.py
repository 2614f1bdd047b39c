"""Two ranks: each has some of the heads, writes them by itself and ends by itself."""

from __future__ import annotations

import pytest
from duet import Duet

from checkers import conservation, finality, integrity, isolation
from racelab.engine.guards import GUARDS
from racelab.engine.handles import Handles
from racelab.evidence.events import Event
from racelab.scenario import Lab, Request
from racelab.verdict import judge

CHECKERS = {module.SPEC: module.check for module in (isolation, integrity, finality, conservation)}
OWN = "every-handle-stopped"


def duet(ranks: int, guards: set[str] | None = None) -> Duet:
    made = Duet(
        {name: Request(prompt_tokens=25, new_tokens=3) for name in ("r1", "r2")},
        Lab(ranks=ranks),
        set(GUARDS) if guards is None else guards,
    )
    made.submit("r1")
    return made


def of(duet: Duet, kind: str) -> list[Event]:
    return [event for event in duet.events if event.kind == kind]


def test_a_split_model_answers_as_a_whole_one() -> None:
    answers = []
    for ranks in (1, 2, 4):
        split = duet(ranks)
        split.play()
        answers.append(of(split, "finished")[0].data["tokens"])
    assert answers[0] == answers[1] == answers[2]


def test_each_rank_posts_and_reports_its_own_share() -> None:
    split = duet(2)
    split.play()
    posted, written = of(split, "posted"), [event for event in of(split, "received") if event.data["type"] == "written"]
    assert {(event.data["layer"], event.data["rank"]) for event in posted} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert {(event.data["chunk"], event.data["rank"]) for event in written} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert len({row[2] for row in of(split, "committed")[0].data["fingerprints"]}) == 4
    history = split.history()
    assert {spec: check(history).outcome for spec, check in CHECKERS.items()} == dict.fromkeys(CHECKERS, "held")


def test_a_chunk_has_arrived_when_every_rank_says_so() -> None:
    handles = Handles(2, {(0, 0), (0, 1), (1, 0), (1, 1)})
    assert not handles.note(0, 1, ok=True)
    assert not handles.note(1, 0, ok=False)
    assert handles.outstanding == 2
    assert not handles.note(0, 1, ok=True), "the same news once more"
    assert handles.note(0, 0, ok=True)


@pytest.mark.parametrize("guarded", [True, False])
def test_one_ranks_failure_is_not_the_end_of_the_other(guarded: bool) -> None:
    split = duet(2, set(GUARDS) - (set() if guarded else {OWN}))
    split.wire.fails = lambda write: write.identity.rank == 0
    split.play(until=lambda event: event.kind == "failed")
    refused = [event for event in of(split, "refused") if event.data["guard"] == OWN]
    closed = [event for event in of(split, "grant-closed") if event.instance == "decode"]
    assert len(refused) == guarded
    if guarded:
        assert "3 other handle(s)" in refused[0].data["why"]
        assert refused[0].data["refuses"] == "grant-closed"
        assert closed == []
    else:
        assert {event.data["evidence"] for event in closed} == {"failure-report"}
    split.play()
    result = conservation.check(split.history())
    assert (result.outcome == "held") == guarded
    if not guarded:
        assert "'failure-report' is no stop evidence" in result.findings[0].what


def test_a_wrong_byte_is_told_by_its_layer_and_rank() -> None:
    split = duet(2)
    split.play(until=lambda event: event.kind == "committed")
    page = of(split, "admitted")[0].data["tickets"][0][0]
    split.memory(page, 3)[100] ^= 1  # the fourth block: layer 1 of rank 1
    split.play()
    verdict = judge(split.history(), CHECKERS)
    wrong = [finding for finding in verdict.evidence if finding.spec == "integrity"]
    assert {(finding.layer, finding.rank) for finding in wrong} == {(1, 1)}
    assert "layer 1 rank 1" in wrong[0].what

"""Streams beside the model's own KV: in the same pages, written and reported by themselves, committed together."""

from __future__ import annotations

import pytest
import torch
from duet import Duet

from checkers import conservation, finality, integrity, isolation
from racelab.engine.guards import GUARDS
from racelab.engine.pool import PagePool
from racelab.engine.transformer import HEADS, Transformer
from racelab.evidence.events import Event
from racelab.scenario import Lab, Request
from racelab.verdict import judge

CHECKERS = {module.SPEC: module.check for module in (isolation, integrity, finality, conservation)}
OWN = "commit-together"


def duet(lab: Lab, guards: set[str] | None = None) -> Duet:
    made = Duet({"r1": Request(prompt_tokens=25, new_tokens=3)}, lab, set(GUARDS) if guards is None else guards)
    made.submit("r1")
    return made


def of(duet: Duet, kind: str) -> list[Event]:
    return [event for event in duet.events if event.kind == kind]


def answer(lab: Lab) -> list[int]:
    made = duet(lab)
    made.play()
    tokens: list[int] = of(made, "finished")[0].data["tokens"]
    return tokens


@pytest.mark.parametrize("ranks", [1, 2])
def test_scales_change_no_answer_and_are_no_ones(ranks: int) -> None:
    assert answer(Lab(streams=("scales",), ranks=ranks)) == answer(Lab())
    pool = PagePool(2, 2, 16, ranks=ranks, streams=("scales",))
    Transformer(2).fill(list(range(20)), 0, pool.cache, [1, 0])
    assert pool.kv.abs().max() <= 1
    exponents = pool.cache[0].scales.log2()  # type: ignore[union-attr]
    written = exponents[exponents.isfinite()]
    assert len(written) == 20 * 2 * HEADS // ranks * ranks
    assert torch.equal(written, written.round())


@pytest.mark.parametrize(
    "lab", [Lab(streams=("scales",)), Lab(streams=("scales",), ranks=2), Lab(streams=("scales",), prefix_cache=True)]
)
def test_all_streams_are_fingerprinted_and_every_specification_holds(lab: Lab) -> None:
    made = duet(lab)
    made.play()
    rows = of(made, "committed")[0].data["fingerprints"]
    assert len(rows) == 2 * lab.layers * lab.ranks * 2
    pool = made.pools["decode"]
    assert {(pool.blocks[row[2]].stream, row[4] * lab.ranks) for row in rows} == {
        *(("kv", size * 4096) for size in (16, 8)),
        *(("scales", size * 64) for size in (16, 8)),
    }
    assert {(event.data["stream"], event.data["layer"]) for event in of(made, "posted")} == {
        (stream, layer) for stream in ("kv", "scales") for layer in (0, 1)
    }
    history = made.history()
    assert {spec: check(history).outcome for spec, check in CHECKERS.items()} == dict.fromkeys(CHECKERS, "held")


@pytest.mark.parametrize("guarded", [True, False])
def test_kv_is_committed_when_its_scales_are_there(guarded: bool) -> None:
    made = duet(Lab(streams=("scales",)), set(GUARDS) - (set() if guarded else {OWN}))
    made.wire.fails = lambda write: write.identity.stream == "scales"
    made.play()
    assert bool(of(made, "committed")) != guarded
    if guarded:
        refused = [event for event in of(made, "refused") if event.data["guard"] == OWN]
        assert {event.data["refuses"] for event in refused} == {"committed"}
        assert "a part of scales failed" in refused[0].data["why"]
        assert of(made, "failed")
        assert integrity.check(made.history()).outcome != "violated"
        return
    verdict = judge(made.history(), CHECKERS)
    wrong = [finding for finding in verdict.evidence if finding.spec == "integrity"]
    assert {(finding.stream, finding.layer) for finding in wrong} == {("scales", 0), ("scales", 1)}
    assert "the page is torn, its kv is right" in wrong[0].what


def test_late_scales_are_waited_for() -> None:
    made = duet(Lab(streams=("scales",)))
    made.lose = lambda message: message.type == "written" and message.stream == "scales"
    made.play()
    assert of(made, "committed") == []
    assert any("a part of scales has not arrived" in event.data["why"] for event in of(made, "refused"))


def test_a_wrong_kv_beside_right_scales_is_torn_as_well() -> None:
    made = duet(Lab(streams=("scales",)))
    made.play(until=lambda event: event.kind == "committed")
    page = of(made, "admitted")[0].data["tickets"][0][0]
    made.memory(page, 1)[100] ^= 1
    made.play()
    finding = next(found for found in judge(made.history(), CHECKERS).evidence if found.spec == "integrity")
    assert (finding.stream, finding.layer) == ("kv", 1)
    assert "the page is torn, its scales is right" in finding.what


DRAFTED = Lab(streams=("draft",))


@pytest.mark.parametrize(
    "lab",
    [
        DRAFTED,
        Lab(streams=("draft", "scales"), ranks=2),
        Lab(streams=("draft",), send="layer-wise", metadata_slots=1),
    ],
    ids=["plain", "ranks and scales", "layers and slots"],
)
def test_a_draft_model_proposes_and_changes_no_answer(lab: Lab) -> None:
    made = duet(lab)
    made.play()
    (finished,) = of(made, "finished")
    assert finished.data["tokens"] == answer(Lab())
    assert len(finished.data["drafted"]) == 3
    rows = [row for row in of(made, "committed")[0].data["fingerprints"] if row[2] >= lab.layers * lab.ranks]
    streams = [made.pools["decode"].blocks[row[2]].stream for row in rows]
    assert streams.count("draft") == 2 * lab.ranks
    history = made.history()
    assert {spec: check(history).outcome for spec, check in CHECKERS.items()} == dict.fromkeys(CHECKERS, "held")


def test_the_draft_models_kv_is_its_own_and_leaves_when_it_is_computed() -> None:
    made = duet(Lab(streams=("draft",), send="layer-wise"))
    made.play()
    posted = [(event.data["stream"], event.data["layer"]) for event in of(made, "posted") if event.data["chunk"] == 0]
    assert posted == [("kv", 0), ("kv", 1), ("draft", 0)]
    seen = {event.data["fingerprint"] for event in of(made, "posted")}
    assert len(seen) == 2 * 3


def test_only_fingerprints_tell_of_a_wrong_draft() -> None:
    right, made = duet(DRAFTED), duet(DRAFTED, set(GUARDS) - {OWN})
    right.play()
    made.wire.fails = lambda write: write.identity.stream == "draft"
    made.play()
    (finished,), (alone,) = of(made, "finished"), of(right, "finished")
    assert finished.data["tokens"] == alone.data["tokens"]
    assert finished.data["drafted"] != alone.data["drafted"]
    verdict = judge(made.history(), CHECKERS)
    assert {finding.stream for finding in verdict.evidence if finding.spec == "integrity"} == {"draft"}

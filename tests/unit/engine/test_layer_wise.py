"""Layer-wise sending: each layer leaves as soon as it is computed, and is reported by itself."""

from __future__ import annotations

import pytest
from duet import Duet

from checkers import conservation, finality, integrity, isolation
from racelab.engine.guards import GUARDS
from racelab.engine.outgoing import Outgoing
from racelab.evidence.events import Event
from racelab.scenario import Lab, Request
from racelab.verdict import judge

CHECKERS = {module.SPEC: module.check for module in (isolation, integrity, finality, conservation)}
OWN = "commit-when-whole"
LAYERED = Lab(send="layer-wise")


def duet(lab: Lab = LAYERED, guards: set[str] | None = None) -> Duet:
    return Duet({"r1": Request(prompt_tokens=25, new_tokens=3)}, lab, set(GUARDS) if guards is None else guards)


def of(duet: Duet, kind: str) -> list[Event]:
    return [event for event in duet.events if event.kind == kind]


@pytest.mark.parametrize(
    "lab",
    [
        LAYERED,
        Lab(send="layer-wise", ranks=2, streams=("scales",)),
        Lab(send="layer-wise", metadata_slots=1, layers=3, prefix_cache=True),
    ],
    ids=["plain", "ranks and scales", "slots and cache"],
)
def test_it_answers_as_one_that_sends_chunks_and_every_specification_holds(lab: Lab) -> None:
    layered, whole = duet(lab), duet(Lab(layers=lab.layers))
    answers = []
    for made in (layered, whole):
        made.submit("r1")
        made.play()
        answers.append(of(made, "finished")[0].data["tokens"])
    assert answers[0] == answers[1]
    told = [event for event in of(layered, "received") if event.data["type"] == "written"]
    assert {(event.data["chunk"], event.data["layer"]) for event in told} == {
        (chunk, layer) for chunk in (0, 1) for layer in range(lab.layers)
    }
    history = layered.history()
    assert {spec: check(history).outcome for spec, check in CHECKERS.items()} == dict.fromkeys(CHECKERS, "held")


def test_a_layer_is_there_before_the_next_one_is_computed() -> None:
    made = duet()
    made.prefill.work.arm("f1", {"on": "prefill", "op": "forward", "layer": 1}, 1)
    made.submit("r1")
    made.play()
    told = [event for event in of(made, "received") if event.data["type"] == "written"]
    assert [(event.data["chunk"], event.data["layer"]) for event in told] == [(0, 0)]
    assert of(made, "committed") == []
    made.prefill.work.release("f1")
    made.play()
    assert of(made, "finished")
    (done,) = [event for event in of(made, "work-done") if event.data.get("layer") == 1 and event.data["chunk"] == 0]
    assert {row[2] for row in done.data["fingerprints"]} == {1}
    assert integrity.check(made.history()).outcome == "held"


@pytest.mark.parametrize("guarded", [True, False])
def test_the_last_layer_is_not_the_end_of_all(guarded: bool) -> None:
    made = duet(guards=set(GUARDS) - (set() if guarded else {OWN}))
    made.lose = lambda message: message.type == "written" and message.layer == 0
    made.submit("r1")
    made.play()
    assert bool(of(made, "committed")) != guarded
    if guarded:
        refused = [event for event in of(made, "refused") if event.data["guard"] == OWN]
        assert {event.data["refuses"] for event in refused} == {"committed"}
        assert "2 part(s) have not been heard of" in refused[0].data["why"]


def test_an_attempt_that_ends_between_two_layers_frees_its_source() -> None:
    made = duet()
    made.prefill.work.arm("f1", {"on": "prefill", "op": "forward", "layer": 1}, 1)
    made.submit("r1")
    made.play()
    made.decode.abort("r1")
    made.play()
    made.prefill.work.release("f1")
    made.play()
    assert {event.data["layer"] for event in of(made, "posted")} == {0}
    verdict = judge(made.history(), CHECKERS)
    assert [finding.what for finding in verdict.evidence] == []
    assert made.prefill.ledger.counts() == {"FREE": 8}


def test_a_page_is_free_of_the_nic_when_all_that_was_posted_of_it_has_gone() -> None:
    outgoing = Outgoing()
    for page in (1, 2):
        outgoing.begin(page, 2)
        outgoing.post(page, 1)
    assert not outgoing.succeed(1, "b1")
    assert outgoing.stop() == {1: "b1"}
    assert outgoing.stop() == {}
    assert outgoing.succeed(2, "b2")
    assert 1 in outgoing

"""Labs with several prefills and decodes: what a scenario may ask of them, who is asked, and that all of it serves."""

from __future__ import annotations

import pytest
from duet import Duet

from checkers import conservation, finality, integrity, isolation
from racelab import scenario
from racelab.conductor.places import Places
from racelab.errors import DocumentError, UsageError
from racelab.lab import cluster
from racelab.scenario import Lab, Request, Scenario
from racelab.scenario.step_problems import posters
from racelab.scenario.steps import Submit, read_aloud

HEAD = "scenario: s\nabout: a\nlab: {prefills: 2, decodes: 2}\nrequests: {r1: {prompt-tokens: 13}}\nsteps:\n"


def load(*steps: str, head: str = HEAD) -> Scenario:
    return scenario.loads(head + "".join(f"  - {step}\n" for step in steps))


def test_steps_name_instances_and_read_aloud_and_dump_as_they_were_written() -> None:
    loaded = load(
        "hold: {id: w1, write: {request: r1, writer: prefill-2}}",
        "hold: {id: m1, message: {type: written, sender: prefill-2, to: decode-2}}",
        "submit: {request: r1, prefill: prefill-2, decode: decode-2}",
        "await: {event: admitted, request: r1, instance: decode-2}",
        "abort: {request: r1, at: prefill-2}",
        "kill: decode-2",
        "stop: prefill",
        "continue: prefill",
        "stop: prefill-2",
        "continue: prefill-2",
    )
    aloud = [read_aloud(step) for step in loaded.steps]
    assert aloud[2:5] == [
        "submit r1 to prefill-2 and decode-2",
        "await admitted request r1, instance decode-2",
        "abort r1 at prefill-2",
    ]
    assert scenario.loads(scenario.dump(loaded)) == loaded
    assert loaded.lab.instances == ["prefill", "prefill-2", "decode", "decode-2"]
    assert len(loaded.process_faults()) == 5


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("submit: {request: r1, prefill: decode}", "no prefill 'decode' in this lab; known here: prefill, prefill-2"),
        (
            "submit: {request: r1, decode: decode-3}",
            "no decode 'decode-3' in this lab; did you mean 'decode-2' or 'decode'?",
        ),
        ("kill: prefill-3", "no process 'prefill-3'; did you mean 'prefill-2' or 'prefill'?"),
        (
            "hold: {id: w1, write: {writer: decode}}",
            "no prefill 'decode' in this lab; known here: prefill, prefill-2",
        ),
        (
            "abort: {request: r1, at: router}",
            "no instance 'router' in this lab; known here: prefill, prefill-2, decode, decode-2",
        ),
    ],
)
def test_what_the_lab_does_not_have_is_told_with_its_line(step: str, problem: str) -> None:
    with pytest.raises(DocumentError) as raised:
        load(step)
    assert (6, problem) in [(each.line, each.what) for each in raised.value.problems]


def test_a_lab_is_not_of_any_size() -> None:
    with pytest.raises(DocumentError, match="prefills: 4 at most"):
        load("submit: r1", head=HEAD.replace("prefills: 2", "prefills: 5"))


def test_whoever_could_post_is_told_of_a_hold() -> None:
    loaded = load("hold: {id: a, write: {request: r1}}", "hold: {id: b, write: {writer: prefill-2}}").holds()
    assert posters(loaded["a"], loaded_instances()) == ["prefill", "prefill-2"]
    assert posters(loaded["b"], loaded_instances()) == ["prefill-2"]


def loaded_instances() -> list[str]:
    return Lab(prefills=2, decodes=2).instances


def test_an_abort_goes_to_whoever_has_the_request() -> None:
    places = Places(None)
    places.send("r1", Submit(request="r1", prefill="prefill-2", decode="decode-2"), {})
    assert places.asked("r1", "decode") == ["decode-2"]
    assert places.asked("r1", "both") == ["prefill-2", "decode-2"]
    assert places.asked("r1", "prefill-3") == ["prefill-3"]
    assert places.asked("r2", "both") == ["prefill", "decode"]


def test_a_cluster_says_where_it_has_no_room() -> None:
    cluster.load("local").check_room(loaded_instances())
    with pytest.raises(UsageError, match="no place for prefill-2"):
        cluster.load("softroce").check_room(loaded_instances())


def test_two_prefills_fill_the_pages_of_one_decode_and_everything_holds() -> None:
    lab = Lab(prefills=2)
    duet = Duet({"r1": Request(prompt_tokens=25), "r2": Request(prompt_tokens=25)}, lab)
    duet.submit("r1")
    duet.submit("r2", prefill="prefill-2")
    duet.play()
    history = duet.history()
    posted = {event.request: event.instance for event in history.by_kind["posted"]}
    assert posted == {"r1": "prefill", "r2": "prefill-2"}
    assert len({event.data["write"] for event in history.by_kind["posted"]}) == len(history.by_kind["posted"])
    for checker in (isolation, integrity, finality, conservation):
        assert checker.check(history).outcome == "held"

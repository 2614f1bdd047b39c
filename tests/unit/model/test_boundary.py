"""The tables that map events to the specification's words."""

from __future__ import annotations

from duet import Duet

from racelab.evidence.events import KINDS
from racelab.model import boundary
from racelab.model.spec.state import Shape
from racelab.scenario import Lab, Request


def test_every_kind_of_event_has_a_place_in_the_tables() -> None:
    aside = boundary.ASIDE
    assert [kind for kind in KINDS if kind not in aside and not boundary.is_boundary(kind)] == []
    assert [kind for kind in aside if boundary.is_boundary(kind)] == []


def test_the_configuration_is_that_of_the_lab_and_its_requests() -> None:
    lab = Lab(prefix_cache=True, decode_pages=8, page_tokens=16, chunk_tokens=32)
    duet = Duet({"a": Request(prompt_tokens=49, prefix="s", prefix_tokens=32), "b": Request(prompt_tokens=9)}, lab)
    duet.submit("a", "b")
    duet.play()
    config = boundary.config_of(duet.history())
    assert (config.decode_pages, config.prefill_pages, config.layers, config.chunk_pages) == (8, 8, 2, 2)
    assert config.shapes["a"][:2] == (4, 3)
    assert len(config.shapes["a"].keys) == 3
    assert config.shapes["b"] == Shape(1, 1)
    assert config.chunks("a") == 2


def test_without_the_prompts_keys_those_that_the_cache_shows_are_taken() -> None:
    duet = Duet({"a": Request(prompt_tokens=33), "b": Request(prompt_tokens=33)})
    duet.submit("a")
    duet.play()
    duet.wire.held = True
    duet.submit("b")
    duet.play()
    duet.decode.abort("b")
    history = duet.history()
    told = boundary.config_of(history).shapes
    for event in history.by_kind["submitted"]:
        del event.data["keys"]
    shown = boundary.config_of(history).shapes
    assert shown["a"].keys == told["a"].keys
    assert shown["b"].keys == ("b, page 0", "b, page 1")  # never published: its own, whatever they were

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import made_by_hand
import pytest

from racelab.evidence.history import History
from racelab.report.callouts import callouts
from racelab.report.figure import figure
from racelab.report.form import COMPACT, FULL
from racelab.report.layout import PAGES_MAX
from racelab.report.scene import build
from racelab.report.spacetime import spacetime
from racelab.report.window import choose

BOTH = [made_by_hand.eager, made_by_hand.ledger]


def drawn(made: Any) -> tuple[History, ElementTree.Element]:
    history, verdict = made()
    return history, ElementTree.fromstring(spacetime(build(history, verdict), verdict, standalone=True))


def of_class(svg: ElementTree.Element, *names: str) -> list[ElementTree.Element]:
    """Elements that have all of these classes."""
    return [node for node in svg.iter() if set(names) <= set(node.get("class", "").split())]


def before_probe(history: History) -> list[Any]:
    stop = next(i for i, event in enumerate(history.events) if event.data.get("phase") == "probe")
    return history.events[:stop]


@pytest.mark.parametrize("made", BOTH)
def test_one_arrow_for_each_message_and_each_write(made: Any) -> None:
    history, svg = drawn(made)
    events = before_probe(history)
    writes = [event.data["write"] for event in events if event.kind == "posted"]
    messages = [event.data["id"] for event in events if event.kind == "sent"]
    assert sorted(node.get("data-id", "") for node in of_class(svg, "flight", "write")) == sorted(writes)
    assert sorted(node.get("data-id", "") for node in of_class(svg, "flight", "message")) == sorted(messages)


@pytest.mark.parametrize("made", BOTH)
def test_a_held_write_stops_at_the_gate_and_goes_on_to_its_page(made: Any) -> None:
    history, svg = drawn(made)
    held = {event.data["what"] for event in history.of("held") if event.page is not None}
    for node in of_class(svg, "flight", "write"):
        strokes = [line for line in node.iter() if line.get("class") == "wr"]
        assert len(strokes) == (2 if node.get("data-id") in held else 1)


def test_each_hold_is_a_bar_from_its_first_stop_to_its_last_release() -> None:
    history, verdict = made_by_hand.eager()
    scene = build(history, verdict)
    assert [bar.hold for bar in scene.bars] == ["w1", "n2"]
    for bar in scene.bars:
        stops = [scene.y(event) for event in history.of("held") if event.data["hold"] == bar.hold]
        ends = [scene.y(event) for event in history.of("released") if event.data["hold"] == bar.hold]
        assert (bar.top, bar.bottom) == (min(filter(None, stops)), max(filter(None, ends)))
    assert scene.bars[0].column != scene.bars[1].column


def test_writes_on_another_requests_pages_are_starred_and_the_margin_says_whose() -> None:
    _, svg = drawn(made_by_hand.eager)
    assert len(of_class(svg, "landing", "foreign")) == 4
    margin = " ".join("".join(node.itertext()) for node in of_class(svg, "callout"))
    assert "r1 writes into r2's memory" in margin
    assert "r2 answers wrongly" in margin


def test_under_the_ledger_nothing_is_starred_and_the_refusal_is_in_the_margin() -> None:
    _, svg = drawn(made_by_hand.ledger)
    assert of_class(svg, "foreign") == []
    assert len(of_class(svg, "landing")) == 4
    margin = " ".join("".join(node.itertext()) for node in of_class(svg, "callout"))
    assert "drain-before-free refuses" in margin
    assert "The late writes meet nobody" in margin


def test_the_strip_shows_owners_generations_and_draining() -> None:
    for made, wanted in (
        (made_by_hand.eager, {(4, "r1", 1, "PRIVATE"), (4, "r2", 2, "PRIVATE")}),
        (made_by_hand.ledger, {(5, "r1", 1, "PRIVATE"), (5, "r1", 1, "DRAINING"), (3, "r2", 1, "PRIVATE")}),
    ):
        history, verdict = made()
        segments = build(history, verdict).segments
        shown = {(s.page, s.holding.request, s.holding.gen, s.holding.state) for s in segments if s.holding}
        assert wanted <= shown


@pytest.mark.parametrize("made", BOTH)
def test_causal_order_is_top_to_bottom(made: Any) -> None:
    history, verdict = made()
    layout = build(history, verdict).layout
    ys = [layout.of(event) for event in history.events]
    placed = [y for y in ys if y is not None]
    assert placed == sorted(placed)
    assert len(set(placed)) == len(placed)


@pytest.mark.parametrize("form", [FULL, COMPACT])
@pytest.mark.parametrize("made", BOTH)
def test_no_label_stands_on_another(made: Any, form: Any) -> None:
    history, verdict = made()
    scene = build(history, verdict, form)
    lanes: dict[str, list[tuple[float, float]]] = {}
    for label in scene.layout.labels:
        height = 14.0 * len(label.lines)
        lanes.setdefault(label.lane.name, []).append((label.y, label.y + height))
    boxes = [(callout.y, callout.y + callout.height) for callout in callouts(scene, verdict)]
    for spans in [*lanes.values(), boxes]:
        for (_, above), (below, _) in pairwise(sorted(spans)):
            assert below >= above


@pytest.mark.parametrize("made", BOTH)
def test_every_text_is_inside_the_picture(made: Any) -> None:
    _, svg = drawn(made)
    width, height = (float(value) for value in svg.get("viewBox", "").split()[2:])
    for node in svg.iter("{http://www.w3.org/2000/svg}text"):
        if node.get("x") is None or node.get("transform"):
            continue
        assert 0 <= float(node.get("x", "")) <= width
        assert 0 <= float(node.get("y", "")) <= height


def test_real_times_stand_beside_the_axis() -> None:
    history, verdict = made_by_hand.eager()
    times = build(history, verdict).layout.times
    assert [ms for _, ms in times] == sorted(ms for _, ms in times)
    first = history.events[0].mono_ns
    steps = {round((event.mono_ns - first) / 1e6, 3) for event in history.of("step")}
    assert len(steps & {round(ms, 3) for _, ms in times}) >= 10


def test_a_lost_message_and_a_write_still_held_are_shown_as_such() -> None:
    tape = made_by_hand.Tape()
    tape.at("decode", "submitted", "r1", prompt_tokens=25, new_tokens=4)
    tape.at("decode", "granted", "r1", page=1, gen=1, to="prefill", bytes=1)
    sent, identity = tape.send("abort", "decode", "prefill", "r1")
    tape.at("bus", "held", "r1", after=sent, hold="n1", what=identity, type="abort")
    tape.at("bus", "dropped", "r1", hold="n1", what=identity, type="abort")
    posted = tape.post("r1", 1, 1, 0, 0, "gate")
    tape.at("wire", "held", "r1", page=1, gen=1, after=posted, hold="w1", what=posted.data["write"])
    history = made_by_hand._history(tape, "eager", [])
    scene = build(history, {"verdict": "inconclusive"})
    assert [(bar.hold, bar.open_ended) for bar in scene.bars] == [("n1", False), ("w1", True)]
    svg = ElementTree.fromstring(spacetime(scene, {"verdict": "inconclusive"}, standalone=True))
    (message,) = of_class(svg, "flight", "message")
    assert len([line for line in message.iter() if line.get("class") == "lost"]) == 2


def long_history() -> tuple[History, dict[str, Any]]:
    """The late write after 300 requests that nothing happens to."""
    tape = made_by_hand.Tape()
    for number in range(300):
        step = tape.step(f"submit q{number}")
        tape.at("decode", "submitted", f"q{number}", after=step, prompt_tokens=25, new_tokens=4)
        tape.at("decode", "page-private", f"q{number}", page=0, gen=number + 1, from_="FREE")
        tape.at("decode", "granted", f"q{number}", page=0, gen=number + 1, to="prefill", bytes=1)
        tape.at("decode", "page-free", f"q{number}", page=0, gen=number + 1, from_="PRIVATE", why="finished")
    history, verdict = made_by_hand.eager()
    shift = tape.events[-1].hlc - history.events[0].hlc + 1_000
    for event in history.events:
        event.hlc += shift
        event.seq += 10_000
    for finding in verdict["evidence"]:
        finding["events"] = [re.sub(r"\d+$", lambda m: str(int(m[0]) + 10_000), e) for e in finding["events"]]
    return History(history.header, [*tape.events, *history.events]), verdict


def test_a_long_history_is_cut_to_the_evidence_and_says_so() -> None:
    history, verdict = long_history()
    window = choose(history, verdict, FULL)
    assert len(window.events) == FULL.events_max
    assert sum(event.kind == "landed" for event in window.events) == 4
    assert window.note is not None
    assert str(FULL.events_max) in window.note


def test_owners_from_before_the_window_are_known_in_it() -> None:
    history, verdict = long_history()
    scene = build(history, verdict, COMPACT)
    assert sum(landing.foreign for landing in scene.landings) == 4


def test_of_many_pages_those_of_the_evidence_are_shown() -> None:
    tape = made_by_hand.Tape()
    tape.at("decode", "granted", "r1", page=1, gen=1, to="prefill", bytes=1)
    for page in range(40):
        for _ in range(2 if page < 39 else 1):
            freed = tape.at("decode", "page-free", "r1", page=page, gen=1, from_="PRIVATE", why="x")
    verdict = {"verdict": "moved", "evidence": [{"spec": "conservation", "events": [f"decode:{freed.seq}"]}]}
    pages = build(made_by_hand._history(tape, "eager", []), verdict).layout.pages
    assert len(pages) == PAGES_MAX
    assert 39 in pages


def test_the_figure_stands_alone_and_is_smaller() -> None:
    history, verdict = made_by_hand.eager()
    small = ElementTree.fromstring(figure(history, verdict))
    _, full = drawn(made_by_hand.eager)
    assert float(small.get("width", "")) < 0.75 * float(full.get("width", ""))
    assert float(small.get("height", "")) < float(full.get("height", ""))
    assert len(of_class(small, "landing", "foreign")) == 4
    style = next(small.iter("{http://www.w3.org/2000/svg}style")).text or ""
    assert "prefers-color-scheme: dark" in style
    title = next(iter(small))
    assert title.tag.endswith("title")
    assert title.text

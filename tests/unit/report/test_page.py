from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import made_by_hand
import msgspec
import pytest

from racelab.errors import HistoryError
from racelab.evidence.history import History
from racelab.report import figure
from racelab.report.page import render, write
from racelab.scenario import SPECIFICATIONS
from racelab.scenario.steps import read_aloud

BOTH = [made_by_hand.eager, made_by_hand.ledger]
VOID = {"meta", "br", "img", "link", "input", "hr"}


class Page(HTMLParser):
    """Collects what a test asks of a page, and that every element is closed in turn."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, key, value or "") for key, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, key, value or "") for key, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def rendered(made: Any) -> tuple[History, dict[str, Any], Page]:
    history, verdict = made()
    return history, verdict, Page(render(history, verdict, {"versions": {"ray": "2.55.1"}}))


@pytest.mark.parametrize("made", BOTH)
def test_every_element_is_closed_in_turn(made: Any) -> None:
    assert rendered(made)[2].open == []


@pytest.mark.parametrize("made", BOTH)
def test_nothing_is_fetched_from_anywhere(made: Any) -> None:
    history, verdict = made()
    html = render(history, verdict)
    page = Page(html)
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert [value for _, key, value in page.attributes if key in ("src", "srcset", "data")] == []
    assert all(value.startswith("#") for _, key, value in page.attributes if key in ("href", "xlink:href"))
    assert re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]+|@import|url\((?!#)", html) == []


@pytest.mark.parametrize("made", BOTH)
def test_steps_specifications_findings_and_tokens_are_there(made: Any) -> None:
    history, verdict, page = rendered(made)
    for step in history.header.scenario.steps:
        assert read_aloud(step) in page.text
    for name in SPECIFICATIONS:
        assert f"{name} {verdict['specs'][name]}" in page.text
    for finding in verdict["evidence"]:
        assert finding["what"] in page.text
        assert f"{finding['when']:.2f}" in page.text
    for row in verdict["tokens"]:
        assert " ".join(str(token) for token in row["expected"]) in page.text
    for item in verdict["injections"]:
        assert f"{item['id']} {item['gate']}" in page.text
    assert "ray 2.55.1" in page.text


def test_the_label_and_what_is_simulated_stand_above_the_diagram() -> None:
    history, verdict = made_by_hand.eager()
    verdict |= {"label": "synthetic: hold w1 lasts 40,000 ms", "transport": "rdma", "simulated": "softhca: a device"}
    html = render(history, verdict)
    head = html[: html.index("<svg")]
    assert "synthetic: hold w1 lasts 40,000 ms" in head
    assert "simulated" in head


def test_wrong_tokens_are_marked_from_the_first_difference() -> None:
    html = render(*made_by_hand.eager())
    assert re.findall(r'class="diff">(\d+)<', html) == ["87", "12", "4"]


def test_every_event_is_listed_and_evidence_is_linked_to_its_line() -> None:
    history, _, page = rendered(made_by_hand.eager)
    lines = [value for tag, key, value in page.attributes if tag == "tr" and key == "id"]
    assert len(lines) == len(history.events)
    links = {value[1:] for tag, key, value in page.attributes if tag == "a" and key == "href"}
    assert links
    assert links <= set(lines)


def test_hostile_names_stay_words() -> None:
    history, verdict = made_by_hand.eager()
    evil = '"><script>alert(1)</script>'
    for event in history.events:
        if event.request == "r1":
            event.request = evil
        if "why" in event.data:
            event.data["why"] = evil
    verdict["evidence"][0]["what"] = evil
    verdict["scenario"] = evil
    verdict["label"] = evil
    page = Page(render(history, verdict, {evil: evil}))
    assert page.open == []
    assert "script" not in page.tags
    assert evil in page.text


def test_a_verdict_with_nothing_but_its_word_still_renders() -> None:
    history, _ = made_by_hand.eager()
    page = Page(render(history, {"verdict": "inconclusive", "scenario": "s", "policy": "eager"}))
    assert page.open == []
    assert "unknown" in page.text


def test_what_ended_a_schedule_stands_in_the_diagram() -> None:
    tape = made_by_hand.Tape()
    tape.step("await landed request r1")
    tape.at("conductor", "gave-up", n=1, why="crash", what="prefill is gone")
    tape.at("conductor", "died", peer="prefill", doing="step 1")
    html = render(made_by_hand._history(tape, "eager", []), {"verdict": "diverged", "scenario": "s", "policy": "eager"})
    diagram = html[html.index("<svg") : html.index("</svg>")]
    assert "gave up, crash: prefill is gone" in diagram
    assert "prefill died" in diagram


def test_a_run_folder_becomes_a_picture(tmp_path: Path) -> None:
    history, verdict = made_by_hand.eager()
    history.write(tmp_path / "history.jsonl")
    (tmp_path / "verdict.json").write_bytes(msgspec.json.encode(verdict))
    figure.write(tmp_path, tmp_path / "race.svg")
    assert (tmp_path / "race.svg").read_text(encoding="utf-8").startswith("<svg")


def test_a_run_folder_becomes_a_report(tmp_path: Path) -> None:
    history, verdict = made_by_hand.ledger()
    history.write(tmp_path / "history.jsonl")
    (tmp_path / "verdict.json").write_bytes(msgspec.json.encode(verdict))
    (tmp_path / "env.json").write_text(json.dumps({"python": "3.11.7"}))
    path = write(tmp_path)
    assert path == tmp_path / "report.html"
    assert "3.11.7" in path.read_text(encoding="utf-8")
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "env.json",
        "history.jsonl",
        "report.html",
        "verdict.json",
    ]


def test_a_run_folder_without_a_verdict_says_how_to_get_one(tmp_path: Path) -> None:
    made_by_hand.ledger()[0].write(tmp_path / "history.jsonl")
    with pytest.raises(HistoryError, match="no verdict here") as caught:
        write(tmp_path)
    assert "racelab check" in str(caught.value)


def test_a_torn_verdict_names_the_file(tmp_path: Path) -> None:
    made_by_hand.ledger()[0].write(tmp_path / "history.jsonl")
    (tmp_path / "verdict.json").write_text('{"verdict": ')
    with pytest.raises(HistoryError, match="not JSON") as caught:
        write(tmp_path)
    assert caught.value.file == str(tmp_path / "verdict.json")

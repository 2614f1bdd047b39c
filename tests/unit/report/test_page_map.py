"""The map of wrong pages: every part is drawn in proportion, in its owner's colour, with its words."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

from racelab.report.page_map import BAR_PX, LABEL_PX, MAPS_MAX, page_map, wrong_pages

HALVES = [
    {"bytes": [0, 24_576], "source": "write", "write": "w1", "request": "r1", "attempt": 1, "gen": 1, "layer": 0}
    | {"chunk": 0, "offset": 0},
    {"bytes": [24_576, 28_672], "source": "unknown"},
    {"bytes": [28_672, 49_152], "source": "pattern"},
]


def finding(**fields: Any) -> dict[str, Any]:
    place = {"instance": "decode", "page": 3, "gen": 2, "layer": 0, "owner": "r2 attempt 1 gen 2", "when": 12.0}
    return place | {"provenance": HALVES} | fields


def colour(request: str | None) -> str:
    return {"r1": "q0"}.get(request or "", "q5")


def drawn(*findings: dict[str, Any]) -> ElementTree.Element:
    return ElementTree.fromstring(page_map(wrong_pages({"evidence": list(findings)}), colour))


def test_each_part_has_its_place_and_its_owners_colour() -> None:
    parts = [group for group in drawn(finding()).iter("g") if group.get("class", "").startswith("part")]
    boxes = [part.find("rect") for part in parts]
    assert [part.get("class") for part in parts] == ["part q0", "part q5", "part q5"]
    assert [box.get("class") for box in boxes if box is not None] == ["own", "box bad", "free"]
    first = boxes[0]
    assert first is not None
    assert (float(first.get("x", 0)), float(first.get("width", 0))) == (LABEL_PX, BAR_PX / 2)
    titles = [part.findtext("title", "") for part in parts]
    assert titles[0].startswith("bytes 0-24575 are r1 attempt 1 gen 1's")
    assert "nobody posted them" in titles[1]
    assert "nobody wrote there" in titles[2]


def test_a_page_that_is_read_again_and_again_is_drawn_once() -> None:
    rows = [
        group for group in drawn(finding(), finding(when=20.0), finding(layer=1)).iter("g") if group.get("data-page")
    ]
    assert [row.get("data-layer") for row in rows] == ["0", "1"]


def test_findings_without_provenance_draw_nothing() -> None:
    assert page_map(wrong_pages({"evidence": [finding(provenance=[]), {"spec": "finality"}]}), colour) == ""


def test_the_number_of_maps_is_bounded() -> None:
    rows = [group for group in drawn(*(finding(page=page) for page in range(90))).iter("g") if group.get("data-page")]
    assert len(rows) == MAPS_MAX

"""The table of docs/scenarios.md: what can be done to what over TCP is accepted, and everything else refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from racelab import scenario
from racelab.abilities import check_mechanisms
from racelab.errors import RacelabError
from racelab.registry import injectors

PAGE = Path(__file__).parents[2] / "docs" / "scenarios.md"
LABS = {"read": "{transfer: pull}", "notify": "{news: notify}"}
TYPES = {"message": "type: abort, "}
ROWS = {
    "hold, release, drop": ("hold", "", "release: h", "drop: h"),
    "release reversed": ("hold", "", "release: {hold: h, order: reversed}"),
    "pass": ("pass", ""),
    "delay": ("delay", ", ms: {constant: 1}"),
    "reset": ("hold", "", "reset: h"),
    "corrupt": ("hold", "", "release: {hold: h, corrupt: 5}"),
    "tear": ("hold", "", "release: {hold: h, tear: 5}"),
    "payload at-release": ("hold", ", payload: at-release"),
    "duplicate": ("duplicate", ""),
}
"""How a row reads in YAML: the verb, what it has beside its match, and the steps that end it, each by itself. Any
other row is an action of a hold."""


def table() -> list[tuple[str, str, bool]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| | `write`"))
    columns = [cell.strip(" `") for cell in lines[start].split("|")[2:-1]]
    cells = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        row, *answers = (cell.strip() for cell in line.split("|")[1:-1])
        cells += [(row, column, answer == "yes") for column, answer in zip(columns, answers, strict=True)]
    return cells


def accepted(row: str, subject: str) -> bool:
    verb, more, *ends = ROWS.get(row, ("hold", f", action: {row}"))
    head = f"scenario: one\nabout: One.\nlab: {LABS.get(subject, '{}')}\nrequests: {{r1: {{}}}}\nsteps:\n"
    armed = f"  - {verb}: {{id: h, {subject}: {{{TYPES.get(subject, '')}request: r1}}, count: 2{more}}}\n"
    try:
        for end in ends or [""]:
            text = head + armed + "  - submit: r1\n" + (f"  - {end}\n" if end else "")
            check_mechanisms(scenario.loads(text), [each for each in injectors() if each.serves("tcp")])
    except RacelabError:
        return False
    return True


@pytest.mark.parametrize(("row", "subject", "possible"), table())
def test_a_cell_of_the_table_is_so(row: str, subject: str, possible: bool) -> None:
    assert accepted(row, subject) == possible


def test_the_table_is_whole() -> None:
    rows = {row for row, _, _ in table()}
    for gate in injectors():
        if "tcp" in gate.transports or gate.subject == "message":
            assert {*gate.actions, *gate.notifies} - {"hold"} <= rows
            assert set(gate.ends) - {"release", "drop", "order"} <= rows

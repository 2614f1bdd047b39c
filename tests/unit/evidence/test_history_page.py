"""docs/history.md lists every kind of event with what it means and the data that it always has."""

from __future__ import annotations

import re
from pathlib import Path

from racelab.evidence.events import KINDS, SCHEMA

PAGE = Path(__file__).parents[3] / "docs" / "history.md"
ROW = re.compile(r"^\| `([a-z-]+)` \| (.+) \| (.+) \|$", re.MULTILINE)


def test_every_kind_is_listed_as_it_is() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = text.partition("## Kinds")[2].partition("Further keys")[0]
    listed = {name: (means, tuple(re.findall(r"`([^`]+)`", data))) for name, means, data in ROW.findall(table)}
    assert listed == {name: (kind.means, kind.data) for name, kind in KINDS.items()}
    assert SCHEMA in text

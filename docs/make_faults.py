"""Writes docs/what-each-fault-does.md: the table that tests/system/test_what_each_fault_does.py plays.

python docs/make_faults.py          writes it
python docs/make_faults.py --check  exits 1 if it is not what it should be
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from racelab import fences

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "what-each-fault-does.md"
TABLE = ROOT / "tests" / "data" / "what-each-fault-does.yaml"
HEAD = """# What each fault does, and what fences

Made by `python docs/make_faults.py`. Each row is a test: `tests/system/test_what_each_fault_does.py` plays the case
on real processes over TCP on loopback and compares what it saw with the row.

## Mooncake's TCP transport
"""
PLAYED_WITH_ANOTHER = """With 0.3.14, over TCP and with a libcuda.so.1 without any device in place of CUDA's, every row
that is not marked otherwise was the same
(`python tests/without_cuda.py FOLDER tests/system/test_what_each_fault_does.py`)."""

_OUTCOME_OF = "outcome-of-"

FENCES = """
## Fences

Does a late access still land? A row is an answer of the named test. Where it does not land in every case, the row says
`no`: only a fence without exception is evidence that a page may be used again. `racelab list fences` shows the same
table, and the conservation checker holds an engine's stop evidence against it ([specifications.md](specifications.md)).

| rung | what happens | fences | why | shown by |
|---|---|---|---|---|
"""


def render() -> str:
    """The whole page."""
    table: dict[str, Any] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    versions = ", ".join(f"{name} {version}" for name, version in table["versions"].items())
    lines = [HEAD, f"Measured with {versions}. `code`: 1 or 0 is success, -1 a failure.", PLAYED_WITH_ANOTHER, ""]
    lines += ["| case | seen | so |", "|---|---|---|"]
    lines += [
        f"| {_words(row['case'])}{_needs(row)} | {_outcome(row)} | {_words(row['means'])} |" for row in table["rows"]
    ]
    text = "\n".join(lines) + "\n" + FENCES
    return text + "".join(
        f"| {each.rung} | {each.event} | {each.answer} | {each.why} | {f'`{each.test}`' if each.test else ''} |\n"
        for each in fences.table()
    )


def _words(text: str) -> str:
    return " ".join(text.split())


def _needs(row: dict[str, Any]) -> str:
    if "needs" not in row:
        return ""
    return f" (Mooncake {row['needs']}, played over TCP with a libcuda.so.1 without any device: tests/without_cuda.py)"


def _outcome(row: dict[str, Any]) -> str:
    seen = ", ".join(f"{name.replace('-', ' ')} {_shown(value)}" for name, value in row["outcome"].items())
    for key, later in row.items():
        if key.startswith(_OUTCOME_OF):
            changed = {name: value for name, value in later.items() if row["outcome"][name] != value}
            words = ", ".join(f"{name.replace('-', ' ')} {_shown(value)}" for name, value in changed.items())
            seen += f" ({key.removeprefix(_OUTCOME_OF)}: {words})"
    return seen


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main() -> int:
    """Write or check."""
    page = render()
    if "--check" in sys.argv:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page else 1
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

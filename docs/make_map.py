"""Writes docs/map.md: every module with the first line of its docstring.

python docs/make_map.py          writes it
python docs/make_map.py --check  exits 1 if it is not what it should be
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAP = ROOT / "docs" / "map.md"
FLOORS = {
    "racelab": "The package: one flow, one direction: trace, scenario, conductor, history, checkers, verdict, report",
    "injectors": "Gates on the data and control paths, each a process; found through entry points",
    "checkers": "The four specifications, each a pure function of a history; found through entry points",
    "benchmarks": "One file a number that we stand by",
    "setup": "What runs before anything is installed",
}


def render() -> str:
    """The whole page."""
    lines = ["# Where everything is", "", "Made by `python docs/make_map.py` from the modules' own first lines.", ""]
    for floor, means in FLOORS.items():
        lines += [f"## {floor}", "", f"{means}.", ""]
        folders = sorted({file.parent for file in (ROOT / floor).rglob("*.py")})
        for folder in folders:
            rows = [row for file in sorted(folder.glob("*.py")) if (row := _row(file))]
            if rows:
                lines += [f"### {folder.relative_to(ROOT)}/", "", "| module | is |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _row(file: Path) -> str | None:
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    if docstring is None:
        return None
    first = " ".join(docstring.split("\n\n")[0].split())
    return f"| [`{file.name}`](../{file.relative_to(ROOT)}) | {first.replace('|', '/')} |"


def main() -> int:
    """Write or check."""
    page = render()
    if "--check" in sys.argv:
        return 0 if MAP.exists() and MAP.read_text(encoding="utf-8") == page else 1
    MAP.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

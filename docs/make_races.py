"""Writes docs/races.md: each class of races with its public reports, its scenarios and its guards.

python docs/make_races.py          writes it
python docs/make_races.py --check  exits 1 if it is not what it should be
"""

from __future__ import annotations

import sys
from pathlib import Path

from racelab import scenario
from racelab.engine.guards import GUARDS
from racelab.races import RACES
from racelab.scenario import Scenario

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "races.md"
HEAD = """# The races that the field had, and what stops each

Made by `python docs/make_races.py` from `scenarios/` and the guards. A class is what a public report describes; a
scenario restates one as a schedule in our own words; its guard is the one whose removal brings it back
(`racelab matrix`). Reports may have moved on since they were read.
"""


def render() -> str:
    """The whole page."""
    files = [*sorted((ROOT / "scenarios").glob("*.yaml")), *sorted((ROOT / "scenarios" / "catalog").glob("*.yaml"))]
    loaded = [(file, scenario.load(file)) for file in files]
    lines = [HEAD]
    for race, means in RACES.items():
        guards = [guard.name for guard in GUARDS.values() if race in guard.race_classes]
        lines += [f"## {race}", "", f"{means[0].upper()}{means[1:]}.", ""]
        lines += [f"Guards that answer it: {', '.join(f'`{guard}`' for guard in guards)}.", ""] if guards else []
        rows = [_row(file, each) for file, each in loaded if each.race == race]
        if rows:
            lines += ["| scenario | breaks | its guard | reports |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _row(file: Path, each: Scenario) -> str:
    name = f"[{each.scenario}](../{file.relative_to(ROOT)})"
    return (
        f"| {name} | {each.spec} | {f'`{each.guard}`' if each.guard else ''} | {', '.join(map(_link, each.sources))} |"
    )


def _link(source: str) -> str:
    """`owner/name#N` as a link to the thread; anything else as it is."""
    repository, _, number = source.partition("#")
    return f"[{source}](https://github.com/{repository}/issues/{number})" if number.isdigit() else source


def main() -> int:
    """Write or check."""
    page = render()
    if "--check" in sys.argv:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page else 1
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The pages agree with the code: links lead somewhere, the map is complete, commands exist."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "scenarios").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    broken = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page: Path) -> None:
    from racelab.cli import app

    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    known |= {group.name for group in app.registered_groups}
    used = set(re.findall(r"(?:^    |`)racelab ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert used <= known


def test_the_map_is_complete() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "docs/make_map.py"), "--check"], check=False)
    assert done.returncode == 0, "run: python docs/make_map.py"


def test_the_page_of_races_is_current() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "docs/make_races.py"), "--check"], check=False)
    assert done.returncode == 0, "run: python docs/make_races.py"


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(file.relative_to(ROOT))
        for floor in ("racelab", "injectors", "checkers", "benchmarks", "setup")
        for file in (ROOT / floor).rglob("*.py")
        if file.read_text(encoding="utf-8").strip() and ast.get_docstring(ast.parse(file.read_text())) is None
    ]
    assert silent == []


def test_system_libraries_are_the_same_before_and_after_installation() -> None:
    from racelab.transport.mooncake import SYSTEM_LIBRARIES

    text = (ROOT / "setup/system_libraries.py").read_text()
    (declared,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "LIBRARIES"
    )
    assert declared == SYSTEM_LIBRARIES

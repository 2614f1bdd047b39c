"""Binding files: what loads, and that every problem is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from racelab.binding import document, fitting
from racelab.errors import DocumentError

GOOD = """\
binding: small
fits: {modules: [Small], variables: [page]}
actions:
  Take: {means: [submit, post], request: r}
  Rest: silent
properties:
  Safe: isolation
"""


def load(text: str, tmp_path: Path) -> document.Binding:
    path = tmp_path / "b.yaml"
    path.write_text(text, encoding="utf-8")
    return document.load(path)


def test_a_small_binding_loads(tmp_path: Path) -> None:
    binding = load(GOOD, tmp_path)
    take = binding.rule("Take")
    assert take is not None
    assert (take.means, [expression.text for expression in take.request]) == (("submit", "post"), ["r"])
    assert binding.rule("Inst!Take") is take
    assert binding.rule("a::b::Take") is take
    assert binding.rule("Give") is None
    assert binding.properties["Safe"].spec == "isolation"


def test_every_shipped_binding_loads_and_names_itself_after_its_file() -> None:
    shipped = fitting.all_shipped()
    assert {binding.name for binding in shipped} >= {"page-lifecycle", "pd-pages"}
    assert all(Path(binding.file).stem == binding.name for binding in shipped)


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ("binding: small\n", "", 1, "missing key 'binding'"),
        ("  Rest: silent", "  Rest: asleep", 5, "unknown meaning 'asleep'"),
        ("  Rest: silent", "  Rest: {}", 5, "missing key 'means'"),
        ("  Rest: silent", "  Rest: {means: silent, reqest: r}", 5, "unknown key 'reqest'; did you mean 'request'"),
        ("request: r}", "request: 'r['}", 4, "expected a name"),
        (", request: r}", "}", 4, "missing key 'request'"),
        ("  Rest: silent", "  Rest: {means: silent, changes: {page: grows}}", 5, "one of gains"),
        ("  Rest: silent", "  Rest: {means: silent, also: Take}", 5, "'Take' names two actions"),
        ("  Rest: silent", "  Rest: {means: restart, instance: router}", 5, "instance: one of prefill, decode"),
        ("  Rest: silent", "  Rest: {means: silent, shows: {ended: page}}", 5, "unknown event 'ended'"),
        ("isolation", "isolatoin", 7, "spec"),
        ("properties:", "states: {}\nproperties:", 6, "unknown key 'states'"),
        ("properties:", "requests: {state: r, events: {done: ended}}\nproperties:", 6, "unknown event 'ended'"),
    ],
)
def test_a_problem_is_told_with_its_line(old: str, new: str, line: int, what: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        load(GOOD.replace(old, new), tmp_path)
    assert any(problem.line == line and what in problem.what for problem in caught.value.problems), str(caught.value)


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        load(GOOD.replace("silent", "asleep").replace("isolation", "x").replace("request: r", "request: '['"), tmp_path)
    assert len(caught.value.problems) >= 3

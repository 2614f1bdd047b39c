"""Policies of a user's own: read from a file, with everything that is wrong in it at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from racelab.errors import DocumentError
from racelab.targets import target
from racelab.targets.own_policies import with_own

REFERENCE = target("reference")


def file(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_file_stands_for_its_policy(tmp_path: Path) -> None:
    path = file(tmp_path, "policy: mine\nabout: what we ship\nguards: [drain-before-free, hold-without-end]\n")
    system, names = with_own(REFERENCE, ["eager", path])
    assert names == {"eager": "eager", "mine": path}
    assert system.guards("mine") == ["drain-before-free", "hold-without-end"]
    assert system.guards("mine", ["drain-before-free"]) == ["hold-without-end"]
    assert "mine" not in REFERENCE.policies


def test_all_problems_are_named_with_their_lines(tmp_path: Path) -> None:
    text = "policy: eager\nguards:\n  - drain-before-fre\n  - tell-peer-of-end\n  - tell-peer-of-end\n"
    with pytest.raises(DocumentError) as caught:
        with_own(REFERENCE, [file(tmp_path, text)])
    told = [(problem.line, problem.what) for problem in caught.value.problems]
    assert told == [
        (1, "there is a policy 'eager' already"),
        (3, "no guard 'drain-before-fre'; did you mean 'drain-before-free'?"),
        (5, "guard 'tell-peer-of-end' stands twice"),
    ]


def test_a_wrong_type_hides_no_unknown_guard(tmp_path: Path) -> None:
    text = "policy: mine\nguards: [drain-before-fre, 7]\nabout: [x]\n"
    with pytest.raises(DocumentError) as caught:
        with_own(REFERENCE, [file(tmp_path, text)])
    assert [(problem.line, problem.what) for problem in caught.value.problems] == [
        (2, "guards: expected str, got int (7)"),
        (2, "no guard 'drain-before-fre'; did you mean 'drain-before-free'?"),
        (3, "about: expected str, got array"),
    ]


def test_a_missing_key_and_an_unknown_one(tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        with_own(REFERENCE, [file(tmp_path, "name: mine\nguards: []\n")])
    assert len(caught.value.problems) == 2


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(DocumentError, match="cannot be read"):
        with_own(REFERENCE, ["no-such.yaml"])

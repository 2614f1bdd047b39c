"""A soak goes on where it was broken off, counts only what was played of the same thing, and keeps what is odd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from racelab import scenario
from racelab.assembly import Order
from racelab.campaign import soak
from racelab.results import RunFolder
from racelab.shipped import shipped

LATE = scenario.load(shipped("scenarios", "late-write-after-timeout.yaml"))


class Bench:
    """Plays what it is given, one verdict after the other."""

    def __init__(self, verdicts: Iterator[str], guards: tuple[str, ...] = ()) -> None:
        self.target = SimpleNamespace(guards=lambda policy: list(guards))
        self.played = 0
        self._verdicts = verdicts

    def play(self, order: Order) -> Any:
        self.played += 1
        verdict = SimpleNamespace(verdict=next(self._verdicts), to_json=lambda **about: about)
        return SimpleNamespace(verdict=verdict, seconds=0.02, history=None)


def played(bench: Bench, runs: int, folder: Path) -> list[dict[str, Any]]:
    noted: list[int] = []
    given: Any = bench
    orders = [Order(LATE, "eager")]
    return soak.soak(given, orders, runs, RunFolder(folder), "races.jsonl", lambda order, number: noted.append(number))


def test_it_goes_on_where_it_was_broken_off(tmp_path: Path) -> None:
    class Broken(Exception):
        pass

    def breaks_off() -> Iterator[str]:
        yield from ["reproduced"] * 3
        raise Broken

    with pytest.raises(Broken):
        played(Bench(breaks_off()), 5, tmp_path)
    again = Bench(iter(["reproduced"] * 5))
    (row,) = played(again, 5, tmp_path)
    assert again.played == 2
    assert row["verdicts"] == {"reproduced": 5}
    assert soak.as_expected(row)


def test_runs_under_other_guards_are_not_counted(tmp_path: Path) -> None:
    played(Bench(iter(["reproduced"] * 3)), 3, tmp_path)
    other = Bench(iter(["reproduced"] * 3), guards=("drain-before-free",))
    played(other, 3, tmp_path)
    assert other.played == 3


def test_a_verdict_that_its_scenario_does_not_say_is_told_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Path] = []
    monkeypatch.setattr(soak, "keep", lambda folder, history, json: kept.append(folder.path))
    (row,) = played(Bench(iter(["reproduced", "inconclusive"])), 2, tmp_path)
    assert not soak.as_expected(row)
    assert kept == [tmp_path / "unexpected" / "late-write-after-timeout-eager-2"]


def test_the_races_are_of_different_classes_and_each_says_what_both_policies_do() -> None:
    wanted = [scenario.load(shipped("scenarios", f"{name}.yaml")) for name in soak.RACES]
    assert len({each.race for each in wanted}) == 5
    assert {each.spec for each in wanted} == {"isolation", "integrity", "finality", "conservation"}
    assert {each.expected["eager"] for each in wanted} == {"reproduced"}
    assert {each.expected["ledger"] for each in wanted} <= {"prevented", "not-reproduced"}

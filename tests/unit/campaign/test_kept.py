"""A matrix goes on where it was interrupted, with what was played of the same thing, and with nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from racelab import scenario
from racelab.assembly import Order
from racelab.campaign.kept import CELLS, WHOLE, going_on, resting_on
from racelab.campaign.matrix import Cell
from racelab.shipped import shipped

LATE = scenario.load(shipped("scenarios", "late-write-after-timeout.yaml"))
ORDERS = [Order(LATE, policy) for policy in ("eager", "lease", "ledger")]


def cell(order: Order) -> Cell:
    return Cell(
        scenario=order.scenario.scenario,
        policy=order.policy,
        without=list(order.without),
        verdict="reproduced",
        why="",
        expected=None,
        agree=True,
        blocked_by=None,
        specs={},
        exit_code=0,
    )


def played(results: Path, orders: list[Order], runs: int = 1, *, interrupted_after: int | None = None) -> list[str]:
    """The policies that were played, and the end of the matrix unless it was interrupted."""
    seen: list[str] = []

    def play(unknown: Sequence[Order]) -> Iterator[tuple[int, Cell]]:
        for place, order in enumerate(unknown):
            if len(seen) == interrupted_after:
                raise KeyboardInterrupt
            seen.append(order.policy)
            yield place, cell(order)

    with going_on(results, orders, resting_on(lambda order: [order.policy], runs)) as kept:
        playing = kept.playing(play)
        try:
            assert {place: one.policy for place, one in playing(orders)} == dict(enumerate(o.policy for o in orders))
        except KeyboardInterrupt:
            return seen
        kept.folder.text(WHOLE, "{}")
    return seen


def test_it_goes_on_where_it_was_interrupted_and_begins_anew_once_it_is_whole(tmp_path: Path) -> None:
    assert played(tmp_path, ORDERS, interrupted_after=2) == ["eager", "lease"]
    assert played(tmp_path, ORDERS) == ["ledger"]
    assert played(tmp_path, ORDERS) == ["eager", "lease", "ledger"]


@pytest.mark.parametrize("other", ["runs", "less", "scenario"])
def test_what_was_played_of_something_else_is_left_alone(tmp_path: Path, other: str) -> None:
    played(tmp_path, ORDERS, interrupted_after=2)
    changed = scenario.loads(scenario.dump(LATE).replace("about: ", "about: now "))
    asked = {"runs": ORDERS, "less": ORDERS[:1], "scenario": [Order(changed, order.policy) for order in ORDERS]}[other]
    assert played(tmp_path, asked, 2 if other == "runs" else 1) == [order.policy for order in asked]
    assert played(tmp_path, ORDERS) == ["ledger"]


def test_half_a_line_is_no_cell(tmp_path: Path) -> None:
    played(tmp_path, ORDERS, interrupted_after=2)
    (file,) = tmp_path.glob(f"**/{CELLS}")
    file.write_bytes(file.read_bytes()[:-9])
    assert played(tmp_path, ORDERS, interrupted_after=1) == ["lease"]
    assert played(tmp_path, ORDERS) == ["ledger"]


def test_what_another_process_plays_is_its_own(tmp_path: Path) -> None:
    of = resting_on(lambda order: [], 1)
    with going_on(tmp_path, ORDERS, of) as first, going_on(tmp_path, ORDERS, of) as second:
        assert first.folder.path != second.folder.path

"""Cells that were played of a matrix, kept as they come: one that was interrupted goes on where it was.

A cell counts if nothing that it rests on has changed since: the scenario, the guards, how often it was to be played
and where, and racelab itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import cache
from pathlib import Path

import msgspec

from racelab import scenario
from racelab.assembly import Order
from racelab.campaign.matrix import Cell, Play
from racelab.results import RUNS, RunFolder, new_folder

NAME = "matrix"
CELLS = "cells.jsonl"
WHOLE = "matrix.json"
"""What a folder has once its matrix is whole."""
_CODE = ("racelab", "injectors", "checkers")


class _Line(msgspec.Struct, frozen=True):
    of: str
    cell: Cell


_LINES = msgspec.json.Decoder(_Line)


class Kept:
    """The cells of one folder, each by what it rests on."""

    def __init__(self, folder: RunFolder, known: dict[str, Cell], of: Callable[[Order], str]) -> None:
        self.folder = folder
        self._known = known
        self._of = of

    def __len__(self) -> int:
        return len(self._known)

    def playing(self, play: Play) -> Play:
        """The same, but what is known is not played again, and what is played is known from then on."""

        def played(orders: Sequence[Order]) -> Iterator[tuple[int, Cell]]:
            names = [self._of(order) for order in orders]
            unknown = [place for place, of in enumerate(names) if of not in self._known]
            yield from ((place, self._known[of]) for place, of in enumerate(names) if of in self._known)
            for at, cell in play([orders[place] for place in unknown]):
                place = unknown[at]
                self._known[names[place]] = cell
                self.folder.line(CELLS, _Line(names[place], cell))
                yield place, cell

        return played


@contextmanager
def going_on(results: Path, orders: Iterable[Order], of: Callable[[Order], str]) -> Iterator[Kept]:
    """The newest matrix that is not whole, if all its cells are of these orders and no other process plays it; else
    a new one. Nobody else takes it until the block ends."""
    wanted = {of(order) for order in orders}
    for path in sorted((results / RUNS / NAME).glob(f"*/{CELLS}"), reverse=True):
        if path.parent.name == "latest" or (path.parent / WHOLE).exists():
            continue
        with path.open("r+b") as file:
            if not _is_ours(file.fileno()):
                continue
            whole = file.read().rpartition(b"\n")  # less the last line if whoever wrote it was ended within
            known = {line.of: line.cell for line in _LINES.decode_lines(whole[0])}
            if known.keys() <= wanted:
                file.truncate(len(whole[0] + whole[1]))
                yield Kept(RunFolder(path.parent), known, of)
                return
    folder = new_folder(results, NAME)
    with (folder.path / CELLS).open("ab") as file:
        flock(file, LOCK_EX)
        yield Kept(folder, {}, of)


def resting_on(guards: Callable[[Order], list[str]], *where: object) -> Callable[[Order], str]:
    """What stands for all that an order's cell rests on; `where` it is played, and how often, among it."""

    def of(order: Order) -> str:
        parts = (scenario.dump(order.scenario), guards(order), order.policy, order.without, order.seed, where, _code())
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    return of


def _is_ours(file: int) -> bool:
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True


@cache
def _code() -> str:
    """The sources of racelab and of what comes with it."""
    root = Path(__file__).resolve().parents[2]
    files = sorted(file for name in _CODE for suffix in ("py", "c", "h") for file in root.glob(f"{name}/**/*.{suffix}"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()

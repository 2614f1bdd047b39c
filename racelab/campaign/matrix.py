"""Scenarios against policies, and against the guarded policy with each guard taken away in turn.

A guard whose removal changes no scenario's verdict is *untested*; a scenario with a specification
that no single removal reproduces is *redundant*: some other guard stops it as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from racelab.assembly import Order, Played, Workbench
from racelab.campaign.controls import CONTROLS, control
from racelab.scenario import Scenario
from racelab.side_by_side import LabBeside, play_each
from racelab.verdict import Verdict, worst

GUARDED = "ledger"
CLEAN = "not-reproduced"


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario under one policy less some guards; `agree` if every repetition gave this verdict.

    `guard` is the scenario's own; `control` says which control of the scenario it is, if it is one; `why` is the
    verdict's own sentence; `replay` is the command that plays it again, as often as shows whether runs differ.
    """

    scenario: str
    guard: str | None = None
    control: str | None = None
    policy: str
    without: list[str]
    verdict: str
    why: str
    expected: str | None
    agree: bool
    blocked_by: str | None
    specs: dict[str, str]
    exit_code: int
    replay: str = ""

    @property
    def column(self) -> str:
        """The heading under which it stands."""
        return self.policy if not self.without else f"{self.policy} less {', '.join(self.without)}"

    @property
    def clean(self) -> bool:
        """Whether everything was played, and nothing is violated or unknown."""
        return self.verdict == CLEAN and all(outcome == "held" for outcome in self.specs.values())


class Matrix(msgspec.Struct, frozen=True, kw_only=True):
    """Every cell, what the removals say of guards and scenarios, and the controls beside them."""

    cells: list[Cell]
    controls: list[Cell]
    untested: list[str]
    redundant: list[str]

    @property
    def exit_code(self) -> int:
        """The worst of the cells'."""
        return worst([cell.exit_code for cell in self.cells + self.controls])


def orders(scenarios: Iterable[Scenario], policies: Iterable[str], guards: Iterable[str], seed: int) -> Iterator[Order]:
    """One order a cell: each policy, then the guarded policy less one guard at a time."""
    removals = list(guards)
    wanted = list(policies)
    for scenario in scenarios:
        for policy in wanted:
            yield Order(scenario, policy, seed=seed)
        if GUARDED in wanted:
            for guard in removals:
                yield Order(scenario, GUARDED, (guard,), seed=seed)


def controls(scenarios: Iterable[Scenario], policies: Iterable[str], seed: int) -> Iterator[tuple[str, Order]]:
    """Each scenario's controls under the first and the last of the policies, by the control's name."""
    ends = list(dict.fromkeys([*list(policies)[:1], *list(policies)[-1:]]))
    for scenario in scenarios:
        for kind in CONTROLS:
            for policy in ends:
                yield kind, Order(control(scenario, kind), policy, seed=seed)


Play = Callable[[Sequence[Order]], Iterable[tuple[int, Cell]]]
"""Fills the cells of orders, and gives each with its order's place as it comes."""


def fill(
    play: Play,
    wanted: Sequence[Order],
    note: Callable[[Cell], None] = lambda cell: None,
    beside: Sequence[tuple[str, Order]] = (),
) -> Matrix:
    """Play every order, the controls `beside` them too, and draw the conclusions; `note` is told of each cell."""
    cells: dict[int, Cell] = {}
    for place, cell in play(wanted):
        cells[place] = cell
        note(cell)
    controlled: dict[int, Cell] = {}
    for place, cell in play([order for _, order in beside]):
        controlled[place] = as_control(cell, beside[place][0])
        note(controlled[place])
    return conclude([cells[place] for place in sorted(cells)], [controlled[place] for place in sorted(controlled)])


def playing(bench: Workbench, labs: Sequence[LabBeside], runs: int) -> Play:
    """Plays each order `runs` times, on the bench and on the labs beside it: a cell is the first run's verdict, or
    the first that differs from it."""

    def play(orders: Sequence[Order]) -> Iterator[tuple[int, Cell]]:
        verdicts: dict[int, dict[int, Verdict]] = defaultdict(dict)
        for number, played in play_each(bench, labs, (order for order in orders for _ in range(runs))):
            place, run = divmod(number, runs)
            verdicts[place][run] = played.verdict
            if len(verdicts[place]) == runs:
                done = verdicts.pop(place)
                yield place, _cell(orders[place], [done[run] for run in range(runs)])

    return play


def _cell(order: Order, verdicts: list[Verdict]) -> Cell:
    odd = next((verdict for verdict in verdicts if verdict.verdict != verdicts[0].verdict), verdicts[0])
    return Cell(
        scenario=order.scenario.scenario,
        guard=order.scenario.guard,
        policy=order.policy,
        without=list(order.without),
        verdict=odd.verdict,
        why=odd.lab_failure or odd.why,
        expected=order.expected,
        agree=odd is verdicts[0],
        blocked_by=odd.blocked_at["guard"] if odd.blocked_at else None,
        specs=dict(odd.specs),
        exit_code=worst([verdict.exit_code for verdict in verdicts] + ([] if odd is verdicts[0] else [1])),
        replay=order.replay,
    )


def run_once(bench: Workbench, order: Order) -> tuple[Cell, Played]:
    """One cell of one run, with the run."""
    played = bench.play(order)
    return _cell(order, [played.verdict]), played


def as_control(cell: Cell, kind: str) -> Cell:
    """A control's cell: nothing may be violated in it unless its scenario says so."""
    expected = cell.expected or CLEAN
    code = worst([cell.exit_code] + ([] if cell.verdict == expected else [1]))
    return msgspec.structs.replace(cell, control=kind, expected=expected, exit_code=code)


def conclude(cells: list[Cell], controlled: Iterable[Cell] = ()) -> Matrix:
    """Untested guards and redundant scenarios, from the cells alone."""
    guarded = {cell.scenario: cell.verdict for cell in cells if cell.policy == GUARDED and not cell.without}
    removals = [cell for cell in cells if len(cell.without) == 1]
    noticed = {cell.without[0] for cell in removals if cell.verdict != guarded.get(cell.scenario)}
    broken = {cell.scenario for cell in removals if cell.verdict in ("reproduced", "moved")}
    stopped = dict.fromkeys(cell.scenario for cell in cells if cell.guard is not None and cell.scenario in guarded)
    guards = dict.fromkeys(cell.without[0] for cell in removals)
    return Matrix(
        cells=cells,
        controls=list(controlled),
        untested=[guard for guard in guards if guard not in noticed],
        redundant=[scenario for scenario in stopped if removals and scenario not in broken],
    )

"""A matrix for people: a table on the terminal, and one page without any other file."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from rich.table import Table
from rich.text import Text

from racelab.campaign.controls import CONTROLS
from racelab.campaign.matrix import Cell, Matrix
from racelab.report.palette import variables

_STYLES = {"reproduced": "bold red", "moved": "red", "prevented": "green", "not-reproduced": "green"}
_CLASSES = {"reproduced": "bad", "moved": "bad", "prevented": "guard", "not-reproduced": "guard"}
_MARKS = {"violated": "✗", "held": "✓", "unknown": "?"}


COLUMN_WIDTH = 22


def table(matrix: Matrix, width: int, *, specs: bool = False) -> Table:
    """Scenarios down, policies across; with `specs` each cell has its four specifications.

    Where `width` characters are too few for that, one line a cell.
    """
    columns = list(dict.fromkeys(cell.column for cell in matrix.cells))
    if width < COLUMN_WIDTH * (len(columns) + 1):
        return _list(matrix, specs)
    drawn = Table(show_lines=specs, pad_edge=False)
    drawn.add_column("scenario", overflow="fold")
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for scenario, cells in _rows(matrix):
        drawn.add_row(scenario, *(_text(cells.get(column), specs) for column in columns))
    return drawn


def _list(matrix: Matrix, specs: bool) -> Table:
    drawn = Table(show_lines=specs, pad_edge=False)
    for heading in ("scenario", "policy", "verdict"):
        drawn.add_column(heading, overflow="fold")
    for scenario, cells in _rows(matrix):
        for number, (column, cell) in enumerate(cells.items()):
            drawn.add_row(
                scenario if number == 0 else "", column, _text(cell, specs), end_section=number == len(cells) - 1
            )
    return drawn


def _rows(matrix: Matrix) -> Iterable[tuple[str, dict[str, Cell]]]:
    rows: dict[str, dict[str, Cell]] = {}
    for cell in matrix.cells:
        rows.setdefault(cell.scenario, {})[cell.column] = cell
    return rows.items()


def _text(cell: Cell | None, specs: bool) -> Text:
    if cell is None:
        return Text("")
    text = Text(cell.verdict, style=_STYLES.get(cell.verdict, "yellow"))
    text.append("".join(_notes(cell)), style="dim")
    if specs:
        text.append("\n" + "\n".join(f"{_MARKS[outcome]} {spec}" for spec, outcome in cell.specs.items()), style="")
    return text


def _notes(cell: Cell) -> list[str]:
    notes = [f"\nby {cell.blocked_by}"] if cell.blocked_by and cell.verdict == "prevented" else []
    if cell.expected is not None and cell.expected != cell.verdict:
        notes.append(f"\nexpected {cell.expected}")
    return notes if cell.agree else [*notes, "\nruns differ"]


def unexpected(matrix: Matrix) -> list[str]:
    """Cells that are not what their scenario says, or whose runs differ: a line each, with the verdict's reason and
    what to run to look at it."""
    return [
        f"{cell.scenario}, {cell.column}: {cell.verdict}{'' if cell.agree else ' in some runs'},"
        f" expected {cell.expected or 'nothing'}: {cell.why}{_look(cell)}"
        for cell in matrix.cells
        if cell.exit_code
    ]


def _look(cell: Cell) -> str:
    return f"; look at it: {cell.replay}" if cell.replay and cell.exit_code else ""


def spoilt_controls(matrix: Matrix) -> list[str]:
    """Controls that are not clean, also those of which their scenario says so: a line each, with what is violated."""
    return [_spoilt(cell) for cell in matrix.controls if cell.exit_code or not cell.clean]


def _spoilt(cell: Cell) -> str:
    violated = ", ".join(spec for spec, outcome in cell.specs.items() if outcome == "violated")
    said = "as its scenario says" if not cell.exit_code else "not as expected" if cell.agree else "its runs differ"
    return f"{cell.scenario}, {cell.control} ({cell.policy}): {cell.verdict}" + (
        f", violates {violated}; {said}{_look(cell)}" if violated else f"; {said}{_look(cell)}"
    )


def page(matrix: Matrix, title: str, *, specs: bool = False, picture: str = "") -> str:
    """The same as HTML with inline style, for light, dark and print; `picture` is an SVG to show above the table."""
    columns = list(dict.fromkeys(cell.column for cell in matrix.cells))
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "\n".join(
        f"<tr><th>{escape(scenario)}</th>" + "".join(_html(cells.get(column), specs) for column in columns) + "</tr>"
        for scenario, cells in _rows(matrix)
    )
    notes = "".join(
        f"<p>{label}: {escape(', '.join(names) or 'none')}</p>"
        for label, names in (
            ("Guards whose removal no scenario notices", matrix.untested),
            ("Scenarios that no single removal reproduces", matrix.redundant),
            ("Cells that are not as expected", unexpected(matrix)),
            (f"Of {len(matrix.controls)} controls ({'; '.join(CONTROLS)}), not clean", spoilt_controls(matrix)),
        )
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{variables(':root')}"
        "body{font:15px/1.4 system-ui,sans-serif;margin:2rem;background:var(--bg);color:var(--ink)}"
        "table{border-collapse:collapse}th,td{padding:.5rem .75rem;border:1px solid var(--faint);text-align:left;"
        "vertical-align:top}td small{display:block;color:var(--soft)}.bad{background:var(--badbg);color:var(--bad)}"
        ".guard{background:var(--guardbg);color:var(--guard)}</style>"
        f"<h1>{escape(title)}</h1>{picture}<table><tr><th>scenario</th>{head}</tr>\n{body}\n</table>{notes}</html>\n"
    )


def _html(cell: Cell | None, specs: bool) -> str:
    if cell is None:
        return "<td></td>"
    small = [note.strip() for note in _notes(cell)]
    if specs:
        small += [f"{_MARKS[outcome]} {spec}" for spec, outcome in cell.specs.items()]
    rows = "".join(f"<small>{escape(line)}</small>" for line in small)
    return f'<td class="{_CLASSES.get(cell.verdict, "")}"><b>{escape(cell.verdict)}</b>{rows}</td>'

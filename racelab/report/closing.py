"""The closing summary on the terminal: the verdict, what it rests on, and where to go from here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

from racelab.report.summary import (
    also_tried,
    expectation,
    grouped,
    headline,
    label_words,
    replay_command,
    spec_rows,
    wrong_answers,
)

VERDICT_STYLES = {
    "reproduced": "red",
    "moved": "red",
    "prevented": "green",
    "not-reproduced": "green",
    "diverged": "yellow",
    "inconclusive": "yellow",
}
_MARKS = {"held": ("✓", "+", "green"), "violated": ("✗", "x", "bold red"), "unknown": ("?", "?", "yellow")}


def show(console: Console, verdict: dict[str, Any], width: int) -> None:
    """Print the verdict: in a box on a terminal, as plain lines elsewhere. What is copied stands outside the box."""
    ascii_only = console.options.ascii_only
    word = str(verdict["verdict"])
    style = VERDICT_STYLES.get(word, "blue")
    lines = [*_lines(verdict, ascii_only=ascii_only), *_named(_notes(verdict))]
    if console.is_terminal and not ascii_only:
        title = Text(f" {word.upper()} ", style=f"bold white on {style}")
        panel = Panel(Group(*lines), title=title, title_align="left", box=box.ROUNDED, border_style=style)
        panel.width, panel.padding = width, (1, 2)
        console.print(panel, highlight=False)
        lines = []
    else:
        lines.insert(0, Text(f"VERDICT {word}"))
    for line in (*lines, *_named(_places(verdict))):
        console.print(line, soft_wrap=True, highlight=False)


def _lines(verdict: dict[str, Any], *, ascii_only: bool) -> Iterator[Text]:
    yield Text(headline(verdict), style="bold")
    yield Text()
    for spec in spec_rows(verdict):
        fancy, simple, style = _MARKS.get(spec.outcome, _MARKS["unknown"])
        mark = simple if ascii_only else fancy
        yield Text.assemble((f"{mark} {spec.name:<13}", style), f"{spec.outcome:<9} ", (spec.basis, "dim"))
    yield from _evidence(verdict)
    yield from _tokens(verdict)
    yield Text()


def _named(rows: Iterator[tuple[str, str]]) -> Iterator[Text]:
    for name, value in rows:
        yield Text.assemble((f"{name:<9}", "dim"), value)


def _evidence(verdict: dict[str, Any]) -> Iterator[Text]:
    """The first finding of each specification; the report has them all."""
    findings = grouped(verdict)
    first = {finding.spec: finding for finding in reversed(findings)}
    shown = [finding for finding in findings if first[finding.spec] is finding]
    if shown:
        yield Text()
    for finding in shown:
        yield Text.assemble((f"- {finding.spec}, {finding.grade}: ", "dim"), finding.sentence())
    if len(findings) > len(shown):
        yield Text(f"- and {len(findings) - len(shown)} more, in the report", style="dim")


def _tokens(verdict: dict[str, Any]) -> Iterator[Text]:
    for row in wrong_answers(verdict):
        width = max(len(word) for word in (*row.expected, *row.got))
        alone = "".join(f" {word:>{width}} " for word in row.expected)
        here = Text()
        for index, word in enumerate(row.got):
            wrong = index in row.different
            here.append(f"[{word:>{width}}]" if wrong else f" {word:>{width}} ", style="bold red" if wrong else "")
        yield Text()
        yield Text.assemble((f"{'alone':<9}", "dim"), alone.rstrip())
        yield Text.assemble((f"{row.request:<9}", "dim"), here)
        if row.because:
            yield Text.assemble((f"{'':<9}", "dim"), f" token {min(row.different) + 1} differs {row.because}")


def _notes(verdict: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if verdict.get("expected"):
        yield "expected", expectation(verdict)
    if verdict.get("simulated"):
        yield "device", f"simulated: {verdict['simulated']}"
    if verdict.get("machine"):
        yield "device", str(verdict["machine"])
    if verdict.get("label"):
        yield "label", label_words(str(verdict["label"]))
    for row, line in enumerate(also_tried(verdict)):
        yield "" if row else "also", line


def _places(verdict: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if verdict.get("run_dir"):
        yield "report", f"{verdict['run_dir']}/report.html"
    yield "replay", replay_command(verdict)

"""The report of a run: one HTML file that needs nothing else, made from the run folder alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from racelab.errors import HistoryError
from racelab.evidence import history as histories
from racelab.evidence.clock import wall_us
from racelab.evidence.events import KINDS, Event
from racelab.evidence.history import History
from racelab.evidence.naming import start_us
from racelab.report import palette, scene, spacetime
from racelab.report.canvas import Canvas
from racelab.report.closing import VERDICT_STYLES
from racelab.report.page_map import page_map, wrong_pages
from racelab.report.summary import also_tried, grouped, headline, label_words, replay_command, spec_rows, token_rows
from racelab.report.window import evidence_names, name
from racelab.report.words import CLIENT, milliseconds, phrase, shown, size, ticket, who
from racelab.scenario.steps import read_aloud

REPORT_FILE = "report.html"
LISTED_EVENTS_MAX = 5_000
_TRANSPORTS = {
    "tcp": "real: Mooncake over TCP sockets",
    "softroce": "kernel verbs over Soft-RoCE, no RDMA hardware",
    "rdma": "real: RDMA hardware",
}
_TARGETS = {"reference": "reference engine: a small transformer with real transfers, no production server"}


class Row(NamedTuple):
    """One line of the event list."""

    anchor: str
    ms: str
    instance: str
    kind: str
    request: str
    ticket: str
    words: str
    evidence: bool


def write(run_dir: str | Path) -> Path:
    """Write `report.html` into a run folder and return its path.

    Raises:
        HistoryError: the folder has no history or no verdict.
    """
    folder = Path(run_dir)
    history = histories.read(folder)
    verdict = read_verdict(folder)
    path = folder / REPORT_FILE
    partial = path.with_suffix(".partial")
    partial.write_text(render(history, verdict, _read_json(folder / "env.json")), encoding="utf-8")
    partial.replace(path)
    return path


def read_verdict(folder: Path) -> dict[str, Any]:
    """The verdict of a run folder, as plain data.

    Raises:
        HistoryError: it is not there, or torn.
    """
    verdict = _read_json(folder / "verdict.json")
    if verdict is None:
        raise HistoryError("no verdict here", file=folder / "verdict.json", next="`racelab check` makes it anew")
    return verdict


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise HistoryError(f"not JSON: {error}", file=path, next="`racelab check` makes it anew") from None
    return value if isinstance(value, dict) else {"value": value}


def render(history: History, verdict: dict[str, Any], env: dict[str, Any] | None = None) -> str:
    """The HTML text of a run's report."""
    drawn = scene.build(history, verdict)
    rows = _rows(history, verdict)
    environment = Environment(
        loader=PackageLoader("racelab.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shown": shown, "pairs": _pairs, "facts": _facts, "aloud": read_aloud}
    return environment.get_template("template.html.j2").render(
        style=Markup(palette.variables(":root") + palette.diagram_style()),
        diagram=Markup(spacetime.spacetime(drawn, verdict)),
        page_map=Markup(page_map(wrong_pages(verdict), Canvas(drawn).colour)),
        note=drawn.window.note,
        header=history.header,
        verdict=verdict,
        tone=VERDICT_STYLES.get(str(verdict["verdict"]), "yellow"),
        headline=headline(verdict),
        findings=grouped(verdict),
        specs=spec_rows(verdict),
        tokens=token_rows(verdict),
        label=label_words(str(verdict["label"])) if verdict.get("label") else None,
        transport=str(
            verdict.get("simulated") or verdict.get("machine") or _TRANSPORTS.get(str(verdict.get("transport")), "")
        ),
        target=_TARGETS.get(str(verdict.get("target")), ""),
        replay=replay_command(verdict),
        tried=also_tried(verdict),
        environment=_pairs(env or {}),
        rows=rows[:LISTED_EVENTS_MAX],
        events=len(rows),
        lost=history.lost,
    )


def _rows(history: History, verdict: dict[str, Any]) -> list[Row]:
    evidence = evidence_names(verdict)
    began_us = start_us(history)
    return [_row(event, began_us, name(event) in evidence) for event in history.events]


def _row(event: Event, began_us: int, evidence: bool) -> Row:
    ms = (wall_us(event.hlc) - began_us) / 1000
    return Row(
        anchor=f"e-{event.instance}-{event.seq}",
        ms=milliseconds(ms).removesuffix(" ms"),
        instance="client" if event.instance == CLIENT else event.instance,
        kind=event.kind,
        request=who(event) if event.request else "",
        ticket=ticket(event),
        words=phrase(event) if event.kind in KINDS else shown(event.data),
        evidence=evidence,
    )


def _facts(value: Any) -> list[tuple[str, str]]:
    """What a certificate says, as rows: spans of time in ms, yes and no, nothing that is empty."""
    if not isinstance(value, dict):
        return [("", shown(value))]
    rows = []
    for key, item in value.items():
        if item in ([], {}, None, "") or key == "bracket":
            continue
        if key.endswith("_ms") and isinstance(item, list | tuple) and len(item) == 2:
            moments = list(dict.fromkeys(milliseconds(float(moment)) for moment in item))
            rows.append((key.removesuffix("_ms"), " to ".join(moments)))
        elif isinstance(item, bool):
            rows.append((key.replace("_", " "), "yes" if item else "no"))
        elif key == "bytes" and isinstance(item, int):
            rows.append((key, size(item)))
        else:
            words = milliseconds(item) if key.endswith("_ms") and isinstance(item, int | float) else shown(item)
            rows.append((key.removesuffix("_ms").replace("_", " "), words))
    return rows


def _pairs(value: Any) -> list[tuple[str, str]]:
    """A mapping as rows of plain words, nested ones flattened with a dot."""
    if not isinstance(value, dict):
        return [("", shown(value))]
    rows: list[tuple[str, str]] = []
    for key, item in value.items():
        if isinstance(item, dict) and item:
            rows += [(f"{key}.{inner}" if inner else str(key), words) for inner, words in _pairs(item)]
        else:
            rows.append((str(key), shown(item)))
    return rows

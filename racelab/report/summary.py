"""The verdict in sentences: what the terminal and the page both say, from the plain `run --json` object."""

from __future__ import annotations

import re
import shlex
from typing import Any, NamedTuple

from racelab.errors import EXIT_LAB, EXIT_UNDECIDED, EXIT_UNEXPECTED
from racelab.evidence.result import EXPOSED
from racelab.report.words import count_of, listed, milliseconds, size
from racelab.scenario import SPECIFICATIONS

LABELS = {
    "default-timers": "reachable with the default time-outs of the target and the transport",
    "shortened": "reachable only with time-outs shorter than the defaults",
    "synthetic": "holds something longer than any named mechanism could, or sends what no real peer would",
}

_SAYS = {
    # what the first words of a verdict's sentence are; the evidence or the reason follows
    "reproduced": "The race is real here",
    "moved": "A specification that the scenario does not name was violated",
    "prevented": "The guards stopped it",
    "not-reproduced": "Not reproduced",
    "diverged": "The schedule could not be carried out",
    "inconclusive": "Nothing can be said of this run",
}


class Spec(NamedTuple):
    """One specification's row; `basis` is its coverage, or why it is unknown."""

    name: str
    outcome: str
    basis: str
    findings: list[dict[str, Any]]


class Tokens(NamedTuple):
    """A request's answer beside its solo answer; `different` are the places that disagree."""

    request: str
    expected: list[str]
    got: list[str]
    different: frozenset[int]
    missing: bool
    because: str = ""
    """the page that explains it, in words"""

    @property
    def differs(self) -> bool:
        """Whether the answer is another than the solo answer."""
        return bool(self.different)


def headline(verdict: dict[str, Any]) -> str:
    """One sentence that a doubting reader can check against the history; a simulated one says so first."""
    said = _headline(verdict)
    return f"Simulated, with no NIC: {said[0].lower()}{said[1:]}" if verdict.get("simulated") else said


def _headline(verdict: dict[str, Any]) -> str:
    word = str(verdict["verdict"])
    opening = _SAYS.get(word, word)
    if verdict.get("simulated"):
        opening = opening.replace("is real here", "shows here")
    if word == "prevented":
        blocked = verdict.get("blocked_at") or {}
        by = f"the guard {blocked.get('guard')} refused step {blocked.get('step')}" if blocked else "a guard refused"
        return f"Prevented: {by}, and after release, drain and probe nothing is violated{_without(verdict)}."
    if word in ("reproduced", "moved"):
        violating = [finding for finding in grouped(verdict) if finding.grade != EXPOSED]
        if violating:
            return f"{opening}: {violating[0].sentence()}{_wrong_answer(verdict, violating[0].owner)}."
    why = verdict.get("why")
    if isinstance(why, (list, tuple)):
        why = "; ".join(str(item) for item in why)
    return f"{opening}: {why}." if why else f"{opening}."


def _without(verdict: dict[str, Any]) -> str:
    """That the guard is what prevented it, if that was tried."""
    for tried in verdict.get("equivalents") or []:
        if str(tried["what"]).startswith("without ") and tried["verdict"] in ("reproduced", "moved"):
            return f"; {tried['what']} the same schedule is {tried['verdict']}"
    return ""


def expectation(verdict: dict[str, Any]) -> str:
    """Whether the run did what its scenario expects of the policy: `prevented: MISSED (exit 1)`."""
    if verdict["expected"] == verdict["verdict"]:
        return f"{verdict['expected']}: met"
    undecided = EXIT_UNDECIDED if verdict["verdict"] in ("diverged", "inconclusive") else EXIT_UNEXPECTED
    return f"{verdict['expected']}: MISSED (exit {EXIT_LAB if verdict.get('lab_failure') else undecided})"


def also_tried(verdict: dict[str, Any]) -> list[str]:
    """Other runs of the same order: how many, with which verdicts, and the variations of a prevented one."""
    lines = []
    counts: dict[str, int] = verdict.get("verdicts") or {}
    if counts:
        total = sum(counts.values())
        told = ", ".join(f"{word} {count:,}" for word, count in counts.items())
        caution = " (how often it happens by itself is another question)" if "reproduced" in counts else ""
        lines.append(f"{total:,} runs of this schedule: {told}{caution}")
    lines += [f"{tried['what']}: {tried['verdict']}" for tried in verdict.get("equivalents") or []]
    return lines


def _wrong_answer(verdict: dict[str, Any], owner: str | None) -> str:
    rows = wrong_answers(verdict, owner)
    if not rows:
        return ""
    return f"; {rows[0].request} answered {' '.join(rows[0].got)}, and alone it answers {' '.join(rows[0].expected)}"


class Finding(NamedTuple):
    """Findings that say the same of several pages, layers or moments."""

    spec: str
    grade: str
    what: str
    instance: str
    owner: str | None
    writer: str | None
    op: str
    pages: list[int]
    gens: list[int]
    extents: list[tuple[int, int]]
    moments: list[float]
    number: int

    def sentence(self) -> str:
        """The page, generation, owner, whose bytes and when; what is not known is left out."""
        if self.spec == "isolation" and self.grade in ("reached", "consumed") and self.writer and self.extents:
            pages = f"page{'s' if len(self.pages) > 1 else ''} {listed(self.pages)}"
            belonged = f"{'they' if len(self.pages) > 1 else 'it'} belonged to {self.owner}"
            whose = f"while {belonged}" if self.owner else "after that generation had ended"
            writes = f"{count_of(self.number, self.op)} of {self.writer}{self._bytes()}"
            were = "was" if self.number == 1 else "were"
            taken = f", and {were} read" if self.grade == "consumed" else ""
            return f"{writes} landed on {pages} {whose}{taken}{self._when()}"
        if self.number > 1:
            return f"{self.what} (and {self.number - 1} more like it){self._when()}"
        facts = [self._where() if self.pages and self._where() not in self.what else ""]
        facts += [f"owner {self.owner}" if self.owner and self.owner not in self.what else ""]
        facts += [f"bytes of {self.writer}" if self.writer and self.writer not in self.what else ""]
        told = ", ".join(fact for fact in facts if fact)
        return f"{self.what}{f' ({told})' if told else ''}{self._when()}"

    def _where(self) -> str:
        pages = f"page{'s' if len(self.pages) > 1 else ''} {listed(self.pages)}"
        return f"{pages} gen {listed(self.gens)}" if self.gens and "gen" not in str(self.owner) else pages

    def _bytes(self) -> str:
        extents = sorted(set(self.extents))
        if len(extents) != 1:
            return f" ({size(sum(end - start for start, end in self.extents))})"
        start, end = extents[0]
        return f" (bytes {start:,} to {end - 1:,}, {size(end - start)}{' each' if self.number > 1 else ''})"

    def _when(self) -> str:
        if not self.moments:
            return ""
        first, last = min(self.moments), max(self.moments)
        if milliseconds(first) == milliseconds(last):
            return f", at {milliseconds(first)}"
        return f", from {milliseconds(first)} to {milliseconds(last)}"


def grouped(verdict: dict[str, Any]) -> list[Finding]:
    """The evidence in the verdict's order, the most telling first, with repetitions told once."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for item in verdict.get("evidence", []):
        whom = (item.get("instance"), item.get("owner"), item.get("writer"))
        what = re.sub(r"\b[0-9a-f]{16}\b|\d+", "#", str(item.get("what", "")))
        groups.setdefault((item.get("spec"), item.get("grade"), item.get("op"), *whom, what), []).append(item)
    return [_merged(items) for items in groups.values()]


def _merged(items: list[dict[str, Any]]) -> Finding:
    first = items[0]
    return Finding(
        spec=str(first.get("spec")),
        grade=str(first.get("grade")),
        what=str(first.get("what", "")).rstrip("."),
        instance=str(first.get("instance")),
        owner=first.get("owner"),
        writer=first.get("writer"),
        op=str(first.get("op", "write")),
        pages=sorted({item["page"] for item in items if item.get("page") is not None}),
        gens=sorted({item["gen"] for item in items if item.get("gen") is not None}),
        extents=[(item["bytes"][0], item["bytes"][1]) for item in items if item.get("bytes")],
        moments=[float(item["when"]) for item in items if item.get("when") is not None],
        number=len(items),
    )


def spec_rows(verdict: dict[str, Any]) -> list[Spec]:
    """The four specifications in their order, also where a verdict leaves one out."""
    specs = verdict.get("specs", {})
    findings: list[dict[str, Any]] = verdict.get("evidence", [])
    rows = []
    for name in SPECIFICATIONS:
        value = specs.get(name, "unknown")
        detail: dict[str, Any] = value if isinstance(value, dict) else {}
        outcome = str(detail.get("outcome", "unknown")) if detail else str(value)
        mine = [finding for finding in findings if finding.get("spec") == name]
        coverage = detail.get("coverage") or (verdict.get("coverage") or {}).get(name) or {}
        why = detail.get("why") or (verdict.get("unknown") or {}).get(name)
        rows.append(Spec(name, outcome, _basis(outcome, coverage, why, len(mine)), mine))
    return rows


def _basis(outcome: str, coverage: dict[str, Any], why: Any, findings: int) -> str:
    looked = ", ".join(f"{number:,} {thing.replace('_', ' ')}" for thing, number in coverage.items() if number)
    parts = [count_of(findings, "finding")] if findings else []
    parts += [str(why)] if why and outcome == "unknown" else []
    parts += [f"coverage: {looked}"] if looked else []
    return "; ".join(parts)


def token_rows(verdict: dict[str, Any]) -> list[Tokens]:
    """Each request's tokens beside its solo run's, in the verdict's order."""
    rows = []
    for item in verdict.get("tokens", []):
        expected = [str(token) for token in item.get("expected") or []]
        got = [str(token) for token in item.get("got") or []]
        if expected and got:
            length = max(len(expected), len(got))
            different = frozenset(i for i in range(length) if expected[i : i + 1] != got[i : i + 1])
        else:
            different = frozenset()
        because = _page_behind(item["explained_by"]) if item.get("explained_by") else ""
        rows.append(Tokens(str(item["request"]), expected, got, different, missing=not got, because=because))
    return rows


def _page_behind(place: dict[str, Any]) -> str:
    bytes_of = f", with bytes of {place['writer']}" if place.get("writer") else ""
    layer = f" {place['stream']}" if place.get("stream") is not None else ""
    layer += f" layer {place['layer']}" if place.get("layer") is not None else ""
    layer += f" rank {place['rank']}" if place.get("rank") is not None else ""
    return f"by page {place['page']} gen {place['gen']}{layer}{bytes_of} ({place['event']})"


def wrong_answers(verdict: dict[str, Any], owner: str | None = None) -> list[Tokens]:
    """The answers that differ; the one of the request whose memory it was stands first."""
    if owner is None:
        owner = next((str(finding["owner"]) for finding in verdict.get("evidence", []) if finding.get("owner")), "")
    rows = [row for row in token_rows(verdict) if row.differs]
    return sorted(rows, key=lambda row: row.request != owner.split(" ")[0])


def label_words(label: str) -> str:
    """The run's label with what it means."""
    means = LABELS.get(label.split()[0].rstrip(":,;") if label else "")
    return f"{label}: {means}" if means and means not in label else label


def replay_command(verdict: dict[str, Any]) -> str:
    """The one command that runs this again."""
    given = verdict.get("replay")
    if given:
        return str(given)
    words = ["racelab", "run", str(verdict["scenario"]), "--policy", str(verdict["policy"])]
    for guard in verdict.get("without") or []:
        words += ["--without", str(guard)]
    if verdict.get("target") not in (None, "reference"):
        words += ["--target", str(verdict["target"])]
    if verdict.get("cluster") not in (None, "local"):
        words += ["--cluster", str(verdict["cluster"])]
    if verdict.get("seed") is not None:
        words += ["--seed", str(verdict["seed"])]
    return shlex.join(words)

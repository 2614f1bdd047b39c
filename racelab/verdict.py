"""The verdict: from a history and the checkers' answers to one word, an exit code and its reasons.

The rules stand in `_decide`, in the order in which they apply; the first that fits gives the word.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from racelab import answers
from racelab.errors import EXIT_EXPECTED, EXIT_LAB, EXIT_UNDECIDED, EXIT_UNEXPECTED, HistoryError
from racelab.evidence import collector, rc
from racelab.evidence.agreement import disagreement
from racelab.evidence.blocks import Blocks
from racelab.evidence.certificates import Certificate, certify
from racelab.evidence.events import Event
from racelab.evidence.history import Header, History
from racelab.evidence.injection import MET_NOTHING
from racelab.evidence.labels import label
from racelab.evidence.naming import number
from racelab.evidence.process_certificates import certify_processes
from racelab.evidence.result import EXPOSED, Checker, Finding, Outcome, SpecResult
from racelab.evidence.schedule import Schedule
from racelab.scenario import PROBE, SPECIFICATIONS
from racelab.scenario.steps import Await, read_aloud

Word = Literal["reproduced", "moved", "prevented", "not-reproduced", "diverged", "inconclusive"]

UNDECIDED = ("diverged", "inconclusive")

PHASES = ("release", "drain", "probe")
"""What has to follow a schedule before a run can count as a pass."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is said of one run."""

    verdict: Word
    why: str
    header: Header
    label: str
    results: dict[str, SpecResult]
    injections: list[Certificate]
    tokens: list[dict[str, Any]]
    checks: dict[str, int]
    blocked_at: dict[str, Any] | None = None
    halted_at: dict[str, Any] | None = None
    lab_failure: str | None = None

    @property
    def specs(self) -> dict[str, Outcome]:
        """The outcome of each specification."""
        return {spec: result.outcome for spec, result in self.results.items()}

    @property
    def evidence(self) -> list[Finding]:
        """All findings: the named specification's first."""
        named = self.header.scenario.spec
        ordered = sorted(self.results.values(), key=lambda result: result.spec != named)
        return [finding for result in ordered for finding in result.findings]

    @property
    def exit_code(self) -> int:
        """0 as expected (or nothing was stated), 1 otherwise, 3 undecided, 4 the lab failed."""
        if self.lab_failure is not None:
            return EXIT_LAB
        if self.verdict in UNDECIDED:
            return EXIT_UNDECIDED
        return EXIT_EXPECTED if self.header.expected in (None, self.verdict) else EXIT_UNEXPECTED

    def to_json(self, run_dir: str | Path | None = None, runs: int = 1) -> dict[str, Any]:
        """The object of `run --json` and of verdict.json."""
        header = self.header
        return {
            "scenario": header.scenario.scenario,
            "target": header.target,
            "policy": header.policy,
            "without": header.without,
            "glue_fault": header.glue_fault,
            "cluster": header.cluster,
            "transport": header.transport,
            "simulated": header.simulated,
            "machine": header.machine,
            "seed": header.seed,
            "runs": runs,
            "verdict": self.verdict,
            "expected": header.expected,
            "label": self.label,
            "why": self.why,
            "specs": self.specs,
            "unknown": {spec: result.why for spec, result in self.results.items() if result.outcome == "unknown"},
            "coverage": {spec: result.coverage for spec, result in self.results.items()},
            "evidence": msgspec.json.decode(msgspec.json.encode(self.evidence)),
            "injections": [certificate.to_json() for certificate in self.injections],
            "tokens": self.tokens,
            "checks": self.checks,
            "blocked_at": self.blocked_at,
            "halted_at": self.halted_at,
            "lab_failure": self.lab_failure,
            "run_dir": str(run_dir) if run_dir is not None else None,
        }


def judge(history: History, checkers: Mapping[str, Checker]) -> Verdict:
    """Derive the verdict from the history alone. A checker that raises answers `unknown`."""
    with collector.paused():
        return _judge(history, checkers)


def _judge(history: History, checkers: Mapping[str, Checker]) -> Verdict:
    results = {spec: _ask(checkers.get(spec), spec, history) for spec in SPECIFICATIONS}
    results = {spec: _placed(history, result) for spec, result in results.items()}
    injections = certify(history) + certify_processes(history)
    found = [finding for result in results.values() for finding in result.findings]
    tokens = answers.compared(history, history.header.scenario.requests, found)
    failure = _lab_failure(history)
    word, why = _decide(history, results, injections, tokens, failure, _violated_before(history, checkers, results))
    blocked = history.derived(Schedule).blocked
    return Verdict(
        verdict=word,
        why=why,
        header=history.header,
        label=label(history),
        results=results,
        injections=injections,
        tokens=tokens,
        checks={
            "fingerprints_compared": results["integrity"].coverage.get("fingerprints_compared", 0),
            "mismatches": results["integrity"].coverage.get("mismatches", 0),
            # what the engine itself noticed or, where it does not look, what its history shows
            "ledger_violations": max(len(history.by_kind["ledger-violation"]), len(results["conservation"].findings)),
            "events": len(history.events),
            "events_lost": history.lost,
        },
        blocked_at={"step": blocked.data["n"], "guard": blocked.data["guard"]} if blocked is not None else None,
        halted_at=_halted(history),
        lab_failure=failure,
    )


def worst(exit_codes: list[int]) -> int:
    """The exit code of many runs: the worst wins, in the order 4, 3, 1, 0."""
    return max(exit_codes, default=EXIT_EXPECTED)


def _ask(checker: Checker | None, spec: str, history: History) -> SpecResult:
    if checker is None:
        return SpecResult(spec=spec, outcome="unknown", why="no checker is installed for it")
    try:
        return checker(history)
    except HistoryError:
        raise  # the file is torn, and nothing can be said of it
    except Exception as error:  # a checker's crash is `unknown`, whatever it is
        return SpecResult(spec=spec, outcome="unknown", why=f"its checker failed: {type(error).__name__}: {error}")


def _halted(history: History) -> dict[str, Any] | None:
    """Where the schedule ended at a ledger violation, as was asked: the step, and what was violated by whom."""
    halted = history.derived(Schedule).halted
    if halted is None:
        return None
    by = tuple(halted.data["by"])
    noticed = next(event for event in history.by_kind["ledger-violation"] if (event.instance, event.seq) == by)
    ticket = {"request": noticed.request, "attempt": noticed.attempt, "page": noticed.page, "gen": noticed.gen}
    return {"step": halted.data["n"], "event": number(noticed), **ticket, **noticed.data}


def _placed(history: History, result: SpecResult) -> SpecResult:
    """The result, its findings by layer and rank where they named a memory block."""
    if not result.findings:
        return result
    blocks = history.derived(Blocks)
    return msgspec.structs.replace(result, findings=[blocks.placed(finding) for finding in result.findings])


def _lab_failure(history: History) -> str | None:
    """What went wrong with the harness itself, if something did."""
    for event in history.by_kind["died"]:
        what = "the lab failed" if event.data["peer"] == "lab" else f"{event.data['peer']} died"
        return f"{what} during {event.data['doing']}"
    for event in history.by_kind["scan"]:
        if event.data["foreign"]:
            return f"{event.instance}: page(s) {event.data['foreign']} that nobody was given hold another run's bytes"
    return None


def _decide(
    history: History,
    results: dict[str, SpecResult],
    injections: list[Certificate],
    tokens: list[dict[str, Any]],
    failure: str | None,
    before: list[SpecResult],
) -> tuple[Word, str]:
    schedule = history.derived(Schedule)
    named = history.header.scenario.spec
    if failure is not None:
        return "inconclusive", failure
    unsound = _unsound(history, schedule, injections)
    if unsound is not None:
        return "inconclusive", unsound
    if schedule.gave_up is not None:
        return _stopped_short(schedule.gave_up, named, before)
    violated = [spec for spec, result in results.items() if result.outcome == "violated"]
    unknown = [spec for spec, result in results.items() if result.outcome == "unknown"]
    if named in violated:
        return "reproduced", f"{named} is violated: {_strongest(results[named])}"
    if named in unknown:
        return "inconclusive", f"whether {named} held is unknown: {results[named].why}"
    if violated:
        held = f"{named} held, and " if named is not None else ""
        return "moved", f"{held}{violated[0]} is violated: {_strongest(results[violated[0]])}"
    if unknown:
        return "inconclusive", f"whether {unknown[0]} held is unknown: {results[unknown[0]].why}"
    unfinished = _unfinished(history, schedule, tokens)
    if unfinished is not None:
        return "inconclusive", unfinished
    if schedule.blocked is not None:
        data = schedule.blocked.data
        return "prevented", f"the guard {data['guard']} refused what step {data['n']} needs, and everything held after"
    idle = next((certificate for certificate in injections if certificate.state == "met-nothing"), None)
    if idle is not None:
        return "inconclusive", f"everything held, and nothing was tried: hold {idle.id} met nothing ({MET_NOTHING})"
    return "not-reproduced", "the whole schedule ran and all four specifications held"


def _stopped_short(gave_up: Event, named: str | None, before: list[SpecResult]) -> tuple[Word, str]:
    """What a schedule amounts to that an await ended. A violation that was there by then stands by itself; that the
    named specification held does not, so without that one's violation it has diverged, whatever else was violated."""
    step = f"step {gave_up.data['n']} could not go on: {gave_up.data['why']}: {gave_up.data['what']}"
    for result in before:
        if named in (None, result.spec):
            word: Word = "moved" if named is None else "reproduced"
            return word, f"{result.spec} is violated: {_strongest(result)}; only then {step}"
    also = "".join(f"; before that {result.spec} is violated: {_strongest(result)}" for result in before)
    return "diverged", step + also


def _violated_before(
    history: History, checkers: Mapping[str, Checker], results: Mapping[str, SpecResult]
) -> list[SpecResult]:
    """Of what is violated, what the events before an await was given up show by themselves: that a request never ends,
    or that a page never comes back, can be the doing of a conductor that went no further."""
    gave_up = history.derived(Schedule).gave_up
    if gave_up is None:
        return []
    earlier = History(history.header, (event for event in history.events if event.hlc < gave_up.hlc))
    looks = [_ask(checkers[spec], spec, earlier) for spec, whole in results.items() if whole.outcome == "violated"]
    return [look for look in looks if look.outcome == "violated"]


def _strongest(result: SpecResult) -> str:
    """What violates it: what was merely exposed does not."""
    strong = (finding.what for finding in result.findings if finding.grade != EXPOSED)
    return next(strong, result.findings[0].what)


def _unsound(history: History, schedule: Schedule, injections: list[Certificate]) -> str | None:
    """Why nothing can be concluded from this history, if so."""
    if history.disorder is not None:
        return f"the number, clock and causal edges of {number(history.disorder)} contradict each other"
    if history.lost:
        return f"{history.lost} event(s) are lost"
    contradiction = disagreement(history)
    if contradiction is not None:
        return f"the history contradicts itself: {contradiction}"
    for certificate in injections:
        if certificate.state in ("confirmed", "not-reached", "met-nothing"):
            continue  # a violation or a refusal stands by itself; that nothing happened does not (`_decide`)
        return f"injection {certificate.id} is not confirmed: {'; '.join(certificate.why[:2])}"
    illegal = rc.contradiction(history)
    if illegal is not None:
        return f"no reliable connection does that: {illegal}"
    written = history.header.certificates
    if written and written != [certificate.to_json() for certificate in injections]:
        return "the certificates in the history's header are not those that its events give"
    if schedule.blocked is not None:
        return _unfounded(history, schedule)
    return None


def _unfounded(history: History, schedule: Schedule) -> str | None:
    """A block counts only if it names the refusal that caused it, and that refusal came first."""
    assert schedule.blocked is not None
    by = schedule.blocked.data["by"]
    refusals = {(event.instance, event.seq): event for event in history.by_kind["refused"]}
    refusal = refusals.get(tuple(by)) if isinstance(by, list | tuple) else None
    if refusal is None or refusal.data["guard"] != schedule.blocked.data["guard"]:
        return f"no refusal by {schedule.blocked.data['guard']} stands behind the block at {number(schedule.blocked)}"
    awaited = schedule.step(schedule.blocked.data["n"])
    if isinstance(awaited, Await) and not _answers_to(refusal, awaited):
        return f"the refusal {number(refusal)} is not of what step {schedule.blocked.data['n']} awaits"
    if not history.causality.before(refusal, schedule.blocked):
        return f"the refusal {number(refusal)} is not known to precede the block at {number(schedule.blocked)}"
    return None


def _answers_to(refusal: Event, step: Await) -> bool:
    return refusal.data["refuses"] == step.event and step.request in (None, refusal.request)


def _unfinished(history: History, schedule: Schedule, tokens: list[dict[str, Any]]) -> str | None:
    """What keeps a run in which everything held from counting as a pass."""
    halted = _halted(history)
    if halted is not None:
        words = f"{halted['transition']}, {halted['rule']}, asked for by {halted['caller']}"
        return f"the schedule ended at a ledger violation in step {halted['step']}, as was asked: {words}"
    steps = history.header.scenario.steps
    if len(schedule.steps) < len(steps) or not schedule.complete:
        over = sum(step.done is not None for step in schedule.steps)
        return f"only {over} of {len(steps)} steps ran; next was: {read_aloud(steps[min(over, len(steps) - 1)])}"
    for phase in PHASES:
        if not schedule.reached(phase):
            return f"the {phase} phase is missing"
    if not any(event.request == PROBE for event in history.by_kind["finished"]):
        return "the probe request after the drain was not served"
    violations = history.by_kind["ledger-violation"]
    if violations:
        where = f"{violations[0].data['transition']}, {violations[0].data['rule']}"
        return f"the engine's books were kept wrongly {len(violations)} time(s), and no finding explains it: {where}"
    for row in tokens + answers.compared(history, [PROBE]):
        if row["first_difference"] is not None:
            return f"{row['request']} answered other tokens than alone, and no finding explains it"
    return None

"""The verdict's rules, in their order, and its JSON."""

from __future__ import annotations

from collections.abc import Mapping

import histories
import msgspec
import pytest
from histories import kind

from checkers import conservation, finality, integrity, isolation
from racelab.evidence import history as histories_on_disk
from racelab.evidence.certificates import certify
from racelab.evidence.history import History
from racelab.evidence.result import Checker, Finding, SpecResult
from racelab.verdict import Verdict, judge, worst

CHECKERS: Mapping[str, Checker] = {
    module.SPEC: module.check for module in (isolation, integrity, finality, conservation)
}


def judged(history: History, **changed: Checker) -> Verdict:
    return judge(history, {**CHECKERS, **changed})


def says(outcome: str) -> Checker:
    finding = Finding(spec="any", grade="reached", instance="decode", what="somebody did something")

    def check(history: History) -> SpecResult:
        findings = [finding] if outcome == "violated" else []
        return SpecResult(spec="any", outcome=outcome, findings=findings, why="reasons")  # type: ignore[arg-type]

    return check


def test_a_late_write_under_eager_is_reproduced() -> None:
    verdict = judged(histories.play(histories.LATE_WRITE))
    assert verdict.verdict == "reproduced"
    assert verdict.specs["isolation"] == "violated"
    assert verdict.evidence[0].spec == "isolation"
    assert verdict.tokens[0]["request"] == "r2"
    assert verdict.tokens[0]["first_difference"] == 0
    assert verdict.blocked_at is None


def test_a_late_write_under_ledger_is_prevented() -> None:
    verdict = judged(histories.play(histories.LATE_WRITE, histories.LEDGER))
    assert verdict.verdict == "prevented"
    assert verdict.blocked_at == {"step": 6, "guard": "drain-before-free"}
    assert set(verdict.specs.values()) == {"held"}
    assert verdict.tokens[0]["first_difference"] is None


def test_clean_serving_is_not_reproduced() -> None:
    verdict = judged(histories.play(histories.CLEAN))
    assert (verdict.verdict, verdict.exit_code) == ("not-reproduced", 0)


def test_another_specification_is_moved() -> None:
    verdict = judged(histories.play(histories.LATE_WRITE), isolation=says("held"))
    assert verdict.verdict == "moved"
    assert "isolation held, and integrity is violated" in verdict.why


def test_a_violation_that_no_specification_was_named_for_is_moved() -> None:
    assert judged(histories.play(histories.LOST_WRITE)).verdict == "moved"


def test_the_named_specification_unknown_is_inconclusive_even_if_another_is_violated() -> None:
    verdict = judged(histories.play(histories.LATE_WRITE), isolation=says("unknown"))
    assert verdict.verdict == "inconclusive"
    assert verdict.why == "whether isolation held is unknown: reasons"


def test_any_unknown_keeps_a_run_from_passing() -> None:
    assert judged(histories.play(histories.CLEAN), finality=says("unknown")).verdict == "inconclusive"


def test_a_checker_that_crashes_is_unknown() -> None:
    def crash(history: History) -> SpecResult:
        raise KeyError("oops")

    verdict = judged(histories.play(histories.CLEAN), integrity=crash)
    assert (verdict.verdict, verdict.specs["integrity"]) == ("inconclusive", "unknown")
    assert "its checker failed: KeyError: 'oops'" in verdict.why


def test_a_missing_checker_is_unknown() -> None:
    verdict = judge(histories.play(histories.CLEAN), {})
    assert set(verdict.specs.values()) == {"unknown"}
    assert verdict.verdict == "inconclusive"


def test_an_injection_that_is_not_confirmed_is_inconclusive() -> None:
    verdict = judged(histories.without(histories.play(histories.LATE_WRITE), kind("look")))
    assert verdict.verdict == "inconclusive"
    assert "injection w1 is not confirmed" in verdict.why


def test_lost_events_are_inconclusive() -> None:
    base = histories.play(histories.LATE_WRITE)
    verdict = judged(History(base.header, [event for event in base.events if not kind("read")(event)]))
    assert verdict.verdict == "inconclusive"
    assert verdict.checks["events_lost"] > 0


def gave_up(base: History, n: int = 3) -> History:
    return histories.with_extra(
        base,
        kind("step", n=n),
        kind="gave-up",
        data={"n": n, "why": "starved", "what": "the system is at rest without it"},
    )


def naming(spec: str | None, base: History) -> History:
    scenario = msgspec.structs.replace(base.header.scenario, spec=spec)
    return History(msgspec.structs.replace(base.header, scenario=scenario), base.events)


def test_giving_up_is_diverged() -> None:
    verdict = judged(gave_up(histories.play(histories.CLEAN)))
    assert (verdict.verdict, verdict.exit_code) == ("diverged", 3)
    assert verdict.why == "step 3 could not go on: starved: the system is at rest without it"


def test_a_violation_before_giving_up_stands_by_itself() -> None:
    verdict = judged(gave_up(histories.play(histories.LATE_WRITE), n=12))
    assert verdict.verdict == "reproduced"
    assert verdict.why.startswith("isolation is violated: ")
    assert verdict.why.endswith("; only then step 12 could not go on: starved: the system is at rest without it")


def test_a_violation_after_giving_up_is_diverged() -> None:
    """What is held at that time is let go then, and lands where the schedule had not come yet."""
    verdict = judged(gave_up(histories.play(histories.LATE_WRITE), n=9))
    assert (verdict.verdict, verdict.specs["isolation"]) == ("diverged", "violated")
    assert "isolation" not in verdict.why


def test_a_request_that_never_ends_once_the_schedule_does_is_diverged() -> None:
    unfinished = histories.without(histories.play(histories.CLEAN), kind("finished", request="r2"))
    verdict = judged(gave_up(naming("finality", unfinished), n=4))
    assert (verdict.verdict, verdict.specs["finality"]) == ("diverged", "violated")
    assert "finality" not in verdict.why


def test_another_violation_before_giving_up_is_moved_only_if_none_was_named() -> None:
    base = gave_up(histories.play(histories.LATE_WRITE), n=12)
    assert judged(naming(None, base)).verdict == "moved"
    verdict = judged(naming("finality", base))
    assert verdict.verdict == "diverged"
    assert "; before that isolation is violated: " in verdict.why


def test_a_death_is_a_lab_failure() -> None:
    history = histories.with_extra(
        histories.play(histories.CLEAN), kind("step", n=3), kind="died", data={"peer": "decode", "doing": "step 3"}
    )
    verdict = judged(history)
    assert (verdict.verdict, verdict.exit_code) == ("inconclusive", 4)
    assert verdict.lab_failure == verdict.why == "decode died during step 3"


def test_foreign_bytes_are_a_lab_failure() -> None:
    verdict = judged(histories.changed(histories.play(histories.CLEAN), kind("scan"), data={"foreign": [4]}))
    assert (verdict.verdict, verdict.exit_code) == ("inconclusive", 4)


@pytest.mark.parametrize("phase", ["release", "drain", "probe"])
def test_every_phase_after_the_schedule_is_needed(phase: str) -> None:
    base = histories.play(histories.CLEAN)
    verdict = judged(histories.without(base, lambda event: kind("phase", phase=phase)(event)))
    assert verdict.verdict == "inconclusive"
    assert verdict.why == f"the {phase} phase is missing"


def test_a_probe_that_was_not_served_is_no_pass() -> None:
    base = histories.play(histories.CLEAN)
    history = histories.changed(base, kind("finished", request="probe"), kind="failed", data={"why": "no pages"})
    assert judged(history).why == "the probe request after the drain was not served"


def test_steps_that_did_not_run_are_no_pass() -> None:
    base = histories.play(histories.CLEAN)
    gone = ("step", "step-done")
    history = histories.without(base, lambda event: event.kind in gone and event.data["n"] == 4)
    assert judged(history).why.startswith("only 3 of 4 steps ran; next was: await finished")


def test_wrong_tokens_without_a_finding_are_no_pass_and_no_violation() -> None:
    base = histories.play(histories.CLEAN)
    verdict = judged(histories.changed(base, kind("finished", request="r2"), data={"tokens": [1, 2, 3, 4]}))
    assert verdict.verdict == "inconclusive"
    assert verdict.why == "r2 answered other tokens than alone, and no finding explains it"


def test_a_block_needs_its_refusal() -> None:
    base = histories.play(histories.LATE_WRITE, histories.LEDGER)
    for tampered in (
        histories.changed(base, kind("blocked"), data={"guard": "quarantine-on-expiry"}),
        histories.changed(base, kind("blocked"), data={"by": None}),
        histories.changed(base, kind("blocked"), data={"by": ["decode", 1]}),
    ):
        verdict = judged(tampered)
        assert verdict.verdict == "inconclusive"
        assert "no refusal by" in verdict.why


def test_the_headers_certificates_must_be_those_of_the_events() -> None:
    base = histories.play(histories.LATE_WRITE)
    base.header.certificates = [certificate.to_json() for certificate in certify(base)]
    assert judged(base).verdict == "reproduced"
    base.header.certificates[0]["state"] = "mismatch"
    verdict = judged(base)
    assert verdict.verdict == "inconclusive"
    assert "not those that its events give" in verdict.why


def test_the_same_verdict_from_the_file(tmp_path: histories_on_disk.Path) -> None:
    base = histories.play(histories.LATE_WRITE)
    base.header.certificates = [certificate.to_json() for certificate in certify(base)]
    base.write(tmp_path / histories_on_disk.HISTORY_FILE)
    again = histories_on_disk.read(tmp_path)
    assert judged(again).to_json() == judged(base).to_json()


@pytest.mark.parametrize(("expected", "code"), [("reproduced", 0), (None, 0), ("prevented", 1), ("not-reproduced", 1)])
def test_exit_codes_by_expectation(expected: str | None, code: int) -> None:
    history = histories.play(histories.LATE_WRITE)
    history.header.expected = expected
    assert judged(history).exit_code == code


def test_the_worst_exit_code_of_many_runs() -> None:
    assert worst([0, 1, 0]) == 1
    assert worst([0, 3, 1]) == 3
    assert worst([4, 3, 1, 0]) == 4
    assert worst([]) == 0


def test_the_json_has_the_contracts_keys() -> None:
    contract = {
        "scenario", "target", "policy", "without", "cluster", "transport", "seed", "runs", "verdict", "expected",
        "label", "specs", "evidence", "injections", "tokens", "checks", "blocked_at", "run_dir",
    }  # fmt: skip
    data = judged(histories.play(histories.LATE_WRITE)).to_json(run_dir="runs/x", runs=3)
    assert contract <= set(data)
    assert (data["runs"], data["run_dir"]) == (3, "runs/x")
    assert set(data["evidence"][0]) >= {
        "spec", "grade", "instance", "page", "gen", "owner", "writer", "bytes", "when", "what"
    }  # fmt: skip
    assert set(data["checks"]) == {
        "fingerprints_compared", "mismatches", "ledger_violations", "events", "events_lost"
    }  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(data)) == data


def test_a_block_needs_a_refusal_of_what_was_awaited() -> None:
    base = histories.play(histories.LATE_WRITE, histories.LEDGER)
    blocked = base.by_kind["blocked"][0]
    other = histories.changed(base, lambda event: event.seq == blocked.data["by"][1] and event.kind == "refused",
                              data={"refuses": "committed"})  # fmt: skip
    assert "is not of what step 6 awaits" in judged(other).why


def test_witnesses_that_disagree_are_inconclusive() -> None:
    base = histories.play(histories.CLEAN)
    verdict = judged(histories.changed(base, kind("received", "prefill"), request="r2"))
    assert verdict.verdict == "inconclusive"
    assert verdict.why.startswith("the history contradicts itself: decode:")


@pytest.mark.parametrize("gap", [1, 5])
def test_events_that_others_heard_of_are_missing(gap: int) -> None:
    """The end of one process's record is gone: no gap shows it, but somebody had heard of it."""
    base = histories.play(histories.CLEAN)
    last = [event for event in base.events if event.instance == "prefill"][-gap:]
    verdict = judged(History(base.header, [event for event in base.events if event not in last]))
    assert verdict.verdict == "inconclusive"


def test_clocks_against_numbers_are_inconclusive() -> None:
    base = histories.play(histories.CLEAN)
    committed = base.by_kind["committed"][0]
    early = histories.changed(base, kind("committed"), hlc=base.events[3].hlc + 1)
    assert "contradict each other" in judged(early).why
    twice = History(base.header, [*base.events, committed])
    assert "contradict each other" in judged(twice).why


WHATEVER_COMES = "  - hold: {id: m0, message: {type: abort, request: r2}, count: 0, mechanism: broker-backlog}\n"
"""Nothing of the kind comes in any of these histories."""


def with_a_hold_of_whatever_comes(text: str) -> str:
    return text.replace("steps:\n", f"steps:\n{WHATEVER_COMES}", 1)


def test_a_hold_that_met_nothing_is_no_fault_that_landed() -> None:
    verdict = judged(histories.play(with_a_hold_of_whatever_comes(histories.CLEAN)))
    assert set(verdict.specs.values()) == {"held"}
    assert (verdict.verdict, verdict.exit_code) == ("inconclusive", 3)
    assert "hold m0 met nothing" in verdict.why
    (certificate,) = verdict.injections
    assert (certificate.state, certificate.why) == ("met-nothing", ["nothing came that it could have stopped"])


@pytest.mark.parametrize(("guards", "word"), [((), "reproduced"), (histories.LEDGER, "prevented")])
def test_a_violation_and_a_refusal_stand_without_it(guards: tuple[str, ...], word: str) -> None:
    verdict = judged(histories.play(with_a_hold_of_whatever_comes(histories.LATE_WRITE), guards))
    assert verdict.verdict == word, verdict.why
    states = {certificate.id: certificate.state for certificate in verdict.injections}
    assert (states["m0"], states["w1"]) == ("met-nothing", "confirmed")

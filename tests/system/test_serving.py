"""Serving with a prefix cache on real processes: nothing is mixed up, and the whole of it is recorded."""

from __future__ import annotations

from pathlib import Path

from racelab import scenario
from racelab.assembly import Order, Workbench
from racelab.orders import Audience, run_order
from racelab.results import RunFolder
from racelab.shipped import shipped

RUNS = 8
FINGERPRINTS = 540
BOUNDARY_EVENTS = 22_104
"""What the published design work compared and replayed over its eight serving runs. One run here compares about
as many fingerprints as those eight: 538 to 546, for what is aborted when depends on the moment."""


def test_eight_runs_of_sharing_and_eviction_compare_every_page(bench: Workbench, tmp_path: Path) -> None:
    wanted = scenario.load(shipped("scenarios", "prefix-sharing-eviction.yaml"))
    json = run_order(bench, Order(wanted, "ledger", runs=RUNS), RunFolder(tmp_path), Audience()).json
    assert json["verdicts"] == {"not-reproduced": RUNS}
    checks = json["checks"]
    assert checks["fingerprints_compared"] >= (RUNS - 1) * FINGERPRINTS
    assert (checks["mismatches"], checks["ledger_violations"], checks["events_lost"]) == (0, 0, 0)


def test_sharing_and_eviction_have_every_way_that_a_page_can_go(bench: Workbench) -> None:
    wanted = scenario.load(shipped("scenarios", "prefix-sharing-eviction.yaml"))
    history = bench.play(Order(wanted, "ledger")).history
    kinds = history.by_kind
    for kind in ("page-shared", "page-dup", "page-draining", "cache-hit", "queued", "aborted"):
        assert kinds[kind], kind
    ways = {(event.data["from"], event.data["why"]) for event in kinds["page-free"] if event.instance == "decode"}
    assert {("SHARED", "evicted"), ("DUP", "finished"), ("DRAINING", "stop evidence")} <= ways


def test_normal_serving_gives_as_many_boundary_events_as_the_published_runs(bench: Workbench) -> None:
    wanted = scenario.load(shipped("scenarios", "normal-serving.yaml"))
    played = bench.play(Order(wanted, "ledger"))
    assert played.verdict.verdict == "not-reproduced", played.verdict.why
    boundary = [event for event in played.history.events if event.instance in ("prefill", "decode")]
    assert len(boundary) >= BOUNDARY_EVENTS / RUNS
    evicted = [event for event in boundary if event.kind == "page-free" and event.data["why"] == "evicted"]
    assert evicted
    assert played.history.by_kind["cache-hit"]
    assert any(event.data["chunk"] > 1 for event in boundary if event.kind == "posted")


def test_a_byte_changed_on_the_way_is_named_with_its_page_and_its_transfer(bench: Workbench) -> None:
    wanted = scenario.load(shipped("scenarios", "byte-changed-on-the-way.yaml"))
    played = bench.play(Order(wanted, "ledger"))
    verdict, history = played.verdict, played.history
    held = history.by_kind["held"][0]
    assert {(finding.page, finding.layer) for finding in verdict.evidence} == {(held.page, held.data["layer"])}
    assert {finding.spec for finding in verdict.evidence} == {"integrity"}
    for finding in verdict.evidence:
        assert finding.bytes == (4096, 8192), "the chunk with byte 5000"
        assert held.data["what"] in finding.what
    assert {finding.what.split()[0] for finding in verdict.evidence} >= {"r1", "r2"}
    assert verdict.label.startswith("synthetic: hold w1 changes a byte")
    assert [each.state for each in verdict.injections] == ["confirmed"]
    for finding in verdict.evidence:
        assert "bytes 4096-8191" in finding.what  # the 4 KiB around byte 5000


def test_a_torn_page_names_both_ranges_and_both_writers(bench: Workbench) -> None:
    played = bench.play(Order(scenario.load(shipped("scenarios", "torn-write.yaml")), "eager"))
    verdict = played.verdict
    assert verdict.verdict == "reproduced", verdict.why
    assert next((each.id, each.state, each.action) for each in verdict.injections) == ("w1", "confirmed", "tear")
    landing = next(finding for finding in verdict.evidence if finding.grade == "consumed")
    assert (landing.writer, landing.bytes) == ("r1 attempt 1 gen 1", (0, 24_576))
    of_r2 = [finding for finding in verdict.evidence if str(finding.owner).startswith("r2 ")]
    torn = [finding for finding in of_r2 if finding.spec == "integrity"]
    assert torn
    for finding in torn:
        assert finding.bytes == (0, 24_576), "what is not r2's"
        assert [(part.bytes, part.request) for part in finding.provenance] == [
            ((0, 24_576), "r1"),
            ((24_576, 49_152), "r2"),
        ]
        assert "bytes 0-24575 are r1 attempt 1 gen 1's" in finding.what
        assert "bytes 24576-49151 are r2 attempt 1 gen 2's" in finding.what

"""`racelab import`: the shipped counterexample, foreign traces, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from trace_samples import SAMPLES

from racelab import scenario
from racelab.errors import BindingError, TraceError
from racelab.importing import import_counterexample
from racelab.scenario.steps import Submit
from racelab.shipped import shipped

COUNTEREXAMPLE = "late-write-after-timeout"


def test_the_committed_scenario_is_what_an_import_of_the_committed_counterexample_gives() -> None:
    folder = shipped("scenarios", "counterexamples")
    imported = import_counterexample(folder / f"{COUNTEREXAMPLE}.txt")
    assert imported.binding == "page-lifecycle"
    assert scenario.dump(imported.scenario) == (folder / f"{COUNTEREXAMPLE}.yaml").read_text(encoding="utf-8")


def test_a_foreign_trace_finds_its_binding_and_becomes_the_same_schedule() -> None:
    ours = import_counterexample(shipped("scenarios", "counterexamples", f"{COUNTEREXAMPLE}.txt"))
    theirs = import_counterexample(SAMPLES / "tlc-text" / "late.txt")
    assert theirs.binding == "pd-pages"
    assert theirs.scenario.steps == ours.scenario.steps


@pytest.mark.parametrize(
    ("name", "binding", "spec", "requests"),
    [
        ("tlc-text/isolation.txt", "pd-pages", "isolation", ["r1"]),
        ("tlc-text/isolation-2026.txt", "pd-pages", "isolation", ["r1"]),
        ("tlc-text/conservation.txt", "pd-pages", "conservation", ["r1"]),
        ("tlc-text/finality.txt", "pd-pages", "isolation", ["r1"]),
        ("tlc-text/stuttering.txt", "pd-pages", "finality", ["r2", "r1"]),
        ("tlc-text/deadlock.txt", "pd-pages", "finality", ["r1", "r2"]),
        ("tlc-tool/conservation.txt", "pd-pages", "conservation", ["r1"]),
        ("tlc-json/cons.json", "pd-pages", None, ["r1"]),
        ("itf/late.itf.json", "pd-quint", None, ["r2", "r1"]),
        ("itf/out_isolation.itf.json", "pd-quint", None, ["r1", "r2"]),
        ("itf/out_integrity.itf.json", "pd-quint", None, ["r1", "r2"]),
        ("spin/short.txt", "pd-spin", None, ["r1"]),
    ],
)
def test_each_format_is_imported_where_a_binding_fits(
    name: str, binding: str, spec: str | None, requests: list[str]
) -> None:
    imported = import_counterexample(SAMPLES / name)
    assert (imported.binding, imported.scenario.spec) == (binding, spec)
    assert [step.request for step in imported.scenario.steps if isinstance(step, Submit)] == requests
    assert len(imported.explain) >= len(requests)


def test_the_same_run_in_three_formats_is_the_same_schedule() -> None:
    names = ("tlc-text/conservation.txt", "tlc-tool/conservation.txt", "tlc-json/cons.json")
    text, tool, json = (import_counterexample(SAMPLES / name).scenario.steps for name in names)
    assert text == tool == json


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("tlc-text/every-value.txt", "no binding fits Zoo"),
        ("itf/missionaries.itf.json", "no binding fits MC_MissionariesAndCannibalsTyped"),
        ("ndjson/etcd.ndjson", "no binding fits this trace"),
        ("itf/out_conservation.itf.json", "found no violation"),
    ],
)
def test_what_cannot_be_imported_says_what_is_missing(name: str, what: str) -> None:
    with pytest.raises(BindingError, match=what) as caught:
        import_counterexample(SAMPLES / name)
    assert caught.value.exit_code == 2
    assert caught.value.next


def test_an_output_without_an_error_is_refused() -> None:
    with pytest.raises(TraceError, match="found no error") as caught:
        import_counterexample(SAMPLES / "tlc-text" / "no-error.txt")
    assert caught.value.exit_code == 2


def test_a_binding_of_the_users_own_must_fit() -> None:
    with pytest.raises(BindingError, match="page-lifecycle does not fit: it is for module PageLifecycle"):
        import_counterexample(
            SAMPLES / "tlc-text" / "late.txt", shipped("scenarios", "bindings", "page-lifecycle.yaml")
        )


def test_a_binding_of_the_users_own_is_taken_for_a_module_that_none_of_ours_fits(tmp_path: Path) -> None:
    text = shipped("scenarios", "bindings", "pd-pages.yaml").read_text(encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(text.replace("binding: pd-pages", "binding: mine"), encoding="utf-8")
    imported = import_counterexample(SAMPLES / "tlc-text" / "late.txt", tmp_path / "mine.yaml")
    assert imported.scenario.origin is not None
    assert (imported.binding, imported.scenario.origin.binding) == ("mine", "mine")

"""What a scenario names of its surroundings, checked while it is read: one list with everything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from racelab import documents, scenario
from racelab.errors import DocumentError
from racelab.lab.cluster import load
from racelab.shipped import shipped
from racelab.surroundings import Here
from racelab.targets import target
from racelab.targets.own_policies import with_own

WRONG = """\
scenario: wrong
about: Names nothing here has.
guard: drain-befor-free
requests: {r1: {}}
steps:
  - hold: {id: w1, write: {request: r1}, mechanism: magic}
  - hold: {id: w2, write: {request: r1}, payload: reread, mechanism: retransmission}
  - submit: r2
  - stop: decode
expected:
  legder: prevented
  ledger less drain-before-free: reproduced
  ledger less hold-without-end: prevented
  eager no-fault: moved
  mine: prevented
  eager: provented
"""


def problems(text: str, here: Here) -> list[tuple[int | None, str]]:
    with pytest.raises(DocumentError) as caught:
        scenario.build(documents.parse(text, "s.yaml"), here)
    return [(problem.line, problem.what) for problem in caught.value.problems]


def test_everything_is_one_list() -> None:
    found = problems(WRONG, Here(target("reference"), load("local")))
    assert [line for line, _ in found] == [3, 6, 7, 8, 11, 13, 15, 16], found
    said = dict(found)
    assert said[3] == "no guard 'drain-befor-free'; did you mean 'drain-before-free'?"
    assert said[6].startswith("hold w1: gate wire knows no mechanism 'magic': one of: ")
    assert said[7].startswith("hold w2: gate wire cannot let a write leave with payload reread: ")
    assert said[11] == "expected: no policy 'legder'; did you mean 'ledger'?"
    assert said[13].startswith("expected: policy 'ledger' has no guard 'hold-without-end'")
    assert "its file is given with --policy" in said[15]
    assert said[16].endswith("did you mean 'prevented'?")


def test_a_policy_of_ones_own_is_known_where_it_is_given(tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text("policy: mine\nguards: []\n", encoding="utf-8")
    system, _ = with_own(target("reference"), [str(own)])
    assert 15 not in dict(problems(WRONG, Here(system)))


def test_without_a_cluster_gates_are_nobodys_business() -> None:
    assert not {6, 7} & dict(problems(WRONG, Here(target("reference")))).keys()


@pytest.mark.parametrize(
    "path",
    sorted([*shipped("scenarios").glob("*.yaml"), *shipped("scenarios", "catalog").glob("*.yaml")]),
    ids=lambda path: path.stem,
)
def test_what_ships_names_nothing_else(path: Path) -> None:
    assert scenario.build(documents.read(path), Here(target("reference"))) == scenario.load(path)


def test_an_event_that_the_target_does_not_report_cannot_be_awaited() -> None:
    silent = structs.replace(target("reference"), unreported=("page-free",))
    text = """\
scenario: waits
about: For what this target cannot see.
requests: {r1: {}}
steps:
  - submit: r1
  - await: {event: page-free, request: r1}
  - await: {event: finished, request: r1}
"""
    assert problems(text, Here(silent)) == [(6, "target reference does not report 'page-free'")]

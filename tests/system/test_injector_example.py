"""The worked example of docs/writing-an-injector.md: taken from the page, registered, and run on a lab."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from racelab import registry, scenario
from racelab.abilities import check_mechanisms
from racelab.assembly import Order, Workbench, open_workbench
from racelab.errors import UsageError
from racelab.lab.cluster import load
from racelab.scenario.steps import Drop, Hold, WriteMatch
from racelab.targets import target

PAGE = Path(__file__).parents[2] / "docs" / "writing-an-injector.md"
BLOCK = re.compile(r"```(python|toml|yaml)\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def blocks() -> dict[str, str]:
    """The example's blocks by their language."""
    example = PAGE.read_text(encoding="utf-8").partition("## 4. A worked example")[2]
    return dict(BLOCK.findall(example))


@pytest.fixture
def installed(blocks: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module and its entry point, as pip would leave them, for this process and those it starts."""
    (tmp_path / "half_placed.py").write_text(blocks["python"])
    info = tmp_path / "half_placed-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: half-placed\nVersion: 0.1\n")
    groups = tomllib.loads(blocks["toml"])["project"]["entry-points"]
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in each.items())
        for group, each in groups.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.fixture
def halves(installed: None, bench: Workbench, tmp_path: Path) -> Iterator[Workbench]:
    """A lab whose writes the example holds; Ray is one to a process, so whatever other lab there is ends first."""
    bench.close()
    cluster = msgspec.structs.replace(load("local"), write_gate="half-placed")
    with open_workbench(cluster, target("reference"), tmp_path) as opened:
        yield opened


def test_the_example_runs_on_a_lab(halves: Workbench, blocks: dict[str, str]) -> None:
    wanted = scenario.loads(blocks["yaml"])
    for policy, verdict in wanted.expected.items():
        played = halves.play(Order(wanted, policy))
        assert played.verdict.verdict == verdict, played.verdict.why
        certificate = next(each for each in played.verdict.injections if each.id == "w1")
        assert (certificate.gate, certificate.state) == ("half-placed", "confirmed"), certificate.why
        assert certificate.stage == "on the wire, its first half placed"


def test_it_is_refused_what_it_does_not_offer_and_serves_only_where_it_is_named(installed: None) -> None:
    injectors = registry.injectors()
    assert "half-placed" in [each.name for each in injectors]
    chosen = [each.name for each in load("local").gates(injectors) if each.subject == "write"]
    assert chosen == ["wire"]
    steps = [Hold(id="w", write=WriteMatch(request="r1")), Drop(hold="w")]
    wanted = scenario.Scenario(scenario="s", about="a", requests={"r1": scenario.Request()}, steps=steps)
    named = msgspec.structs.replace(load("local"), write_gate="half-placed")
    with pytest.raises(UsageError, match="gate half-placed cannot lose what it holds"):
        check_mechanisms(wanted, named.gates(injectors))

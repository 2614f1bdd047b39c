"""Over kernel verbs on rdma_rxe: something ends while a write is under way; does the write still land?

The wire is slow, the write is posted, something ends, the page is reused, and then the packet arrives.
"""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest
from shaping import slow_wire

from injectors.verbs.build import compiler
from racelab.vm.client import Supervisor
from racelab.vm.machine import Machine

pytestmark = pytest.mark.timeout(600)

DELAY_MS = 1500
SOURCE = Path(__file__).with_name("late.c")
INSIDE = "/run/late"

ENDLESS, THREE, ONE = 7, 3, 1
"""rdma_rxe takes 7 as for ever; with fewer a requester gives up, which is how an end that is not told is seen."""

CASES = {
    "nothing": (ENDLESS, "landed", "success"),
    "deregistered": (ENDLESS, "fenced", "remote access error"),
    "responder-reset": (THREE, "fenced", "transport retry counter exceeded"),
    "responder-error": (THREE, "fenced", "transport retry counter exceeded"),
    "responder-dies": (THREE, "fenced", "transport retry counter exceeded"),
    "requester-reset": (ENDLESS, "landed", "-"),
    "requester-error": (ENDLESS, "landed", "Work Request Flushed Error"),
    "requester-destroyed": (ENDLESS, "landed", "-"),
    "requester-gives-up": (ONE, "landed", "transport retry counter exceeded"),
    "requester-dies": (ENDLESS, "landed", "-"),
    "packets-lost": (ENDLESS, "landed", "success"),
}


@pytest.fixture(scope="module")
def late(softroce: Machine, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The program, in the machine; built here, which has the headers."""
    built = tmp_path_factory.mktemp("late") / "late"
    subprocess.run(
        [compiler(), "-O2", "-Wall", "-Wextra", "-Werror", str(SOURCE), "-o", str(built), "-libverbs"], check=True
    )
    with Supervisor(softroce) as supervisor:
        encoded = base64.b64encode(built.read_bytes()).decode()
        supervisor.checked(["sh", "-c", f"base64 -d > {INSIDE} && chmod +x {INSIDE}"], encoded)
    return INSIDE


@pytest.mark.parametrize("case", CASES)
def test_what_ends_and_what_still_lands(case: str, late: str, supervisor: Supervisor) -> None:
    retries, outcome, told = CASES[case]
    with slow_wire(supervisor, DELAY_MS):
        said = supervisor.checked(["timeout", "30", late, case, str(retries)])
    assert said.strip() == f"{outcome} {told}"

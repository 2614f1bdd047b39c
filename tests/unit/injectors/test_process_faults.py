"""The process injector on a process of its own: what /proc shows, and whom it leaves alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from injectors.process import Faults
from racelab.errors import LabError
from racelab.evidence.events import KINDS, Event
from racelab.evidence.recorder import Recorder
from racelab.gates import INSTANCE_VARIABLE


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that says that it is prefill, and that it is up."""
    code = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {INSTANCE_VARIABLE: "prefill"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.send_signal(signal.SIGKILL)


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def faults(events: list[Event]) -> Faults:
    return Faults(Recorder("process", sink=events.append))


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_process_stands_still_and_goes_on(
    faults: Faults, events: list[Event], child: subprocess.Popen[bytes]
) -> None:
    faults.stop("f1", "prefill", child.pid)
    assert state(child.pid) == "T"
    assert faults.reset(2)["held"] == ["prefill, stopped"]
    faults.resume("f2", "prefill", child.pid)
    assert state(child.pid) != "T"
    assert faults.reset(3)["held"] == []
    assert [event.kind for event in events] == ["stopped", "continued"]
    for event in events:
        assert set(KINDS[event.kind].data) <= event.data.keys()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_killed_process_is_gone(
    faults: Faults, events: list[Event], child: subprocess.Popen[bytes], stopped: bool
) -> None:
    if stopped:
        faults.stop("f1", "prefill", child.pid)
    faults.kill("f2", "prefill", child.pid, idle=True)
    assert events[-1].data["status"] == signal.SIGKILL
    assert child.wait(10) == -signal.SIGKILL


def test_a_process_that_is_not_that_instance_is_left_alone(faults: Faults, child: subprocess.Popen[bytes]) -> None:
    with pytest.raises(LabError, match="is not decode of a lab, and is left alone"):
        faults.kill("f", "decode", child.pid, idle=True)
    assert child.poll() is None


def test_an_id_that_nobody_has_is_told(faults: Faults, child: subprocess.Popen[bytes]) -> None:
    faults.kill("f", "prefill", child.pid, idle=True)
    child.wait(10)
    with pytest.raises(LabError, match=f"prefill has no process {child.pid} on this machine"):
        faults.stop("f", "prefill", child.pid)


def test_what_is_stopped_goes_on_when_the_lab_ends(faults: Faults, child: subprocess.Popen[bytes]) -> None:
    faults.stop("f1", "prefill", child.pid)
    faults.close()
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(10) == 0, "a stopped process would not have ended by itself"

"""Instances by fork: each has its own variables, says why it could not start, and ends with its parent."""

from __future__ import annotations

import os
import select
import signal
import threading
from pathlib import Path

import pytest

from racelab.lab.nursery import Nursery

ENTRY = """
import os, signal, threading
from pathlib import Path

def run(role, *, into):
    Path(into, f"{role}-{os.environ['PLACE']}").write_text(f"{os.getpid()} {os.getppid()}")

def fail(role, **options):
    raise ValueError(f"{role} has no {options['part']}")

def stay(role, *, told):
    with open(told, "w") as pipe:
        pipe.write(str(os.getpid()))
    signal.pause()

if os.environ.get("WITH_A_THREAD"):
    threading.Thread(target=signal.pause, daemon=True).start()
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "forked_entry.py").write_text(ENTRY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return "forked_entry"


def test_instances_are_processes_of_their_own_with_variables_of_their_own(module: str, tmp_path: Path) -> None:
    with Nursery(f"{module}:run") as nursery:
        assert nursery.fork("decode", {"into": str(tmp_path)}, {"PLACE": "a"}) is None
        assert nursery.fork("prefill", {"into": str(tmp_path)}, {"PLACE": "b"}) is None
        first, second = ((tmp_path / name).read_text().split() for name in ("decode-a", "prefill-b"))
    assert first[0] != second[0]
    assert first[1] == second[1] == str(nursery.pid)


def test_why_an_instance_could_not_start_is_said(module: str) -> None:
    with Nursery(f"{module}:fail") as nursery:
        assert nursery.fork("decode", {"part": "rail"}, {}) == "ValueError: decode has no rail"


def test_what_has_threads_is_not_forked(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WITH_A_THREAD", "1")
    with Nursery(f"{module}:run") as nursery:
        said = nursery.fork("decode", {"into": "nowhere"}, {"PLACE": "a"})
    assert said is not None
    assert "threads" in said


def test_an_instance_ends_with_its_parent_and_is_noticed_when_it_dies(module: str, tmp_path: Path) -> None:
    pipe = tmp_path / "told"
    os.mkfifo(pipe)
    said: list[str | None] = []
    with Nursery(f"{module}:stay") as nursery:
        for how in ("killed", "with its parent"):
            waiting = threading.Thread(target=lambda: said.append(nursery.fork("decode", {"told": str(pipe)}, {})))
            waiting.start()
            watched = os.pidfd_open(int(pipe.read_text()))
            if how == "killed":
                signal.pidfd_send_signal(watched, signal.SIGKILL)
            else:
                nursery.close()
            ended, _, _ = select.select([watched], [], [], 10)
            os.close(watched)
            waiting.join(10)
            assert ended
            assert not waiting.is_alive()
    assert said == [None, None]

"""What a command leaves behind: processes, ports with them, shared memory, temporary folders.

Other labs may run on the machine. A process is ours by a mark in its environment, which whatever it starts inherits;
a name that came meanwhile is left over if no process that is not ours has to do with it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from racelab.lab.environment import environment

SETTLE_BOUND_S = 15.0
MARK = "LEAVES_NOTHING"


@contextmanager
def leaving_nothing() -> Iterator[None]:
    """What is started in the block is gone soon after it, and so is what it made."""
    before = _names()
    mark = uuid4().hex
    with environment({MARK: mark}):
        yield
    deadline = time.monotonic() + SETTLE_BOUND_S
    while (left := _left(f"{MARK}={mark}".encode(), before)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


def _names() -> set[str]:
    """Files of shared memory, and folders that a lab, or Ray, has for itself."""
    folders = (name for name in os.listdir(tempfile.gettempdir()) if name.startswith(("rl-", "ray")))
    return {*os.listdir("/dev/shm"), *folders}


def _left(mark: bytes, before: set[str]) -> list[str]:
    fresh = _names() - before
    others, left = [], []
    for folder in Path("/proc").glob("[0-9]*"):
        if mark not in _read(folder / "environ"):
            others.append(folder)
        elif folder.name != str(os.getpid()):
            left.append(f"{folder.name} {_read(folder / 'cmdline')[:120].decode(errors='replace')}")
    return left + sorted(name for name in fresh if not any(_has(each, os.fsencode(name)) for each in others))


def _has(folder: Path, name: bytes) -> bool:
    """Whether a process has to do with a file: by how it was started, or because it has it open or mapped."""
    files = (_read(folder / each) for each in ("cmdline", "environ", "maps"))
    return any(name in each for each in files) or any(name in each for each in _opened(folder / "fd"))


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""  # it has ended


def _opened(folder: Path) -> Iterator[bytes]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            yield os.fsencode(os.readlink(folder / name))
        except OSError:
            continue

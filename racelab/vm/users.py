"""Who uses the machine: a process keeps a file locked while it does, and its end unlocks it, whatever happens.

A lab has the machine's lease only while it runs; whoever plays one lab after another uses it in between as well.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from racelab.vm.image import cache


def folder() -> Path:
    """Where the files are, one a process."""
    return cache() / "users"


@contextmanager
def using() -> Iterator[None]:
    """This process uses the machine, or means to, until the end of the block."""
    folder().mkdir(parents=True, exist_ok=True)
    path = folder() / f"{os.getpid()}-{os.urandom(4).hex()}"
    partial = path.with_suffix(".new")
    with partial.open("w") as file:
        flock(file, LOCK_EX)
        file.write(f"process {os.getpid()} ({shlex.join(_command())})")
        file.flush()
        partial.rename(path)  # locked before anybody can see it
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def others() -> list[str]:
    """Other processes that use it, in words; what those left that have ended is removed."""
    if not folder().is_dir():
        return []
    files = sorted(path for path in folder().iterdir() if not path.suffix)
    return [path.read_text() for path in files if not path.name.startswith(f"{os.getpid()}-") and _in_use(path)]


def _in_use(path: Path) -> bool:
    try:
        with path.open() as file:
            flock(file, LOCK_EX | LOCK_NB)
            path.unlink(missing_ok=True)
            return False
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False


def _command() -> list[str]:
    return [Path(sys.argv[0]).name, *sys.argv[1:]]

"""A process that has imported what an instance needs, and forks one whenever it is asked: in milliseconds.

    python -m racelab.lab.nursery MODULE:FUNCTION

Imports of torch take seconds of a core, a fork of a process that has made them does not. Requests come one at a
time, a line of JSON each on standard input (`role`, `options`, `variables`); a line on standard output says
`pid` once the instance is there, and another one `ended` once it is not, with `said` if it could not start.
Nothing here may start a thread, which a fork would lose, and it is refused to fork with one: Mooncake, which has
some, is loaded by each instance itself, and so reads the variables that are its own. When standard input ends, the
instance is ended, and this.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any

import msgspec

TASKS = "/proc/self/task"
"""A folder for each thread of this process (proc_pid_task(5))."""


class Request(msgspec.Struct, frozen=True):
    """Be the instance `role`: what its entry is called with, and environment variables of its own."""

    role: str
    options: dict[str, Any]
    variables: dict[str, str]


class News(msgspec.Struct, frozen=True, omit_defaults=True):
    """An instance is there (`pid`), or has `ended` with this exit code; `said` is why it could not start."""

    pid: int = 0
    ended: int | None = None
    said: str | None = None


class Nursery:
    """That process, as its parent sees it."""

    def __init__(self, entry: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "racelab.lab.nursery", entry],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # numpy's, which would have threads when it is imported
        )

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def close(self) -> None:
        """Have it end its instance, and itself."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def fork(self, role: str, options: dict[str, Any], variables: dict[str, str]) -> str | None:
        """Have an instance forked, and wait until it has ended; the reason if it could not start."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        _tell(self._process.stdin, Request(role, options, variables))
        said = None
        for line in self._process.stdout:
            news = msgspec.json.decode(line, type=News)
            said = news.said or said
            if news.ended is not None:
                return said
        return f"its parent ended with code {self._process.wait()}"


Entry = Callable[..., None]


def entry_of(name: str) -> Entry:
    """The function that "module:function" names."""
    module, _, function = name.partition(":")
    found: Entry = getattr(importlib.import_module(module), function)
    return found


def serve(entry: Entry, requests: IO[bytes], news: IO[bytes]) -> None:
    """Fork an instance for each request, until there are no more."""
    gc.freeze()  # what is there stays, and is not looked at by the collections of every instance
    while line := requests.readline():
        request = msgspec.json.decode(line, type=Request)
        if len(os.listdir(TASKS)) > 1:
            _tell(news, News(ended=1, said="its entry starts threads when it is imported, and cannot be forked"))
            continue
        pid = os.fork()
        if pid == 0:
            _be(entry, request, news)
        _tell(news, News(pid=pid))
        _tell(news, News(ended=_wait(pid, requests)))


def _be(entry: Entry, request: Request, news: IO[bytes]) -> None:
    """The forked process: it never returns from here."""
    os.environ.update(request.variables)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    telling = os.fdopen(os.dup(news.fileno()), "wb")
    os.dup2(2, 1)
    status = 0
    try:
        entry(request.role, **request.options)
    except Exception as error:  # crosses the process boundary as one line
        _tell(telling, News(said=f"{type(error).__name__}: {error}"))
        status = 1
    sys.stderr.flush()
    os._exit(status)


def _wait(pid: int, requests: IO[bytes]) -> int:
    """Until the instance has ended; it is ended if nobody is there any more who asked for it."""
    watched = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([watched, requests.fileno()], [], [])
        if watched not in ready:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(watched)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _tell(to: IO[bytes], what: Request | News) -> None:
    to.write(msgspec.json.encode(what) + b"\n")
    to.flush()


if __name__ == "__main__":
    serve(entry_of(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)

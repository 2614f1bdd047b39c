"""How a gate's process starts and ends: the arguments all gates have, and one line for each failure."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from racelab.channel.link import Link
from racelab.errors import LabError, PortTakenError, RacelabError
from racelab.evidence.events import Event
from racelab.evidence.recorder import Recorder
from racelab.gates import TOKEN_VARIABLE

Address = tuple[str, int]

LISTEN_BACKLOG = 128


def address(text: str) -> Address:
    """HOST:PORT as an argument."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host, int(port)


def reason(error: BaseException) -> str:
    """Why the system refused, in its own words; asyncio puts others in their place."""
    code = error.errno if isinstance(error, OSError) else None
    return os.strerror(code) if code else str(error) or type(error).__name__


def parser(module: str, about: str) -> argparse.ArgumentParser:
    """`--hub` and `--instance`, which the conductor gives to every gate, and where to listen."""
    arguments = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    arguments.add_argument("--hub", type=str, required=True, metavar="HOST:PORT", help="where the conductor listens")
    arguments.add_argument("--instance", required=True, metavar="NAME", help="what the history calls this process")
    arguments.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    arguments.add_argument("--port", type=int, default=0, help="the port to listen on; a free one if left out")
    return arguments


def listen(host: str, port: int = 0) -> socket.socket:
    """A listening socket.

    Raises:
        PortTakenError: somebody else listens there.
    """
    try:
        return socket.create_server((host, port), backlog=LISTEN_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortTakenError(
                f"port {port} of {host} is taken", next="free it, or leave the port out to get a free one"
            ) from None
        raise LabError(f"cannot listen on {host}:{port}: {reason(error)}") from None


class Speaker:
    """A gate's recorder and its link to the conductor: each event is published at once."""

    def __init__(self, instance: str) -> None:
        self.recorder = Recorder(instance, sink=self._hear)
        self._link: Link | None = None
        self._waiting: list[Event] = []
        self._urgent = 0
        self._lock = threading.Lock()
        self._publishing = threading.Lock()

    def connect(self, hub: str, facts: dict[str, Any]) -> Link:
        """Say hello to the conductor.

        Raises:
            LabError: there is none.
        """
        try:
            self._link = Link(hub, os.environ.get(TOKEN_VARIABLE, ""), self.recorder, **facts)
        except OSError as error:
            raise LabError(f"no conductor at {hub}: {reason(error)}") from None
        return self._link

    @contextmanager
    def urgently(self) -> Iterator[None]:
        """Within this block no thread stops to publish; what is recorded meanwhile follows right after."""
        with self._lock:
            self._urgent += 1
        try:
            yield
        finally:
            with self._lock:
                self._urgent -= 1
            self._publish()

    def _hear(self, event: Event) -> None:
        with self._lock:
            self._waiting.append(event)
            urgent = self._urgent
        if not urgent:
            self._publish()

    def _publish(self) -> None:
        assert self._link is not None, "an event before the conductor is known"
        with self._publishing:  # taken first, so that events leave in their order
            with self._lock:
                events, self._waiting = self._waiting, []
            if events:
                self._link.publish(*events)


def run(main: Callable[[], None]) -> None:
    """Run a gate until its conductor is gone; the exit code is that of the error tree.

    The process ends at once, whatever its threads hold: what is held lives no longer than the lab.
    Ctrl-C is the conductor's to handle, and its end is this process's end.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    code = 0
    try:
        main()
    except RacelabError as error:
        print(error.what + (f"; {error.next}" if error.next else ""), file=sys.stderr)
        code = error.exit_code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

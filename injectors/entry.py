"""How a gate's process starts and ends: the arguments all gates have, and one line for each failure."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import socket
import sys
from collections.abc import Callable

from racelab.channel.link import Link
from racelab.errors import LabError, PortTakenError, RacelabError
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


def speaker(instance: str) -> tuple[Recorder, Callable[[str, dict[str, object]], Link]]:
    """A recorder that publishes each event at once, and what connects it to the conductor."""
    links: list[Link] = []
    recorder = Recorder(instance, sink=lambda event: links[0].publish(event))

    def connect(hub: str, facts: dict[str, object]) -> Link:
        try:
            links.append(Link(hub, os.environ.get(TOKEN_VARIABLE, ""), recorder, **facts))
        except OSError as error:
            raise LabError(f"no conductor at {hub}: {reason(error)}") from None
        return links[0]

    return recorder, connect


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

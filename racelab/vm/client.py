"""What is asked of the machine's supervisor: one line of JSON there, one back (guest/supervisor.py)."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

import msgspec

from racelab.errors import BoundError, LabError, PeerDiedError
from racelab.vm.machine import NAME, Machine, running

ANSWER_BOUND_S = 30.0
UP = "racelab cluster up softroce"


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """What a command in the machine came to."""

    rc: int
    out: str
    err: str


def machine() -> Machine:
    """The one that is up.

    Raises:
        LabError: none is; the message says how to bring it up.
    """
    found = running()
    if found is None:
        raise LabError(f"{NAME} is not up", next=UP)
    return found


def lease(who: str) -> Supervisor:
    """The machine for one lab alone, until the connection is closed: its wire's counts are then that lab's.

    Raises:
        LabError: none is up, or somebody else has it.
    """
    supervisor = Supervisor(machine())
    try:
        supervisor.ask("lease", who=who)
    except BaseException:
        supervisor.close()
        raise
    return supervisor


class Supervisor:
    """One connection to the supervisor. Not thread-safe."""

    def __init__(self, of: Machine) -> None:
        self._token = of.token
        try:
            self.socket = socket.create_connection(("127.0.0.1", of.port), timeout=ANSWER_BOUND_S)
        except OSError as error:
            raise LabError(
                f"{NAME}'s supervisor cannot be reached: {error}", next=f"racelab cluster down {NAME}"
            ) from None
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, do: str, **arguments: Any) -> Any:
        """Ask, and wait for the answer.

        Raises:
            LabError: it refuses.
            BoundError: it does not answer.
            PeerDiedError: the machine is gone.
        """
        self.send(do, **arguments)
        try:
            answer = json.loads(_line(self.socket))
        except TimeoutError:
            raise BoundError(f"{NAME} did not answer {do!r} in {ANSWER_BOUND_S:.0f} s") from None
        except (OSError, ValueError):
            raise PeerDiedError(NAME, do) from None
        if "error" in answer:
            raise LabError(f"{NAME}: {answer['error']}", next="racelab cluster status softroce")
        return answer["ok"]

    def send(self, do: str, **arguments: Any) -> None:
        """Ask, and leave the answer to somebody else."""
        try:
            self.socket.sendall(json.dumps({"token": self._token, "do": do} | arguments).encode() + b"\n")
        except OSError:
            raise PeerDiedError(NAME, do) from None

    def run(self, argv: Sequence[str], given: str = "") -> Ran:
        """Run a command in the machine, as its root."""
        return msgspec.convert(self.ask("run", argv=list(argv), input=given), Ran)

    def checked(self, argv: Sequence[str], given: str = "") -> str:
        """The same, and what it said.

        Raises:
            LabError: it failed.
        """
        ran = self.run(argv, given)
        if ran.rc:
            raise LabError(f"{' '.join(argv[:2])} failed in {NAME}: {ran.err.strip() or ran.rc}")
        return ran.out

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


def _line(connection: socket.socket) -> bytes:
    """One line and nothing behind it: what follows may be for somebody else."""
    line = bytearray()
    while not line.endswith(b"\n"):
        waiting = connection.recv(1 << 16, socket.MSG_PEEK)
        if not waiting:
            break
        line += connection.recv(waiting.find(b"\n") + 1 or len(waiting))
    return bytes(line)

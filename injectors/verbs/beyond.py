"""Processes in the Soft-RoCE machine, as the gate reaches them: a stream each, and the wire's own counts.

The machine takes no unix socket of this host. So the gate leaves a connection for each instance with the
machine's supervisor, which hands it to the instance's agent when that is started.
"""

from __future__ import annotations

import socket

from racelab.vm.client import Supervisor, machine
from racelab.vm.wire import carried


class Beyond:
    """`lab` tells this lab's connections from another's."""

    def __init__(self, lab: str) -> None:
        self.supervisor = Supervisor(machine())
        self._lab = lab

    def leave(self, name: str) -> socket.socket:
        """A connection for the agent of an instance that is about to be started."""
        return _kept(f"{self._lab}-{name}")

    def counts(self) -> dict[str, int]:
        """Requests and bytes that left the devices, as the wire counted them."""
        ends = carried(self.supervisor).values()
        return {
            "requests_kernel": sum(end.requests for end in ends),
            "bytes_kernel": sum(end.sent_bytes + end.read_bytes for end in ends),
        }


def _kept(name: str) -> socket.socket:
    """A connection that the supervisor keeps for the agent that asks for `name`."""
    left = Supervisor(machine())
    left.ask("keep", name=name)
    return left.socket

"""The verbs gate, and two real Mooncake engines over the software device, each in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from wire_rig import MEMORY, Rig

from racelab.gates import INSTANCE_VARIABLE
from racelab.lab.environment import environment


class DeviceRig(Rig):
    """The verbs gate, and a writer and a target on the software device."""

    def start_gate(self) -> None:
        arguments = ["--hub", self.hub.address, "--instance", "verbs", "--simulated", "softhca"]
        self.gate = self.start("verbs", "-m", "injectors.verbs", *arguments, "--rails", str(self.rails))

    def boot(self, rails: int, variables: Mapping[str, str]) -> None:
        self.rails = rails
        self.start_gate()
        for name in ("target", "writer"):
            own = {INSTANCE_VARIABLE: name, "MOONCAKE_PEER_PROTOCOL": "rdma"}
            with environment(self.gate["environment"] | own | dict(variables)):
                facts = self.start_peer(name)
            if name == "target":
                self.target, self.base = facts["segment"], facts["base"]
                self.gate["segment"] = self.target
        self.writer("fill", start=0, size=MEMORY, value=0xA1)

    def do(self, command: str, **args: Any) -> Any:
        return self.hub.call("verbs", command, **args)

    def queued(self) -> list[int]:
        """The queue pairs of the requests that stand before the doorbell, in order."""
        moves = [event.data for event in self.events if event.kind == "work-request"]
        return [data["qp"] for data in moves if data["move"] == "queued"]


@contextmanager
def device(rails: int, **variables: str) -> Iterator[DeviceRig]:
    """With these variables in the environment of writer and target."""
    rig = DeviceRig()
    try:
        rig.boot(rails, variables)
        yield rig
    finally:
        rig.close()

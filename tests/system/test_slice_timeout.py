"""MC_SLICE_TIMEOUT and a write that is simply held before its doorbell, on the software device (Mooncake 0.3.13)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from wire_rig import MEMORY, PAGE, Rig

from racelab.gates import INSTANCE_VARIABLE
from racelab.lab.environment import environment

SLICE_TIMEOUT_S = "1"


class DeviceRig(Rig):
    """The verbs gate, and a writer and a target on the software device."""

    def start_gate(self) -> None:
        arguments = ["--hub", self.hub.address, "--instance", "verbs", "--simulated", "softhca"]
        self.gate = self.start("verbs", "-m", "injectors.verbs", *arguments, "--rails", str(self.rails))

    def boot(self, rails: int) -> None:
        self.rails = rails
        self.start_gate()
        for name in ("target", "writer"):
            own = {INSTANCE_VARIABLE: name, "MOONCAKE_PEER_PROTOCOL": "rdma", "MC_SLICE_TIMEOUT": SLICE_TIMEOUT_S}
            with environment(self.gate["environment"] | own):
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
def device(rails: int) -> Iterator[DeviceRig]:
    rig = DeviceRig()
    try:
        rig.boot(rails)
        yield rig
    finally:
        rig.close()


@pytest.mark.parametrize("rails", [1, 2])
def test_a_synchronous_write_is_sent_again_behind_itself_and_fails_and_every_copy_lands(rails: int) -> None:
    """Each submission goes to the same queue pair, where reliable connection lets none overtake the held one."""
    with device(rails) as rig:
        rig.do("arm", hold="h", match={"request": "r1"}, count=1)
        rig.announce([0])
        asked = rig.hub.send("writer", "write", segment=rig.target, source=0, address=rig.base, size=PAGE)
        rig.await_events("held", 1)
        assert rig.hub.collect(asked, "writer", "write") == -1
        submissions = rails + 1
        assert len(rig.queued()) == submissions, "once for each rail and once more"
        assert len(set(rig.queued())) == 1
        assert rig.peek(0) == [0]
        rig.hub.call("target", "fill", start=0, size=PAGE, value=0xBB)
        rig.do("release", hold="h")
        rig.await_events("landed", 1)
        while sum(event.data.get("move") == "completed" for event in rig.events) < submissions:
            assert rig.hub.pump(10), "waited 10 s for every copy to complete"
        assert rig.peek(0) == [0xA1], "a failure was told, and the bytes land over what the page holds by then"


def test_an_asynchronous_write_times_out_and_lands() -> None:
    with device(1) as rig:
        rig.do("arm", hold="h", match={"request": "r1"}, count=1)
        handles = rig.post([0])
        rig.await_events("held", 1)
        assert rig.finish(handles) == {-2}
        assert rig.peek(0) == [0]
        rig.do("release", hold="h")
        rig.await_events("landed", 1)
        assert rig.peek(0) == [0xA1]

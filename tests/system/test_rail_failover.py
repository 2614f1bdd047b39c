"""A page of two slices on two rails: one half fails over in mid-page, and its first attempt lands after the success.

The engine leaves rails to Mooncake (0.3.13), which cuts a write into slices of 64 KiB, and sends a slice that fails
again, from the same local rail to another one of its peer's.
"""

from __future__ import annotations

from device_rig import DeviceRig, device
from wire_rig import PAGE

from racelab.transport.softhca import FABRIC_VARIABLE, Fabric

WHOLE = 2 * PAGE
"""Two slices."""


def landed_by_rail(rig: DeviceRig) -> dict[int, int]:
    """Bytes that the writer's devices have landed, by rail."""
    ports = Fabric(rig.gate["environment"][FABRIC_VARIABLE]).ports()
    return {port.rail: port.landed_bytes for port in ports if port.pid == rig.children["writer"].pid}


def test_half_a_page_is_sent_again_and_its_first_attempt_lands_over_the_next_owner() -> None:
    with device(2) as rig:
        rig.do("arm", hold="h", match={"request": "r1"}, count=1, action="ghost")
        rig.announce([1])  # of the write, the second half alone
        handles = rig.writer("submit", segment=rig.target, sources=[0], addresses=[rig.base], sizes=[WHOLE])
        rig.await_events("held", 1)
        assert rig.finish(handles) == {1}, "Mooncake says that the page has landed"
        assert rig.peek(0, 2) == [0xA1]
        (first,) = [event for event in rig.events if event.data.get("move") == "queued"]
        assert first.data["bytes"] == PAGE
        landed = landed_by_rail(rig)
        assert sum(landed.values()) == WHOLE, "each half once"
        assert max(landed.values()) == WHOLE, "over the local rail that both left on: the other one is the peer's"
        rig.hub.call("target", "fill", start=0, size=WHOLE, value=0xBB)  # the page has another owner
        rig.do("release", hold="h")
        rig.await_events("landed", 1)
        assert [rig.peek(0), rig.peek(1)] == [[0xBB], [0xA1]]

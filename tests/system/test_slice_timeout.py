"""MC_SLICE_TIMEOUT and a write that is simply held before its doorbell, on the software device (Mooncake 0.3.13)."""

from __future__ import annotations

import pytest
from device_rig import device
from wire_rig import PAGE

SLICE_TIMEOUT_S = "1"


@pytest.mark.parametrize("rails", [1, 2])
def test_a_synchronous_write_is_sent_again_behind_itself_and_fails_and_every_copy_lands(rails: int) -> None:
    """Each submission goes to the same queue pair, where reliable connection lets none overtake the held one."""
    with device(rails, MC_SLICE_TIMEOUT=SLICE_TIMEOUT_S) as rig:
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
    with device(1, MC_SLICE_TIMEOUT=SLICE_TIMEOUT_S) as rig:
        rig.do("arm", hold="h", match={"request": "r1"}, count=1)
        handles = rig.post([0])
        rig.await_events("held", 1)
        assert rig.finish(handles) == {-2}
        assert rig.peek(0) == [0]
        rig.do("release", hold="h")
        rig.await_events("landed", 1)
        assert rig.peek(0) == [0xA1]

"""Rows about writes and reads: time-outs, what protocol 1 says, resets, tears, deaths."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from fault_rig import PROGRESS, hold, release, resident, rig, stopped, two
from wire_rig import MEMORY, PAGE, Rig

from racelab.gates import INSTANCE_VARIABLE


def held_past_the_progress_timeout() -> dict[str, Any]:
    with rig(**PROGRESS) as own:
        hold(own)
        handles = own.post([0])
        own.await_events("held", 1)
        (code,) = own.finish(handles)
        return {"code": code, "lands-when-released": release(own)}


def held_past_the_slice_timeout() -> dict[str, Any]:
    with rig(MC_SLICE_TIMEOUT="1", MC_TCP_PROGRESS_TIMEOUT_SEC="3") as own:
        hold(own)
        handles = own.post([0])
        own.await_events("held", 1)
        (code,) = own.finish(handles)
        return {"code": code, "lands-when-released": release(own)}


def held_past_the_transfer_timeout() -> dict[str, Any]:
    with rig(MC_TRANSFER_TIMEOUT="5", MC_TCP_PROGRESS_TIMEOUT_SEC="60") as own:
        hold(own)
        own.announce([0])
        asked = own.hub.send("writer", "write", segment=own.gate["segment"], source=0, address=own.base, size=PAGE)
        own.await_events("held", 1)
        code = own.hub.collect(asked, "writer", "write")
        return {"code": code, "lands-when-released": release(own)}


def status_withheld() -> dict[str, Any]:
    with rig(**PROGRESS) as own:
        hold(own, action="lose-completion")
        handles = own.post([0])
        own.await_events("withheld", 1)
        (code,) = own.finish(handles)
        return {"code": code, "landed": own.peek(0) == [0xA1]}


def protocol_1_to_a_stopped_target() -> dict[str, Any]:
    with two(MC_TCP_PROTO="1", **{INSTANCE_VARIABLE: "target"}) as own:
        with stopped(own, "target"):
            asked = own.hub.send("writer", "write", segment=own.target, source=0, address=own.base, size=PAGE)
        assert own.hub.collect(asked, "writer", "write") == 0, "its handshake needs the target"
        with stopped(own, "target"):
            code = own.writer("write", segment=own.target, source=0, address=own.base + PAGE, size=PAGE)
            landed = resident(own, PAGE)
        return {"code": code, "landed-at-return": landed, "lands-when-it-goes-on": _lands(own, PAGE)}


def _lands(own: Rig, start: int) -> bool:
    """Whether the bytes come, once the target is asked for something: its thread takes turns with them."""
    return any(own.hub.call("target", "peek", start=start, size=PAGE) == [0xA1] for _ in range(2000))


def protocol_1_to_a_bad_address() -> dict[str, Any]:
    with two(MC_TCP_PROTO="1") as own:
        address = own.base + 2 * MEMORY
        code = own.writer("write", segment=own.target, source=0, address=address, size=64)
        return {"code": code, "landed": 0xA1 in own.peek(0, MEMORY // PAGE)}


def one_of_a_batch_reset() -> dict[str, Any]:
    with rig() as own:
        own.do("arm", hold="first", match={"page": 0}, count=1)
        own.do("arm", hold="h", match={"page": 1}, count=1)
        own.announce([0, 1])
        places = [0, PAGE]
        handle = own.writer(
            "submit_batch",
            segment=own.gate["segment"],
            sources=places,
            addresses=[own.base + place for place in places],
            sizes=[PAGE, PAGE],
        )
        own.await_events("held", 2)
        own.do("reset_connections", hold="first")
        (code,) = own.finish([handle])
        other = own.peek(1) == [0xA1]
        return {"code": code, "other-landed-at-return": other, "other-lands-when-released": release(own, page=1)}


def torn() -> dict[str, Any]:
    with rig() as own:
        hold(own)
        handles = own.post([0])
        own.await_events("held", 1)
        own.do("release", hold="h", tear=24_576)
        own.await_events("torn", 1)
        (code,) = own.finish(handles)
        count = sum(own.hub.call("target", "peek", start=at, size=4096) == [0xA1] for at in range(0, PAGE, 4096))
        (following,) = own.finish(own.post([1], prefix="next"))
        return {"code": code, "bytes-landed": count * 4096, "next-write": following}


def torn_read() -> dict[str, Any]:
    with rig() as own:
        own.hub.call("target", "fill", start=0, size=MEMORY, value=0xB2)
        own.do("arm", hold="h", match={"op": "read"}, count=1)
        handles = own.read(0)
        own.await_events("held", 1)
        own.do("release", hold="h", tear=24_576)
        own.await_events("torn", 1)
        (code,) = own.finish(handles)
        count = sum(own.writer("peek", start=at, size=4096) == [0xB2] for at in range(0, PAGE, 4096))
        (following,) = own.finish(own.read(1))
        return {"code": code, "bytes-read": count * 4096, "next-read": following}


def writer_killed() -> dict[str, Any]:
    with rig() as own:
        hold(own)
        own.post([0])
        own.await_events("held", 1)
        own.kill("writer")
        return {"lands-when-released": release(own)}


def target_killed() -> dict[str, Any]:
    with rig() as own:
        hold(own)
        handles = own.post([0])
        own.await_events("held", 1)
        own.kill("target")
        own.do("release", hold="h")
        own.await_events("unlanded", 1)
        return {"code": own.finish(handles).pop()}


def target_stopped() -> dict[str, Any]:
    with two(**{INSTANCE_VARIABLE: "target"}) as own:
        assert own.writer("write", segment=own.target, source=0, address=own.base, size=PAGE) == 0
        with stopped(own, "target"):
            handles = own.writer("submit", segment=own.target, sources=[0], addresses=[own.base + PAGE], sizes=[PAGE])
            assert own.writer("status", handle=handles[0]) == 0, "it waits"
            landed = resident(own, PAGE)
        (final,) = own.finish(handles)
        return {"landed-while-stopped": landed, "code": final, "lands-when-it-goes-on": own.peek(1) == [0xA1]}


def target_half_open() -> dict[str, Any]:
    """The network drops the target's end of a write's connection, and does not tell the writer."""
    with rig(**PROGRESS) as own:
        hold(own)
        handles = own.post([0])
        own.await_events("held", 1)
        (code,) = own.finish(handles)
        own.do("drop", hold="h")
        (following,) = own.finish(own.post([1], prefix="next"))
        return {"code": code, "landed": own.peek(0) == [0xA1], "next-write": following}


def ticket_after_the_progress_timeout() -> dict[str, Any]:
    with rig(**PROGRESS) as own:
        hold(own)
        own.announce([0])
        own.writer("scatter", segment=own.gate["segment"], source=0, address=own.base, size=PAGE)
        own.await_events("held", 1)
        said = own.writer("drain", timeout_ms=10_000)
        return {"ticket": said, "lands-when-released": release(own)}


def unknown_batch() -> dict[str, Any]:
    code = (
        "from mooncake.engine import TransferEngine\n"
        "e = TransferEngine(); e.initialize('127.0.0.1', 'P2PHANDSHAKE', 'tcp', '')\n"
        "e.transfer_check_status(4711)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=False)
    return {"ends-by-signal": -done.returncode}

"""Two Mooncake engines with a gate between them, or without one, and what is done to them in rows about faults."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wire_rig import MEMORY, PAGE, Rig

from injectors.process import Instance
from racelab.lab.environment import environment

PROGRESS = {"MC_TCP_PROGRESS_TIMEOUT_SEC": "2"}
HALF = PAGE // 2


@contextmanager
def rig(**variables: str) -> Iterator[Rig]:
    """A rig of its own whose processes have these variables; target memory 0, writer memory 0xA1."""
    own = Rig()
    with environment(variables):
        try:
            own.start_all()
            own.writer("fill", start=0, size=MEMORY, value=0xA1)
            yield own
        finally:
            own.close()


@contextmanager
def two(**variables: str) -> Iterator[Rig]:
    """The same without a gate."""
    own = Rig()
    with environment(variables):
        try:
            facts = own.start_peer("target")
            own.target, own.base = facts["segment"], facts["base"]
            own.start_peer("writer")
            own.writer("fill", start=0, size=MEMORY, value=0xA1)
            yield own
        finally:
            own.close()


def hold(own: Rig, count: int = 1, **more: Any) -> None:
    own.do("arm", hold="h", match={"request": "r1"}, count=count, **more)


def release(own: Rig, page: int = 0) -> bool:
    """Let go what is held; whether it lands over what the page holds by then."""
    own.hub.call("target", "fill", start=page * PAGE, size=PAGE, value=0xBB)
    own.do("release", hold="h")
    own.await_events("landed", 1)
    return own.peek(page) == [0xA1]


@contextmanager
def stopped(own: Rig, name: str) -> Iterator[None]:
    """A process of the rig stands still; the block ends with it going on."""
    instance = Instance(name, own.children[name].pid)
    instance.send(signal.SIGSTOP)
    instance.wait_for(lambda states: set(states) == {"T"}, "stop")
    try:
        yield
    finally:
        instance.send(signal.SIGCONT)
        instance.close()


def resident(own: Rig, start: int) -> bool:
    """Whether bytes of the writer are in a stopped target's memory, as the kernel shows it."""
    with Path(f"/proc/{own.children['target'].pid}/mem").open("rb") as memory:
        memory.seek(own.base + start)
        return memory.read(1) == b"\xa1"

"""A hub, an MQTT broker and the bus gate before it; aiomqtt clients behind the gate."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiomqtt
import pytest
from mosquitto import is_here, start_mosquitto

from racelab.channel.hub import Hub
from racelab.evidence.events import Event
from racelab.evidence.recorder import Recorder
from racelab.gates import TOKEN_VARIABLE
from racelab.transport.messages import Message, encode

BOUND_S = 10.0
TOPIC = "racelab/t/prefill"


BROKERS = ("embedded", "mosquitto")


class Rig:
    """A hub, a broker, and the gate before it."""

    def __init__(self, broker: str = "embedded") -> None:
        self.hub = Hub(Recorder("conductor"))
        self.events: list[Event] = []
        self.hub.on_event = self.events.append
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.broker = start_mosquitto() if broker == "mosquitto" else None
        if self.broker is None:
            self.start("broker", "racelab.lab.broker")
        address = self.broker.address if self.broker else self.hub.peers["broker"].facts["mqtt"]
        self.start("bus", "injectors.bus", "--instance", "bus", "--broker", address)
        self.port = int(self.hub.peers["bus"].facts["mqtt"].rpartition(":")[2])

    def start(self, name: str, module: str, *arguments: str) -> None:
        self.children[name] = subprocess.Popen(
            [sys.executable, "-m", module, "--hub", self.hub.address, *arguments],
            env=os.environ | {TOKEN_VARIABLE: self.hub.token},
            stdin=subprocess.DEVNULL,
        )
        self.hub.wait_for(name, bound_s=20)

    @classmethod
    @contextmanager
    def of(cls, broker: str) -> Iterator[Rig]:
        """One with this broker, ended at the end of the block; skips where the broker is not installed."""
        if broker == "mosquitto" and not is_here():
            pytest.skip("mosquitto is not installed: on Debian and Ubuntu, `apt-get install mosquitto`")
        rig = cls(broker)
        try:
            yield rig
        finally:
            rig.close()

    def close(self) -> None:
        self.hub.part_with(*self.children)
        self.hub.close()
        for child in self.children.values():
            child.wait(BOUND_S)
        if self.broker is not None:
            self.broker.close()

    def do(self, command: str, **args: Any) -> Any:
        return self.hub.call("bus", command, **args)

    def await_events(self, kind: str, count: int) -> list[Event]:
        while len(found := [event for event in self.events if event.kind == kind]) < count:
            assert self.hub.pump(BOUND_S), f"waited {BOUND_S:.0f} s for {count} {kind!r}"
        return found

    def story(self, *kinds: str) -> list[tuple[str, str]]:
        return [(event.kind, event.data["what"]) for event in self.events if event.kind in kinds]


def fresh(shared: Rig) -> Rig:
    """The warm rig, with nothing held and no rules."""
    assert shared.do("reset", incarnation=1)["held"] == []
    shared.events.clear()
    return shared


@asynccontextmanager
async def client(port: int, name: str) -> AsyncIterator[aiomqtt.Client]:
    nodelay = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    async with aiomqtt.Client("127.0.0.1", port, identifier=name, timeout=BOUND_S, socket_options=[nodelay]) as one:
        yield one


async def next_payload(subscriber: aiomqtt.Client) -> bytes:
    message = await asyncio.wait_for(anext(aiter(subscriber.messages)), BOUND_S)
    assert isinstance(message.payload, bytes)
    return message.payload


def message(identity: str, kind: str = "abort", request: str = "r1", **more: Any) -> bytes:
    whole = {"sender": "decode", "to": "prefill", "attempt": 1, "seq": 41, "hlc": 7} | more
    return encode(Message(id=identity, type=kind, request=request, **whole))


def talk(rig: Rig, qos: int, script: Callable[[aiomqtt.Client, aiomqtt.Client], Coroutine[Any, Any, None]]) -> None:
    """Run `script(publisher, subscriber)` with both behind the gate."""

    async def run() -> None:
        async with client(rig.port, "decode") as publisher, client(rig.port, "prefill") as subscriber:
            await subscriber.subscribe(TOPIC, qos=qos)
            await script(publisher, subscriber)

    asyncio.run(run())

"""The engines' end of the control bus: MQTT through aiomqtt, QoS 0 unless asked for 1, Nagle's delay off.

(aiomqtt is asyncio-mqtt under its present name.) QoS 0 over TCP: a live connection loses nothing,
and a QoS 1 round trip costs another message each way. Each has a subscription of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from types import TracebackType

import aiomqtt

from racelab.errors import BusError
from racelab.transport.messages import Message, decode, encode, inbox, topic

CONNECT_TIMEOUT_S = 10.0
KEEPALIVE_S = 60
_NODELAY = (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Bus:
    """One subscription and one publisher; `send` never blocks, messages go out in order."""

    def __init__(self, address: str, lab: str, instance: str, handle: Callable[[Message], None]) -> None:
        self.address = address
        self._lab = lab
        self._instance = instance
        self._handle = handle
        self.qos = 0
        """at which messages are published from now on"""
        self._outgoing: asyncio.Queue[Message] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        host, _, port = address.rpartition(":")
        self._client = aiomqtt.Client(
            host,
            int(port),
            identifier=f"{lab}-{instance}",
            keepalive=KEEPALIVE_S,
            timeout=CONNECT_TIMEOUT_S,
            socket_options=[_NODELAY],
        )

    async def __aenter__(self) -> Bus:
        try:
            await self._client.__aenter__()
            for qos in (0, 1):
                await self._client.subscribe(inbox(self._lab, self._instance, qos), qos=qos)
        except aiomqtt.MqttError as error:
            raise BusError(
                f"no MQTT broker answers at {self.address}: {error}", next="start it, or leave out --broker"
            ) from None
        self._tasks = [asyncio.create_task(self._publish()), asyncio.create_task(self._receive())]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(aiomqtt.MqttError):
            await self._client.__aexit__(None, None, None)

    @property
    def failed(self) -> str | None:
        """Why the bus is gone, if it is."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                return f"lost the bus at {self.address}: {task.exception()}"
        return None

    def send(self, message: Message) -> None:
        """Queue a message for publication."""
        self._outgoing.put_nowait(message)

    @property
    def idle(self) -> bool:
        """Whether everything sent has been handed to the network."""
        return self._outgoing.empty()

    async def _publish(self) -> None:
        while True:
            message = await self._outgoing.get()
            await self._client.publish(topic(self._lab, message, self.qos), encode(message), qos=self.qos)

    async def _receive(self) -> None:
        async for message in self._client.messages:
            payload = message.payload
            if isinstance(payload, bytes | bytearray):
                self._handle(decode(bytes(payload)))

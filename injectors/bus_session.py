"""One client's connection through the bus gate: whole MQTT packets between a client and the broker."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import cast

from injectors import entry
from injectors.tally import NOTHING, RESET_ON_CLOSE, Counts, Tally, add
from racelab.transport.mqtt import Packets

WRITE_BUFFER_BYTES_MAX = 1 << 20


class Side(asyncio.Protocol):
    """One of the two sockets of a session; what it hears of goes to `made`, `take` and `lost`."""

    def __init__(
        self, made: Callable[[asyncio.Transport], None], take: Callable[[bytes], None], lost: Callable[[], None]
    ) -> None:
        self._made = made
        self._take = take
        self._lost = lost
        self._packets = Packets()
        self._tally: Tally | None = None
        self.transport: asyncio.Transport | None = None
        self.other: Side | None = None

    @property
    def alive(self) -> bool:
        """Whether what is written can still reach the far end."""
        return self.transport is not None and not self.transport.is_closing()

    def write(self, packet: bytes) -> None:
        """Send, in order, as soon as the socket takes it; nothing if the far end is gone."""
        if self.transport is not None and self._tally is not None and not self.transport.is_closing():
            self.transport.write(packet)
            self._tally.sent += len(packet)

    def close(self) -> None:
        """End it, after what was written."""
        if self.transport is not None:
            self.transport.close()

    def reset(self) -> None:
        """End it at once; the far end gets an RST."""
        if self.transport is not None and self._tally is not None:
            self._tally.finish()
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self.transport.abort()

    def zero(self) -> None:
        """Count from here."""
        if self._tally is not None:
            self._tally.zero()

    def counts(self) -> Counts:
        """Bytes of this socket; what waits in a buffer of ours has not gone out."""
        if self._tally is None:
            return NOTHING
        came, came_kernel, went, went_kernel = self._tally.counts()
        waiting = self.transport.get_write_buffer_size() if self.transport is not None and self.alive else 0
        return came, came_kernel, went - waiting, went_kernel

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(WRITE_BUFFER_BYTES_MAX)
        self._tally = Tally(transport.get_extra_info("socket"))
        self._made(self.transport)

    def data_received(self, data: bytes) -> None:
        assert self._tally is not None
        self._tally.received += len(data)
        for packet in self._packets.feed(data):
            self._take(packet)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        assert self._tally is not None
        self._tally.finish()
        self._lost()


class Session:
    """A client and its own connection to the broker. `stops` says of each packet to the client
    whether it is held, `keeps` of each packet from it; `ended` hears once that both sides are gone.

    Both directions pass packet by packet, so that an acknowledgement can be put in between.
    """

    def __init__(
        self,
        broker: tuple[str, int],
        stops: Callable[[Session, bytes], bool],
        keeps: Callable[[Session, bytes], bool],
        ended: Callable[[Session], None],
    ) -> None:
        self._address = broker
        self._stops = stops
        self._keeps = keeps
        self._ended = ended
        self._sides = 2
        self.client = Side(self._client_made, self._from_client, self._lost)
        self.broker = Side(self._broker_made, self._from_broker, self._lost)
        self.client.other, self.broker.other = self.broker, self.client
        self._opening: asyncio.Task[None] | None = None
        self._early: list[bytes] | None = []
        """what came before there was a broker to pass it to: a client says little before it is answered"""

    def _client_made(self, transport: asyncio.Transport) -> None:
        self._opening = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.broker, *self._address)
        except OSError as error:
            host, port = self._address
            print(f"bus gate: no broker at {host}:{port}: {entry.reason(error)}", file=sys.stderr, flush=True)
            self._lost()

    def _broker_made(self, transport: asyncio.Transport) -> None:
        if not self.client.alive:
            transport.close()
        early, self._early = self._early, None
        for packet in early or ():
            self._from_client(packet)

    def close(self) -> None:
        """End both sides."""
        self.client.close()
        self.broker.close()

    def reset(self) -> None:
        """End both sides by a reset, as when the connection's path is gone."""
        self.client.reset()
        self.broker.reset()

    def zero(self) -> None:
        """Count from here."""
        self.client.zero()
        self.broker.zero()

    def counts(self) -> Counts:
        """Both sockets' bytes together."""
        return add(self.client.counts(), self.broker.counts())

    def _from_client(self, packet: bytes) -> None:
        if self._early is not None:
            self._early.append(packet)
        elif not self._keeps(self, packet):
            self.broker.write(packet)

    def _from_broker(self, packet: bytes) -> None:
        if not self._stops(self, packet):
            self.client.write(packet)

    def _lost(self) -> None:
        self._sides -= 1
        self.close()
        if self._sides == 0:
            self._ended(self)

"""The process's end of the step channel, the same for instances, gates and the broker."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

from racelab.channel.frames import Command, Events, Hello, Reply, Splitter, encode
from racelab.evidence.events import Event
from racelab.evidence.recorder import Recorder

CONNECT_TIMEOUT_S = 10.0
_CHUNK_BYTES = 1 << 16

Handler = Callable[..., Any]


class Link:
    """One connection to the conductor at `address` ("host:port").

    Use `serve` in a process whose main thread has nothing else to do, or `fileno` and `ready`
    under an event loop. When the conductor goes away both end, and so should the process.
    """

    def __init__(self, address: str, token: str, recorder: Recorder, **facts: Any) -> None:
        host, _, port = address.rpartition(":")
        self.recorder = recorder
        self._socket = socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(None)
        self._splitter = Splitter()
        self._lock = threading.Lock()
        self._send(Hello(recorder.instance, os.getpid(), token, facts))

    def fileno(self) -> int:
        """For an event loop's reader."""
        return self._socket.fileno()

    def serve(self, handlers: dict[str, Handler]) -> None:
        """Answer commands, one at a time, until the conductor is gone."""
        while (commands := self.ready()) is not None:
            for command in commands:
                self.answer(command, handlers)

    def ready(self) -> list[Command] | None:
        """Read what is there (waits for something); None when the conductor is gone."""
        try:
            data = self._socket.recv(_CHUNK_BYTES)
        except OSError:
            return None
        if not data:
            return None
        return list(self._commands(data))

    def _commands(self, data: bytes) -> Iterator[Command]:
        for frame in self._splitter.feed(data):
            if isinstance(frame, Command):
                self.recorder.learned("conductor", frame.seq, frame.hlc)
                for instance, seq in frame.heard.items():
                    self.recorder.learned(instance, seq, frame.hlc)
                yield frame

    def answer(self, command: Command, handlers: dict[str, Handler]) -> None:
        """Run a command's handler and reply with its value, or with why it failed."""
        handler = handlers.get(command.name)
        if handler is None:
            self.reply(command, error=f"{self.recorder.instance} knows no command {command.name!r}")
            return
        try:
            value = handler(**command.args)
        except Exception as error:  # the conductor decides what a failed command means
            self.reply(command, error=f"{type(error).__name__}: {error}")
        else:
            self.reply(command, value)

    def reply(self, command: Command, value: Any = None, error: str | None = None) -> None:
        """Answer, after everything recorded so far and in the same breath."""
        events = self.recorder.drain()
        before = [Events(events)] if events else []
        self._send(*before, Reply(command.id, value, error))

    def flush(self) -> None:
        """Send the recorder's buffered events."""
        events = self.recorder.drain()
        if events:
            self._send(Events(events))

    def publish(self, *events: Event) -> None:
        """Send events at once: a recorder's sink for processes that act rarely."""
        self._send(Events(list(events)))

    def close(self) -> None:
        """Hang up; the conductor takes that for the end of the process."""
        self._socket.close()

    def _send(self, *frames: Hello | Reply | Events) -> None:
        with self._lock, contextlib.suppress(OSError):  # the conductor is gone: `ready` will say so
            self._socket.sendall(b"".join(map(encode, frames)))

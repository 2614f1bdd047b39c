"""The conductor's end of the step channel: every process of the lab on one selector, one thread.

Whoever waits for anything pumps all of it, so events are seen in the order in which they arrive
and the death of any process is noticed at once, whatever is being waited for.
"""

from __future__ import annotations

import secrets
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from racelab.channel.frames import Command, Events, Hello, Reply, Splitter, encode
from racelab.errors import BoundError, LabError, PeerDiedError
from racelab.evidence.events import Event
from racelab.evidence.recorder import Recorder

COMMAND_BOUND_S = 20.0


class Peer:
    """One connected process."""

    def __init__(self, connection: socket.socket, hello: Hello) -> None:
        self.name = hello.instance
        self.pid = hello.pid
        self.facts = hello.facts
        self.socket = connection
        self.splitter = Splitter()
        self._told: dict[str, int] = {}

    def news(self, heard: dict[str, int]) -> dict[str, int]:
        """What of `heard` this process has not been told yet."""
        news = {name: seq for name, seq in heard.items() if name != self.name and self._told.get(name) != seq}
        self._told.update(news)
        return news


class Hub:
    """Listens on a free port of `host`; processes find it by `address` and `token`."""

    def __init__(self, recorder: Recorder, host: str = "127.0.0.1") -> None:
        self.recorder = recorder
        self.token = secrets.token_hex(16)
        self.peers: dict[str, Peer] = {}
        self.heard: dict[str, int] = {}
        self.doing = "start-up"
        self.on_event: Callable[[Event], None] = lambda event: None
        self._replies: dict[int, Reply] = {}
        self._next_id = 0
        self._expected_to_go: set[str] = set()
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server((host, 0))
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self.address = f"{host}:{self._listener.getsockname()[1]}"

    # -- connecting

    def wait_for(self, *names: str, bound_s: float, alive: Callable[[], None] = lambda: None) -> None:
        """Pump until all of these have said hello; `alive` raises when one cannot come any more."""
        deadline = time.monotonic() + bound_s
        while missing := [name for name in names if name not in self.peers]:
            alive()
            if time.monotonic() > deadline:
                raise BoundError(
                    f"waited {bound_s:.0f} s for {', '.join(missing)} to start",
                    next="look at the logs in the run folder, then try `racelab doctor`",
                )
            self.pump(0.05)

    def part_with(self, *names: str) -> None:
        """From now on the end of these processes is wanted, not a failure."""
        self._expected_to_go.update(names)

    def forget(self, *names: str) -> None:
        """Drop connections of processes that have been ended, so that new ones can take their names."""
        for name in names:
            peer = self.peers.pop(name, None)
            if peer is not None:
                self._selector.unregister(peer.socket)
                peer.socket.close()
            self._expected_to_go.discard(name)
            self.heard.pop(name, None)
            self.recorder.forget(name)

    def close(self) -> None:
        """Hang up on everybody: processes of the lab end when their link does."""
        self.forget(*list(self.peers))
        self._selector.close()
        self._listener.close()

    # -- commands

    def call(self, name: str, command: str, /, bound_s: float = COMMAND_BOUND_S, **args: Any) -> Any:
        """Send a command and wait for its reply."""
        return self.collect(self.send(name, command, **args), name, command, bound_s)

    def call_all(
        self, names: list[str], command: str, /, bound_s: float = COMMAND_BOUND_S, **args: Any
    ) -> dict[str, Any]:
        """The same command to several processes at once; replies by name."""
        sent = [(name, self.send(name, command, **args)) for name in names]
        return {name: self.collect(identity, name, command, bound_s) for name, identity in sent}

    def send(self, name: str, command: str, /, **args: Any) -> int:
        """Send a command; `collect` the reply later."""
        peer = self.peers.get(name)
        if peer is None:
            raise PeerDiedError(name, self.doing)
        self._next_id += 1
        reading = self.recorder.clock.tick()
        frame = Command(self._next_id, command, args, self.recorder.seq, reading, peer.news(self.heard))
        try:
            peer.socket.sendall(encode(frame))
        except OSError:
            raise PeerDiedError(name, self.doing) from None
        return self._next_id

    def collect(self, identity: int, name: str, command: str, bound_s: float = COMMAND_BOUND_S) -> Any:
        """Wait for the reply to a command that was sent."""
        deadline = time.monotonic() + bound_s
        while identity not in self._replies:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise BoundError(f"{name} did not answer {command!r} in {bound_s:.0f} s, during {self.doing}")
            self.pump(remaining)
        reply = self._replies.pop(identity)
        if reply.error is not None:
            raise LabError(f"{name} failed at {command!r}: {reply.error}", next="see its log in the run folder")
        return reply.value

    # -- the pump

    def pump(self, timeout_s: float) -> bool:
        """Handle what has arrived, waiting up to `timeout_s` for something; False if nothing came."""
        ready = self._selector.select(timeout_s)
        for key, _ in ready:
            if key.data is None:
                self._accept()
            else:
                self._read(key.data)
        return bool(ready)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(5.0)
        splitter = Splitter()
        frames: list[Any] = []
        try:
            while not frames:
                data = connection.recv(4096)
                if not data:
                    break
                frames = list(splitter.feed(data))
        except (OSError, ValueError):
            frames = []
        if not frames or not isinstance(frames[0], Hello) or frames[0].token != self.token:
            connection.close()  # a stranger on the port
            return
        connection.settimeout(None)
        peer = Peer(connection, frames[0])
        peer.splitter = splitter
        self.peers[peer.name] = peer
        self._selector.register(connection, selectors.EVENT_READ, peer)
        for frame in frames[1:]:
            self._take(frame)

    def _read(self, peer: Peer) -> None:
        try:
            data = peer.socket.recv(1 << 18)
        except OSError:
            data = b""
        if not data:
            self._lose(peer)
            return
        for frame in peer.splitter.feed(data):
            self._take(frame)

    def _take(self, frame: Any) -> None:
        if isinstance(frame, Events):
            for event in frame.events:
                self.heard[event.instance] = event.seq
                self.recorder.learned(event.instance, event.seq, event.hlc)
                self.on_event(event)
        elif isinstance(frame, Reply):
            self._replies[frame.id] = frame

    def _lose(self, peer: Peer) -> None:
        self._selector.unregister(peer.socket)
        peer.socket.close()
        if self.peers.get(peer.name) is peer:
            del self.peers[peer.name]
        if peer.name not in self._expected_to_go:
            raise PeerDiedError(peer.name, self.doing)

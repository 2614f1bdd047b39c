"""The processes that the gate's library is preloaded into: one connection each, one reading thread each."""

from __future__ import annotations

import itertools
import os
import queue
import secrets
import socket
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from injectors.verbs.layout import BYTES, Kind, Message, unpack
from racelab.errors import BoundError, LabError

ANSWER_BOUND_S = 10.0
_CREDENTIALS = struct.Struct("3i")


class Process:
    """One preloaded process: commands to it are answered by its library, whatever the process itself does."""

    def __init__(self, connection: socket.socket, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid
        self._socket = connection
        self._lock = threading.Lock()
        self._tickets = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[Message | None]] = {}
        self._gone = False

    def command(
        self, kind: Kind, *, watch: int = 0, address: int = 0, size: int = 0, state: int = 0, number: int = 0
    ) -> Message:
        """Send a command and wait for its answer.

        Raises:
            LabError: the process has ended, or refuses.
            BoundError: its library does not answer.
        """
        answer: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        with self._lock:
            ticket = next(self._tickets)
            self._answers[ticket] = answer
            gone = self._gone
        if gone:
            raise LabError(f"{self.name} has ended")
        self.send(Message(kind, ticket=ticket, watch=watch, address=address, size=size, state=state, number=number))
        try:
            message = answer.get(timeout=ANSWER_BOUND_S)
        except queue.Empty:
            raise BoundError(f"the gate in {self.name} did not answer {kind.name} in {ANSWER_BOUND_S:.0f} s") from None
        if message is None:
            raise LabError(f"{self.name} has ended")
        if message.status:
            raise LabError(f"the gate in {self.name} refuses {kind.name}: {os.strerror(message.status)}")
        return message

    def send(self, message: Message) -> None:
        """Send without waiting."""
        with suppress(OSError):  # it has ended: its reader says so
            self._socket.sendall(message.pack())

    def answered(self, message: Message) -> None:
        """An answer has arrived."""
        with self._lock:
            waiting = self._answers.pop(message.ticket, None)
        if waiting is not None:
            waiting.put(message)

    def end(self) -> None:
        """The process has ended: whoever waits for it is told."""
        with self._lock:
            self._gone = True
            waiting, self._answers = list(self._answers.values()), {}
        for one in waiting:
            one.put(None)


class Processes:
    """Listens in the abstract namespace, which leaves no file; only processes of the same user are heard.

    `report` is called with each report, in its process's order; a report that its process waits for is
    acknowledged after that. `ended` is called once a process is gone.
    """

    def __init__(self, report: Callable[[Process, Message], None], ended: Callable[[Process], None]) -> None:
        self.address = f"@racelab-verbs-{os.getpid()}-{secrets.token_hex(8)}"
        self._report = report
        self._ended = ended
        self._lock = threading.Lock()
        self._live: dict[str, Process] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind("\0" + self.address[1:])
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def live(self) -> list[Process]:
        """Every process that is connected."""
        with self._lock:
            return list(self._live.values())

    def named(self, name: str) -> Process:
        """The process of an instance.

        Raises:
            LabError: it has opened no RDMA device, or has ended.
        """
        with self._lock:
            process = self._live.get(name)
        if process is None:
            raise LabError(
                f"no gate in {name}: it has opened no RDMA device, or has ended",
                next="look at its log; `racelab doctor` shows whether the library can be preloaded",
            )
        return process

    def adopt(self, connection: socket.socket) -> None:
        """Serve a process that is reached over a stream, on another machine."""
        connection.settimeout(None)
        threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Listen no more."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            _, user, _ = _CREDENTIALS.unpack(
                connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            )
            if user == os.getuid():
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            hello = _receive(connection)
            if hello is None or hello.kind != Kind.HELLO:
                return
            process = Process(connection, hello.text or str(hello.number), hello.number)
            with self._lock:
                self._live[process.name] = process
            try:
                while (message := _receive(connection)) is not None:
                    self._take(process, message)
            except Exception as error:  # one process's words must not end the gate; the lab sees it gone
                print(f"verbs gate: {process.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            with self._lock:
                if self._live.get(process.name) is process:
                    del self._live[process.name]
            process.end()
            self._ended(process)

    def _take(self, process: Process, message: Message) -> None:
        if message.kind == Kind.ANSWER:
            process.answered(message)
            return
        self._report(process, message)
        if message.ticket:
            process.send(Message(Kind.HEARD, ticket=message.ticket))


def _receive(connection: socket.socket) -> Message | None:
    """The next message; None when the process is gone."""
    try:
        data = connection.recv(BYTES, socket.MSG_WAITALL)
    except OSError:
        return None
    return unpack(data) if len(data) == BYTES else None

"""The keeper in the machine, as the packet gate reaches it: packets stay in the kernel's queue until it is told."""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import racelab.vm
from racelab.errors import BoundError, LabError
from racelab.vm.client import Supervisor, machine
from racelab.vm.machine import NAME

ANSWER_BOUND_S = 30.0
_CODE = Path(racelab.vm.__file__).with_name("guest") / "keeper.py"


class Keeper:
    """One process in the machine (guest/keeper.py). Thread-safe; `told` hears what it says by itself."""

    def __init__(self, told: Callable[[dict[str, Any]], None]) -> None:
        self._told = told
        self._lock = threading.Lock()
        self._answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
        supervisor = Supervisor(machine())
        self._socket = supervisor.socket
        self._socket.settimeout(None)
        supervisor.send("agent", argv=[sys.executable, "-I", "-u"], code=_CODE.read_text(), environment={}, kept="")
        threading.Thread(target=self._listen, daemon=True).start()
        self._wait("start")

    def watch(self, number: int, address: int, size: int, *, keeps: bool) -> None:
        """Stop what goes there: keep its packets, or else lose them each time they are sent."""
        self._ask(do="watch", watch=number, address=address, bytes=size, keeps=keeps)

    def release(self, number: int, *, late: bool = False) -> None:
        """Its packets go on. Of `late` ones, whose requester has given up, the responder's word is told."""
        self._ask(do="release", watch=number, late=late)

    def drop(self, number: int) -> None:
        """Its packets are lost, and so is what is sent again."""
        self._ask(do="drop", watch=number)

    def forget(self, number: int) -> None:
        """It is over."""
        self._ask(do="forget", watch=number)

    def _ask(self, **request: Any) -> None:
        with self._lock:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            self._wait(str(request["do"]))

    def _wait(self, do: str) -> None:
        try:
            there = self._answers.get(timeout=ANSWER_BOUND_S)
        except queue.Empty:
            raise BoundError(f"{NAME}'s keeper did not answer {do!r} in {ANSWER_BOUND_S:.0f} s") from None
        if not there:
            raise LabError(f"{NAME}'s keeper has ended", next="run again; its console says why")

    def _listen(self) -> None:
        buffered = b""
        while data := self._received():
            *lines, buffered = (buffered + data).split(b"\n")
            for line in lines:
                said = json.loads(line)
                if "ok" in said:
                    self._answers.put(True)
                else:
                    self._told(said)
        self._answers.put(False)

    def _received(self) -> bytes:
        try:
            return self._socket.recv(1 << 16)
        except OSError:
            return b""

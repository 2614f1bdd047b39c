"""What the packet gate holds: an access is held once it was handed to its device and its packets stopped on the wire.

What is kept is on its way whatever becomes of its requester: one that gives up is told so by its own device, and the
packets stay until they are let go.
"""

from __future__ import annotations

from injectors.verbs.holds import Holds, Watched
from injectors.verbs.layout import Message


class PacketHolds(Holds):
    """The moves come from the writer's library, the stops from the wire."""

    gate = "packets"

    def __init__(self, *given: object, **named: object) -> None:
        super().__init__(*given, **named)  # type: ignore[arg-type]
        self._given_up: dict[int, list[Message]] = {}

    @property
    def numbers(self) -> set[int]:
        """The watches that are not over."""
        with self._lock:
            return {number for number, write in self._watched.items() if not write.over}

    def given_up(self, write: Watched) -> list[Message]:
        """The requests of an access that its requester has given up while their packets were kept, or lost."""
        with self._lock:
            return list(self._given_up.get(write.watch, ()))

    def keeps(self, write: Watched) -> bool:
        """Whether the packets of an access are kept, and not lost."""
        with self._lock:
            return self._holds[write.hold].payload == "at-hold"

    def stopped(self, number: int, packets: int) -> Watched | None:
        """All packets of an access are kept, or its first one was lost; the access, if its delay begins now."""
        with self._lock:
            write = self._watched.get(number)
            if write is None or write.held or write.over or write.let_go:
                return None
            write.held = True
            hold = self._holds[write.hold]
            about: dict[str, object] = {"action": hold.action} if hold.action != "hold" else {}
            if hold.delays is not None:
                about["delay_ms"] = next(hold.delays)
            self._record("held", write, packets=packets, **about)
            if hold.delays is not None:
                self._later(about["delay_ms"], write)  # type: ignore[arg-type]
            return write

    def lost(self, write: Watched) -> None:
        """It is lost: its requester had given it up, and its packets are not let go."""
        with self._lock:
            if not write.over:
                self._end(write, "dropped")

    def unlanded(self, write: Watched, why: str) -> None:
        """It cannot land any more, or nobody says whether it has."""
        with self._lock:
            if not write.over:
                self._end(write, "unlanded", why=why)

    def process_ended(self, name: str) -> None:
        """Nothing is sent again, and the gate loses what it has kept."""
        with self._lock:
            for write in self._watched.values():
                if write.sender == name and write.stopped_bytes and not write.over:
                    self._end(write, "dropped", fenced=f"{name} has ended, and the gate has lost its packets")

    def _queued(self, write: Watched, message: Message) -> None:
        """It was posted, and goes on to its device at once."""
        write.stopped_bytes += message.size

    def _completed(self, write: Watched, message: Message) -> None:
        if message.status == 0:
            super()._completed(write, message)
        elif write.let_go == "drop":
            self._end(write, "dropped")
        elif write.let_go is None:
            self._given_up.setdefault(write.watch, []).append(message)
        else:
            super()._completed(write, message)

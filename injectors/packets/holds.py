"""What the packet gate holds: a write is held once it has been handed to its device and its first packet was lost."""

from __future__ import annotations

from collections.abc import Iterable

from injectors.verbs.holds import Holds, Watched
from injectors.verbs.layout import Message


class PacketHolds(Holds):
    """The moves come from the writer's library, the stops from the wire."""

    gate = "packets"

    @property
    def numbers(self) -> set[int]:
        """The watches that are not over."""
        with self._lock:
            return {number for number, write in self._watched.items() if not write.over}

    @property
    def expects(self) -> bool:
        """Whether something that is wanted has not stopped yet."""
        with self._lock:
            return any(not (write.held or write.over or write.let_go) for write in self._watched.values())

    def lost(self, watches: Iterable[int]) -> None:
        """The first packets of these writes were lost on the wire, once at least."""
        with self._lock:
            for number in watches:
                write = self._watched.get(number)
                if write is None or write.held or write.over or write.let_go:
                    continue
                write.held = True
                self._record("held", write)

    def _queued(self, write: Watched, message: Message) -> None:
        """It was posted, and goes on to its device at once."""
        write.stopped_bytes += message.size

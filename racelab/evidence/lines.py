"""The events of a history as they stand in its file: a line each, decoded some at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TypeVar

import msgspec

from racelab.errors import HistoryError
from racelab.evidence.events import KINDS, Event

BLOCK_BYTES = 64 * 1024
"""Few enough events to stay in the processor's cache until they have been looked at."""

_NEEDED = {name: frozenset(kind.data) for name, kind in KINDS.items()}

T = TypeVar("T")


class Lines:
    """The lines of a file behind its header. Each pass reads the file anew, and keeps nothing of it."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def decoded(self, decoder: msgspec.json.Decoder[T]) -> Iterator[list[T]]:
        """Block by block of whole lines.

        Raises:
            msgspec.DecodeError: a line is not what the decoder is for.
        """
        for block in self._blocks():
            yield decoder.decode_lines(block)

    def _blocks(self) -> Iterator[bytes]:
        try:
            with self._file.open("rb") as lines:
                lines.readline()
                while block := lines.read(BLOCK_BYTES) + lines.readline():
                    yield block
        except OSError as error:
            raise self._error(f"the history is gone: {error.strerror}", 1, "give a run folder") from None

    def events(self) -> Iterator[list[Event]]:
        """Block by block, each event of a known kind and with the data of its kind.

        Raises:
            HistoryError: a line is torn, or has an event of no known kind.
        """
        number = 2
        try:
            for events in self.decoded(msgspec.json.Decoder(Event)):
                for event in events:
                    needed = _NEEDED.get(event.kind)
                    if needed is None or not needed <= event.data.keys():
                        raise self._error(_fault(event), number + events.index(event))
                yield events
                number += len(events)
        except msgspec.DecodeError:
            self._explain(number)
            raise

    def _explain(self, number: int) -> None:
        decoder = msgspec.json.Decoder(Event)
        lines = chain.from_iterable(block.splitlines() for block in self._blocks())
        for at, line in enumerate(lines, 2):
            try:
                if at >= number:
                    decoder.decode(line)
            except msgspec.DecodeError as error:
                raise self._error(f"a torn or wrong event: {error}", at, next="take the run again") from None

    def _error(self, what: str, line: int, next: str = "docs/history.md lists every kind") -> HistoryError:
        return HistoryError(what, file=self._file, line=line, next=next)


def _fault(event: Event) -> str:
    kind = KINDS.get(event.kind)
    if kind is None:
        return f"no event has the kind {event.kind!r}"
    missing = [key for key in kind.data if key not in event.data]
    return f"an event {event.kind!r} without {', '.join(missing)}"

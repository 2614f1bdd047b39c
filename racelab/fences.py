"""The fence table: what keeps a late access from landing, on each rung of the transport ladder, by test.

`racelab/fences.yaml` has the answers and the test behind each. An engine's stop evidence rests on it: that
memory was deregistered or a queue pair reset ends a grant only where such a thing was seen to fence.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from racelab.evidence.history import Header

FILE = Path(__file__).with_name("fences.yaml")

BY_EVIDENCE = {"deregistered": "deregistration", "queue-pair-reset": "queue-pair reset"}
"""The values of `grant-closed`'s `evidence` that are only as good as a fence, and the event that each rests on."""


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """One row: whether `event` fences on `rung`; None if nobody has tried, or there is no such thing."""

    rung: str
    event: str
    fences: bool | None
    why: str
    test: str = ""

    @property
    def answer(self) -> str:
        """The answer in a word."""
        return "not known" if self.fences is None else "yes" if self.fences else "no"


class _Table(msgspec.Struct, frozen=True):
    versions: dict[str, str]
    rows: list[Fence]


@cache
def _read() -> _Table:
    return msgspec.convert(yaml.safe_load(FILE.read_text(encoding="utf-8")), _Table)


def table() -> list[Fence]:
    """Every row, in the order of the file."""
    return _read().rows


def versions() -> dict[str, str]:
    """What the answers were measured with."""
    return _read().versions


def rung_of(header: Header) -> str:
    """The rung of a run: what its transport was, and what stood in for its devices."""
    if header.simulated is not None:
        return "softhca"
    if header.machine is not None:
        return "softroce"
    return header.transport


def is_fenced(header: Header, event: str) -> bool:
    """Whether no late access lands after `event` in a run of this kind, as far as tests have shown."""
    rung = rung_of(header)
    return any(row.fences is True and (row.rung, row.event) == (rung, event) for row in table())


def rows() -> list[dict[str, Any]]:
    """For `racelab list fences`."""
    return [
        {"name": f"{row.rung}: {row.event}", "fences": row.answer, "about": row.why, "test": row.test}
        for row in table()
    ]

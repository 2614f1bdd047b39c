"""How much a diagram shows: everything for a report, the bare race for a picture in a page of prose."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Form:
    """Measures in pixels, the kinds of event that are left out or have no words, and where it ends: before a phase, and
    with the victim's answer."""

    schedule: bool
    client_x: float
    writer_gap: float
    arrow_gap: float
    label_gap: float
    skip: frozenset[str]
    silent: frozenset[str]
    until: str
    ends_with_victim: bool
    events_max: int

    @property
    def left(self) -> float:
        """Where the ground begins."""
        return STEP_X - 16 if self.schedule else 8.0


STEP_X = 62.0

FULL = Form(
    schedule=True,
    client_x=316.0,
    writer_gap=178.0,
    arrow_gap=150.0,
    label_gap=196.0,
    skip=frozenset(),
    silent=frozenset(),
    until="probe",
    ends_with_victim=False,
    events_max=400,
)

COMPACT = Form(
    schedule=False,
    client_x=50.0,
    writer_gap=142.0,
    arrow_gap=108.0,
    label_gap=158.0,
    skip=frozenset({"blocked", "accepted", "committed", "attempt-ended", "grant-closed"}),
    silent=frozenset({"completed"}),
    until="probe",
    ends_with_victim=True,
    events_max=160,
)

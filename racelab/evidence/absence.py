"""What a schedule did to a process explains of a hold: things lost with it, and landings that had to wait for it."""

from __future__ import annotations

from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.schedule import Schedule
from racelab.evidence.writes import Write
from racelab.scenario.steps import Continue, Kill, Unmap, Unregister


def lost_with_its_process(history: History, end: Event, write: Write | None) -> bool:
    """Whether a thing was lost because the schedule had killed whom it was for, or whose it was, or had taken
    away the registration of where it was to go. The bytes of a read go no further than its dead reader's socket."""
    if write is not None and write.is_read and _reader_died(history, write, end):
        return True
    if end.kind not in ("unlanded", "dropped"):
        return False
    if write is None:
        sent = (event for event in history.by_kind["sent"] if event.data["id"] == end.data["what"])
        concerned = {event.data["to"] for event in sent}
    else:
        to = write.posted.data.get("to")
        receivers = {to} if to is not None else _receivers(history)
        concerned = {write.posted.instance} if "fenced" in end.data else receivers
    return any(
        isinstance(issued.step, Kill | Unregister | Unmap)
        and issued.step.instance in concerned
        and issued.issued.hlc < end.hlc
        for issued in history.derived(Schedule).steps
    )


def _reader_died(history: History, read: Write, end: Event) -> bool:
    killed = (event for event in history.by_kind["killed"] if event.data["peer"] == read.posted.instance)
    return any(read.posted.hlc < death.hlc < end.hlc for death in killed)


def arrival_due(history: History, let_go: Event, done: Event | None) -> Event | None:
    """By when what a step lets go has to have arrived: the step's end, or, into a stopped process, that of the
    step or phase in which it goes on."""
    moves = [event for event in history.of("stopped", "continued") if event.hlc < let_go.hlc]
    last = {event.data["peer"]: event.kind for event in moves}
    if done is None or not any(last.get(receiver) == "stopped" for receiver in _receivers(history)):
        return done
    schedule = history.derived(Schedule)
    for issued in schedule.steps:
        if isinstance(issued.step, Continue) and issued.issued.hlc > done.hlc:
            return issued.done
    phases = [phase for phase in schedule.phases if phase.hlc > done.hlc]
    return phases[1] if len(phases) > 1 else None  # it went on in the release phase


def uncounted(history: History) -> bool:
    """Whether a connection ended by a reset, and the kernel's counts with it: with a killed process, or in the middle
    of a write that its target could not put anywhere."""
    return bool(history.by_kind["killed"] or history.by_kind["unmapped"])


def _receivers(history: History) -> set[str]:
    """The instances whose memory writes go to."""
    looking = {event.instance for event in history.by_kind["look"]}
    return looking or {event.instance for event in history.by_kind["admitted"]}

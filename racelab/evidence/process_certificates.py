"""Certificates of what a schedule does to processes: stop, continue, kill, restart, and to their memory.

Such a fault is `confirmed` if the injector's own event says that it took effect (every thread in state T, the
process gone, a new one at the same address), that event lies between the step and its end, and nothing of
the process itself lies where it could not act: a stopped one reports nothing before it goes on, a dead one
nothing at all. What contradicts that is a `mismatch`.
"""

from __future__ import annotations

from typing import Any

from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.injection import Certificate, State
from racelab.evidence.labels import process_label
from racelab.evidence.naming import number, when_ms
from racelab.evidence.schedule import Issued, Schedule
from racelab.scenario.steps import Continue, Kill, ProcessStep, Restart, Stop, Unmap, Unregister, verb

_EVENTS = {
    "stop": "stopped",
    "continue": "continued",
    "kill": "killed",
    "restart": "restarted",
    "unregister": "unregistered",
    "unmap": "unmapped",
}
_SIGNALS = {"stop": "SIGSTOP", "continue": "SIGCONT", "kill": "SIGKILL"}
SIGKILL = 9


def certify_processes(history: History) -> list[Certificate]:
    """One certificate a step that acts on a process, in the order of the scenario."""
    return [_certificate(history, fault, step) for fault, step in history.header.scenario.process_faults().items()]


def _certificate(history: History, fault: str, step: ProcessStep) -> Certificate:
    schedule = history.derived(Schedule)
    issued = next((one for one in schedule.steps if one.step is step), None)
    found = [event for event in history.by_kind[_EVENTS[verb(step)]] if event.data.get("fault") == fault]
    wrong: list[str] = []
    missing: list[str] = []
    state: State = "not-reached"
    if issued is not None or schedule.stopped is None:
        for event in found:
            wrong += _contradictions(history, step, event)
            missing += _unordered(history, issued, event)
        if isinstance(step, Unregister | Unmap):
            wrong += _regions_left(history, step, found)
        if not found:
            missing.append(f"nothing says that {step.instance} was {_EVENTS[verb(step)]}")
        state = "mismatch" if wrong else "inconclusive" if missing else "confirmed"
    mechanism = history.header.mechanisms.get(fault, {})
    return Certificate(
        id=fault,
        gate=str(mechanism.get("gate", "process")),
        stage=str(mechanism.get("stage", "")),
        action=verb(step),  # type: ignore[arg-type]  # these verbs are actions
        payload="",
        state=state,
        requested=_requested(step, mechanism),
        achieved=_achieved(history, found),
        label=process_label(history, fault),
        why=wrong + missing,
    )


def _requested(step: ProcessStep, mechanism: dict[str, Any]) -> dict[str, Any]:
    requested: dict[str, Any] = {"instance": step.instance}
    if verb(step) in _SIGNALS:
        requested["signal"] = _SIGNALS[verb(step)]
    if isinstance(step, Stop | Kill):
        requested |= {"mechanism": step.mechanism, "bound_ms": mechanism.get("bound_ms")}
    return requested


def _achieved(history: History, found: list[Event]) -> dict[str, Any]:
    achieved: dict[str, Any] = {}
    for event in found:
        achieved |= {name: value for name, value in event.data.items() if name not in ("fault", "peer")}
        achieved["when_ms"] = when_ms(history, event)
    return achieved


def _contradictions(history: History, step: ProcessStep, event: Event) -> list[str]:
    """What in the history cannot be if the fault took effect."""
    name = step.instance
    own = [one for one in history.events if one.instance == name]
    if event.data["peer"] != name:
        return [f"{number(event)} is of {event.data['peer']}, and not of {name}"]
    match step:
        case Stop():
            on = next((one for one in history.of("continued", "killed") if _ends(one, event)), None)
            until = on.hlc if on is not None else 1 << 64
            acted = next((one for one in own if _after(history, event, one) and one.hlc < until), None)
            wrong = [f"{name} reports {number(acted)} while it is stopped"] if acted is not None else []
            states = [event.data["state"], event.data.get("agent_state", "T")]
            return wrong + [f"{name} is in state {state}" for state in states if state not in ("T", "t")]
        case Kill():
            again = next((one for one in history.by_kind["restarted"] if _ends(one, event)), None)
            until = again.hlc if again is not None else 1 << 64
            acted = next((one for one in own if _after(history, event, one) and one.hlc < until), None)
            wrong = [f"{name} reports {number(acted)} after it was killed"] if acted is not None else []
            ends = [event.data["status"], event.data.get("agent_status")]
            return wrong + [f"{name} ended with status {status}" for status in ends if status not in (None, SIGKILL)]
        case Restart():
            data = event.data
            wrong = [] if data["segment"] == data["was_segment"] else [f"{name} is at {data['segment']} now"]
            same = data["pid"] == data["was_pid"] or ("agent" in data and data["agent"] == data["was_agent"])
            return wrong + ([f"{name} is the same process as before"] if same else [])
        case Continue() | Unregister() | Unmap():
            return []


def _regions_left(history: History, step: Unregister | Unmap, found: list[Event]) -> list[str]:
    taken = {event.data["address"] for event in found}
    incarnation = max((event.incarnation for event in found), default=0)
    regions = (event for event in history.by_kind["region"] if event.instance == step.instance)
    left = {event.data["address"] for event in regions if event.incarnation == incarnation} - taken
    return [f"{len(left)} region(s) stay {_EVENTS[verb(step)].removeprefix('un')}"] if left else []


def _ends(later: Event, event: Event) -> bool:
    return bool(later.data["peer"] == event.data["peer"] and later.hlc > event.hlc)


def _after(history: History, event: Event, own: Event) -> bool:
    """Whether a process did something once it was stopped or dead: only what is known to follow counts."""
    return history.causality.before(event, own)


def _unordered(history: History, issued: Issued | None, event: Event) -> list[str]:
    """The event of a fault lies between its step and the end of that."""
    if issued is None:
        return [f"no step stands before {number(event)}"]
    before = history.causality.before
    if not before(issued.issued, event) or issued.done is None or not before(event, issued.done):
        return [f"nothing orders {number(event)} between its step and the step's end"]
    return []

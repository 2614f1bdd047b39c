"""Whether the installed gates can do what a scenario asks for, and by which real mechanism.

What no gate of the transport can do is refused before anything starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from racelab import registry
from racelab.errors import UsageError
from racelab.gates import Injector
from racelab.instances import role_of
from racelab.lab.cluster import Cluster
from racelab.scenario import Scenario
from racelab.scenario.steps import Armed, Drop, Kill, ProcessStep, Release, Reset, Stop, Unmap, Unregister, verb
from racelab.targets.target import Target

CONTROL = {"mechanism": "none", "means": "a control: nothing is done to it", "bound_ms": 0, "source": ""}


def gates_of(target: Target, cluster: Cluster) -> list[Injector]:
    """Everything that can hold something of this target on this cluster."""
    inside = [target.stream] if target.stream is not None else []
    return cluster.gates(registry.injectors()) + inside


def check_mechanisms(wanted: Scenario, injectors: list[Injector]) -> dict[str, dict[str, Any]]:
    """For each hold, which gate holds it, at which stage, by which real mechanism and for how long.

    Raises:
        UsageError: no installed injector can do what a hold asks for.
    """
    if wanted.lab.news == "notify" and not any(gate.notifies for gate in injectors):
        raise UsageError(
            "lab: news: notify: over this transport no gate stands in the way of a notification",
            next="use a cluster whose transport is tcp, such as --cluster local",
        )
    holds = {hold.id: _mechanism(wanted, hold, injectors) for hold in wanted.holds().values()}
    return holds | {
        fault: _of_process(wanted, fault, step, injectors) for fault, step in wanted.process_faults().items()
    }


def impossible(wanted: Scenario, injectors: list[Injector]) -> Iterator[tuple[str, UsageError]]:
    """Everything that no installed injector can do, each by the hold or the fault that asks for it."""
    asked: dict[str, Callable[[], object]] = {
        hold.id: partial(_mechanism, wanted, hold, injectors) for hold in wanted.holds().values()
    }
    faults = wanted.process_faults().items()
    asked |= {fault: partial(_of_process, wanted, fault, step, injectors) for fault, step in faults}
    for name, look in asked.items():
        try:
            look()
        except UsageError as error:
            yield name, error


def _mechanism(wanted: Scenario, hold: Armed, injectors: list[Injector]) -> dict[str, Any]:
    gate = gate_for(hold, injectors, notifies=wanted.notifies(hold))
    asked = _impossible(wanted, hold, gate)
    if asked is not None:
        next = _READS if hold.reads and gate.reads else _where(gate)
        raise UsageError(f"hold {hold.id}: gate {gate.name} cannot {asked}", next=next)
    sent = "at-hold" if hold.action == "ghost" else gate.payload  # a ghost's bytes are in the network
    payload = hold.payload or (gate.reads[0] if hold.reads else sent)
    about = {"gate": gate.name, "stage": gate.stage, "payload": payload}
    if hold.action == "pass":
        return about | CONTROL
    return about | _known(gate, _named(hold, gate), f"hold {hold.id}: gate {gate.name}")


def _known(gate: Injector, name: str, who: str) -> dict[str, Any]:
    """What a gate says of one of its mechanisms; `who` is told if it has none of that name."""
    mechanism = gate.mechanisms.get(name)
    if mechanism is None:
        raise UsageError(f"{who} knows no mechanism {name!r}", next=f"one of: {', '.join(gate.mechanisms)}")
    return {"mechanism": name, **msgspec.to_builtins(mechanism)}


def _named(hold: Armed, gate: Injector) -> str:
    """What the hold names; one of local work that names nothing has the first that its stream knows, and a
    half-open connection the only one that leaves one."""
    if hold.mechanism != Armed(id=hold.id).mechanism:
        return hold.mechanism
    if hold.action == "half-open":
        return "lost-end"
    return next(iter(gate.mechanisms)) if hold.work is not None else hold.mechanism


def _of_process(wanted: Scenario, fault: str, step: ProcessStep, injectors: list[Injector]) -> dict[str, Any]:
    if isinstance(step, Unmap) and not any("tcp" in injector.transports for injector in injectors):
        raise UsageError(
            f"{fault}: over RDMA a registration keeps its pages, whatever is unmapped; no device here does that",
            next="use a cluster whose transport is tcp, such as --cluster local",
        )
    if isinstance(step, Unregister | Unmap):  # the instance does it itself
        stage = "registration" if isinstance(step, Unregister) else "memory"
        return {"gate": step.instance, "stage": stage, "payload": ""}
    acting = next((injector for injector in injectors if injector.subject == "process"), None)
    if acting is None:
        raise UsageError("no installed injector acts on processes", next="racelab list injectors")
    about = {"gate": acting.name, "stage": acting.stage, "payload": ""}
    requester, responder = ("decode", "prefill") if wanted.lab.transfer == "pull" else ("prefill", "decode")
    if isinstance(step, Kill) and role_of(step.instance) == responder and acting.endless:
        raise UsageError(
            f"{fault}: {acting.endless}, so that {requester} would never hear of the death of {responder}",
            next="use another rung, or one whose queue pairs give up: softroce-retry-3, softroce-packets-retry-3",
        )
    if not isinstance(step, Stop | Kill):
        return about
    return about | _known(acting, step.mechanism, f"{fault}: {acting.name}")


def _impossible(wanted: Scenario, hold: Armed, gate: Injector) -> str | None:
    """The first thing asked of a hold that its gate does not do."""
    if wanted.notifies(hold):
        asked = (hold.action, *_ends(wanted, hold))
        unknown = next((each for each in asked if each not in gate.notifies + gate.ends_of_notifies), None)
        return f"do that to a notification: {_DEEDS.get(unknown, unknown)}" if unknown is not None else None
    if hold.action not in gate.actions:
        return _DEEDS.get(hold.action, hold.action)
    if hold.reads:
        return _impossible_of_reads(wanted, hold, gate)
    if hold.payload not in (None, gate.payload, *gate.payloads):
        return f"let a {hold.subject} leave with payload {hold.payload}"
    ends = (end for end in _ends(wanted, hold) if end not in gate.ends)
    return next((_DEEDS.get(end, end) for end in ends), None)


def _impossible_of_reads(wanted: Scenario, hold: Armed, gate: Injector) -> str | None:
    """A read's bytes and its completion come as one, so nothing can be told of it before they are there."""
    if not gate.reads:
        return "hold reads"
    if hold.payload not in (None, *gate.reads):
        return f"let a read end with payload {hold.payload}"
    told = hold.action if hold.action in ("ghost", "lose-completion", "early-success", "half-open") else None
    asked = told or next((end for end in _ends(wanted, hold) if end not in gate.ends), None)
    return f"do that to a read: {_DEEDS.get(asked, asked)}" if asked is not None else None


def _ends(wanted: Scenario, hold: Armed) -> Iterator[str]:
    for step in wanted.steps:
        match step:
            case Release() if step.hold == hold.id:
                yield from (name for name in ("corrupt", "tear", "order") if getattr(step, name) is not None)
            case Drop() | Reset() if step.hold == hold.id:
                yield verb(step)


_DEEDS = {
    "hold": "hold anything",
    "early-success": "tell a writer that a write has landed before it has (early-success)",
    "ghost": "tell a writer that a write failed that is still on its way (ghost)",
    "half-open": "leave a connection half-open (half-open)",
    "fail": "fail a write at once (fail)",
    "lose-completion": "keep a completion back (lose-completion)",
    "pass": "let pass and count (pass)",
    "delay": "delay by a distribution (delay)",
    "duplicate": "send a copy (duplicate)",
    "drop": "lose what it holds (drop)",
    "reset": "reset a connection (reset)",
    "corrupt": "change a byte (corrupt)",
    "tear": "tear anything (tear)",
    "order": "release in another order (order)",
}


_READS = "a read's bytes and its completion come as one: it can be held, torn, dropped, delayed and passed"


def _where(gate: Injector) -> str:
    if gate.subject == "message":
        return "racelab list injectors shows what it does"
    other = "rdma, such as --cluster softhca" if "tcp" in gate.transports else "tcp, such as --cluster local"
    return (
        f"use a cluster whose transport is {other}, or another step; racelab list injectors shows what each gate does"
    )


def gate_for(hold: Armed, injectors: list[Injector], *, notifies: bool = False) -> Injector:
    """The gate that stands where a hold's things pass; `notifies` if those are notifications of the transport.

    Raises:
        UsageError: there is none.
    """
    for injector in injectors:
        if injector.notifies if notifies else injector.subject == hold.subject:
            return injector
    raise UsageError(f"hold {hold.id}: nothing here holds a {hold.subject}", next="racelab list injectors")

"""What cannot be asked of a step, in words: sizes that cannot be, keys that do not go together."""

from __future__ import annotations

from collections.abc import Iterator

from racelab import delays
from racelab.documents import nearest
from racelab.evidence.events import KINDS
from racelab.instances import Role, role_of
from racelab.scenario.process_steps import Condition
from racelab.scenario.steps import (
    REST,
    Abort,
    Advance,
    Armed,
    Await,
    Delay,
    Drop,
    Duplicate,
    Expect,
    Hold,
    MessageMatch,
    ProcessStep,
    Release,
    Reset,
    Retract,
    Retry,
    Step,
    Submit,
    WorkMatch,
    WriteMatch,
    verb,
)
from racelab.transport.messages import TYPES

_OF_SINGLE_WRITES = ("op", "layer", "page", "slot", "bytes")


def problems(step: Step, hold: Armed | None) -> Iterator[str]:
    """Every problem of one step; `hold` is the step that armed what this one names, if it names one."""
    match step:
        case Armed():
            yield from _arming(step)
        case Release():
            yield from _releasing(step, hold)
        case Drop() if hold is not None and hold.work is not None:
            yield "local work can be late and is never lost: release it"
        case Drop() if hold is not None and hold.goes_by_itself:
            yield f"nothing is kept under {hold.id} that could be lost: what it stops goes on by itself"
        case Reset() if hold is not None and (hold.write is None or hold.goes_by_itself):
            yield "only the connections of held writes can be reset: a control connection that ends, ends its engine"
        case Advance() if step.ms < 1:
            yield "ms must be at least 1"
        case Await():
            yield from _awaiting(step, hold)
        case Expect() if step.claim.startswith("reuses") != (step.of is not None):
            yield "'of' goes with the claims 'reuses' and 'reuses-source', and only with them"


def of_processes(step: Step, condition: Condition) -> Iterator[str]:
    """What cannot be asked of a process in the condition in which the steps before have left it."""
    if isinstance(step, ProcessStep):
        yield from condition.after(verb(step), step.instance)
    elif isinstance(step, Submit):
        yield from condition.asked(step.decode)
    elif isinstance(step, Abort):
        asked = "decode" if step.at in ("prefill", "both") else step.at
        if asked != "decode" or "decode-2" not in condition.instances:  # else it depends on where the request is
            yield from condition.asked(asked)
    elif isinstance(step, Retract) and "decode-2" not in condition.instances:
        yield from condition.asked("decode")
    elif isinstance(step, Armed) and step.write is not None:
        for poster in posters(step, condition.instances):
            yield from condition.asked(poster, stopped="it must be armed before that")


def of_instances(step: Step, instances: list[str]) -> Iterator[str]:
    """Names of instances that the lab does not have, or that do not do what is asked of them."""
    for name, role in _instances_named(step):
        if name not in instances or (role is not None and role_of(name) != role):
            wanted = [each for each in instances if role in (None, role_of(each))]
            yield f"no {role or 'instance'} {name!r} in this lab{nearest(name, wanted)}"


def _instances_named(step: Step) -> Iterator[tuple[str, Role | None]]:
    match step:
        case Submit():
            yield step.prefill, "prefill"
            yield step.decode, "decode"
        case Abort() if step.at != "both":
            yield step.at, None
        case Retry():
            yield step.prefill, "prefill"
        case Await(instance=str() as instance):
            yield instance, None
        case Armed(work=WorkMatch(on=on)):
            yield on, None
        case Armed(write=WriteMatch(writer=str() as writer)):
            yield writer, "decode" if step.reads else "prefill"
        case Armed(message=MessageMatch() as message):
            yield from ((name, None) for name in (message.sender, message.to) if name is not None)


def posters(step: Armed, instances: list[str]) -> list[str]:
    """Who posts what is held: whoever could, if the step does not say."""
    role: Role = "decode" if step.reads else "prefill"
    named = step.write.writer if step.write is not None else None
    return [named] if named is not None else [each for each in instances if role_of(each) == role]


def _arming(step: Armed) -> Iterator[str]:
    if sum(match is not None for match in (step.write, step.message, step.work)) != 1:
        yield f"a {verb(step)} takes one of 'write', 'batch', 'read', 'message', 'notify' and 'work'"
    if step.work is not None and (not isinstance(step, Hold) or step.action != "hold" or step.payload is not None):
        yield "local work can be held, and nothing else"
    every = step.goes_by_itself or (isinstance(step, Hold) and step.action == "hold" and step.work is None)
    if step.count < (0 if every else 1):
        yield "count must be at least 1"
    if isinstance(step, Hold) and step.action != "hold" and step.message is not None:
        yield f"only a write can be a {step.action}; a message can be held, dropped, delayed and duplicated"
    if isinstance(step, Hold) and step.payload is not None and step.message is not None:
        yield "only a write has a payload that can change: a message leaves as it was sent"
    if step.message is not None and step.message.type not in TYPES:
        near = nearest(step.message.type, list(TYPES))
        yield f"no engine sends a message of type {step.message.type!r}{near}"
    if step.action == "ghost" and step.payload not in (None, "at-hold"):
        yield "a ghost's bytes are in the network: its payload is that of the hold"
    if step.payload == "reread" and step.mechanism != "retransmission":
        yield "bytes are read again by a retransmission, and by nothing else: give it 'mechanism: retransmission'"
    if isinstance(step, Duplicate) and step.write is not None:
        yield "only a message can be duplicated: a transport numbers its bytes, and takes none of them twice"
    if isinstance(step, Delay) and (wrong := delays.problem(step.ms)) is not None:
        yield f"ms: {wrong}"
    if step.batches and step.write is not None:
        single = [key for key in _OF_SINGLE_WRITES if getattr(step.write, key) is not None]
        if single:
            yield f"a batch is of several pages and layers: it has no {' and no '.join(single)} of its own"
    if step.write is not None and step.write.bytes is not None:
        start, end = step.write.bytes
        if not 0 <= start < end:
            yield "bytes is a range [start, end) within a page's layer, such as [0, 4096]"


def _awaiting(step: Await, hold: Armed | None) -> Iterator[str]:
    """What cannot be waited for."""
    if step.event == REST:
        beside = [key for key in ("request", "attempt", "hold", "count", "new") if getattr(step, key) != _AWAIT[key]]
        if beside:
            yield f"await rest waits for all that is on its way: leave {' and '.join(beside)} out"
        return
    kind = KINDS.get(step.event)
    if kind is None:
        near = nearest(step.event, list(KINDS))
        yield f"no event has the kind {step.event!r}{near if 'mean' in near else '; docs/history.md lists them'}"
    if step.event == "held":
        if step.hold is None:
            yield "await held names its hold, such as '{event: held, hold: w1}', and waits for all that it asks for"
        elif hold is not None and not hold.count:
            yield f"{hold.id} stops whatever comes: there is no number of things to wait for"
        beside = [key for key in ("request", "attempt", "count", "new") if getattr(step, key) != _AWAIT[key]]
        if beside:
            yield f"await held waits for all that its hold asks for: leave {' and '.join(beside)} out"
    elif step.hold is not None and kind is not None and "hold" not in kind.data:
        yield f"an event {step.event!r} is of no hold: leave 'hold' out"
    elif step.count < 1:
        yield "count must be at least 1"


_AWAIT = {"request": None, "attempt": None, "hold": None, "count": 1, "new": False}


def _releasing(step: Release, hold: Armed | None) -> Iterator[str]:
    """What cannot be done to what is held when it goes on."""
    if hold is not None and hold.action == "half-open":
        yield f"of {hold.id} nothing can go on: its target's end is gone; drop it, and its writer hears of that"
        return
    changes = [name for name in ("corrupt", "tear", "order") if getattr(step, name) is not None]
    if len(changes) > 1:
        yield f"a release takes one of 'corrupt', 'tear' and 'order', and not {' and '.join(changes)}"
    if changes and hold is not None and hold.action not in ("hold", "ghost"):
        yield f"what {hold.id} stops can go on, and not with {changes[0]!r}"
    if step.corrupt is not None and step.corrupt < 0:
        yield "corrupt is an offset from the first byte: 0 at least"
    if step.tear is not None and step.tear < 1:
        yield "tear is how many bytes arrive before the rest is lost: 1 at least"
    if step.order is not None and hold is not None and hold.count < 2 and not hold.batches:
        yield "an order needs two held things at least"

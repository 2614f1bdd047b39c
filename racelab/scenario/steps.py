"""The steps of a schedule: one struct a verb, and how each reads aloud.

    submit / abort / retry / advance   act on the system as a client, a router or an operator would
    retract                    decode's scheduler takes pages back
    hold                       arm a gate: what matches stops in the network until it is let go
    pass / delay / duplicate   arm a gate: what matches passes and is counted, comes later, comes once more
    release / drop / reset     let a held thing go, lose it as its transport would, or end its connection
    await                      wait until the system itself reports an event
    expect                     a claim about the state at this point
    stop / continue            a process of the lab stalls, and goes on
    kill / restart             it dies, and another takes its place at the same address
    unregister                 its memory is not registered with the transport any more
    unmap                      its memory is registered, and nothing is mapped there any more

racelab/scenario.py reads them from YAML and checks them; docs/scenarios.md lists them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import msgspec

from racelab import delays
from racelab.instances import ROLES
from racelab.scenario.process_steps import CRASH, FREEZE


class WriteMatch(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Which one-sided writes: those whose published identity agrees in every field given. With `op` read, which
    reads (`read:` in YAML); their `page` is the reader's own.

    `bytes` is a range [start, end) within the page's layer: writes that touch it.
    """

    op: Literal["write", "read"] | None = None

    request: str | None = None
    attempt: int | None = None
    chunk: int | None = None
    layer: int | None = None
    rank: int | None = None
    stream: str | None = None
    page: int | None = None
    slot: int | None = None
    bytes: tuple[int, int] | None = None
    batch: Literal[True] | None = None
    """whole batches (`batch:` in YAML): everything that was submitted together, and the count is of those"""
    writer: str | None = None
    """who posts it, where a lab has several instances that could"""


class MessageMatch(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Which control messages, by type and request; `chunk`, `layer`, `rank` and `stream` for those that carry one;
    `sender` and `to` are instances."""

    type: str
    request: str | None = None
    attempt: int | None = None
    chunk: int | None = None
    layer: int | None = None
    rank: int | None = None
    stream: str | None = None
    sender: str | None = None
    to: str | None = None


class WorkMatch(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Which local work of an instance, by what it is (racelab.engine.local_work) and whose."""

    on: str
    op: Literal["forward", "zero-fill", "register"]
    request: str | None = None
    attempt: int | None = None
    chunk: int | None = None
    layer: int | None = None


class _Step(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", tag_field="verb"):
    """What every step is: a struct tagged with its verb."""


class Submit(_Step, frozen=True, kw_only=True, rename="kebab", tag="submit"):
    """The client sends a request; submitting an ended one again is its next attempt.

    Where transfers are pulled it goes to prefill first, and to decode with the reference that comes back. With
    `reference_of` it goes to decode at once, with the reference that was made for that request. `transfer_id` is an
    id that the client, or its router, gives the transfer. `prefill` and `decode` are the instances that serve it.
    """

    request: str
    reference_of: str | None = None
    transfer_id: str | int | None = None
    prefill: str = "prefill"
    decode: str = "decode"


class Abort(_Step, frozen=True, kw_only=True, rename="kebab", tag="abort"):
    """The client gives up on a request, and says so to the decode that has it; or a router, `at` the prefill that
    has it, at `both`, or at an instance by name."""

    request: str
    at: str = "decode"


class Retry(_Step, frozen=True, kw_only=True, rename="kebab", tag="retry"):
    """A router gives up on the prefill that has a request, and has another one serve it. The client knows nothing of
    it, and decode keeps the request."""

    request: str
    prefill: str


class Retract(_Step, frozen=True, kw_only=True, rename="kebab", tag="retract"):
    """Decode's scheduler takes a request's pages back for others, and the request waits for pages again."""

    request: str


class Advance(_Step, frozen=True, kw_only=True, rename="kebab", tag="advance"):
    """Virtual time passes on every instance; timers that fall due fire in order."""

    ms: int


class Armed(_Step, frozen=True, kw_only=True, rename="kebab"):
    """A gate is armed: what becomes of the next `count` things that match is the verb's own to say.

    `mechanism` is what in a real network could do it (`racelab list injectors`). `action` and `payload`
    are what the gate is asked for; a gate need not know them all.
    """

    id: str
    write: WriteMatch | None = None
    message: MessageMatch | None = None
    work: WorkMatch | None = None
    count: int = 1
    mechanism: str = "congestion"
    action: str = "hold"
    payload: str | None = None

    @property
    def match(self) -> WriteMatch | MessageMatch | WorkMatch | None:
        """What it matches, of whichever kind."""
        return self.write or self.message or self.work

    @property
    def subject(self) -> Literal["write", "message", "work"]:
        """What the gate has to be one for."""
        if self.write is not None:
            return "write"
        return "message" if self.message is not None else "work"

    @property
    def batches(self) -> bool:
        """Whether it is about writes that were submitted together, as a whole."""
        return self.write is not None and self.write.batch is True

    @property
    def reads(self) -> bool:
        """Whether it is about reads."""
        return self.write is not None and self.write.op == "read"

    @property
    def goes_by_itself(self) -> bool:
        """Whether what matches waits for no step."""
        return self.action in ("pass", "delay")


class Hold(Armed, frozen=True, kw_only=True, rename="kebab", tag="hold"):
    """The next `count` matching things stop until let go, in the network or (`work`) on an instance's stream.

    `action` says what their sender learns meanwhile: of a `ghost` that it failed, although its bytes are
    still on their way; of `fail` that it failed, and it did; of `early-success` that it has landed, which it has not
    (no TCP does that: labelled `synthetic`); of `lose-completion` nothing, although it
    has landed; of `half-open` nothing, although the target's end of its connection is gone and the bytes with it, until
    it is dropped. `payload` is that of the gate if it is left out.
    """

    action: Literal["hold", "ghost", "fail", "lose-completion", "early-success", "half-open"] = "hold"
    payload: Literal["at-hold", "at-release", "reread"] | None = None


class Pass(Armed, frozen=True, kw_only=True, rename="kebab", tag="pass"):
    """A control: what matches goes the way of a held thing without stopping. `count` 0 is all of it."""

    count: int = 0
    action: Literal["pass"] = "pass"
    payload: None = None


class Delay(Armed, frozen=True, kw_only=True, rename="kebab", tag="delay"):
    """What matches comes later, by draws from a distribution (racelab.delays). `count` 0 is all of it.

    A perturbation: what order comes of it nobody knows beforehand, and no step may count on one.
    """

    ms: dict[str, float | list[float]]
    count: int = 0
    action: Literal["delay"] = "delay"
    payload: None = None


class Duplicate(Armed, frozen=True, kw_only=True, rename="kebab", tag="duplicate"):
    """The next `count` matching messages pass, and a copy of each stops until it is let go."""

    mechanism: str = "lost-acknowledgement"
    action: Literal["duplicate"] = "duplicate"
    payload: None = None


class Release(_Step, frozen=True, kw_only=True, rename="kebab", tag="release"):
    """Everything stopped under a hold goes on, in the order in which it stopped.

    With `corrupt` the byte at that offset of the first held write, read or notification is another one when it goes
    on. No link does that unnoticed, so a run with it is labelled `synthetic`. With `tear` the first of them
    breaks off after so many bytes: its connection ends there, and the rest is lost. Of a notification the bytes are
    those of its JSON. With `order: reversed` what stopped last goes first.
    """

    hold: str
    corrupt: int | None = None
    tear: int | None = None
    order: Literal["reversed"] | None = None


class Drop(_Step, frozen=True, kw_only=True, rename="kebab", tag="drop"):
    """Everything stopped under a hold is lost: a message vanishes, a write's connection is reset."""

    hold: str


class Reset(_Step, frozen=True, kw_only=True, rename="kebab", tag="reset"):
    """The connections on which a hold's writes stopped are reset at both ends, and the writes lost with them."""

    hold: str


REST = "rest"
"""What is awaited when all that can come by itself is to have come: it is no event of any instance."""


class Await(_Step, frozen=True, kw_only=True, rename="kebab", tag="await"):
    """Wait until the system reports `count` events that agree in every field given.

    Events from before the step count too, unless `new` is set. The event `held` with a hold
    waits until everything that the hold asked for has stopped; `rest` until nothing is on its way any more that no
    gate holds, and no instance has work of its own: what may come first or second then has come.
    """

    event: str
    request: str | None = None
    attempt: int | None = None
    hold: str | None = None
    count: int = 1
    new: bool = False
    instance: str | None = None
    """who reports them"""


class Expect(_Step, frozen=True, kw_only=True, rename="kebab", tag="expect"):
    """A claim: `reuses` (`request` holds a page that `of` held; `reuses-source`: on prefill) or `ended` (`request`
    is terminal)."""

    claim: Literal["reuses", "reuses-source", "ended", "alive"]
    request: str
    of: str | None = None


class Stop(_Step, frozen=True, kw_only=True, rename="kebab", tag="stop"):
    """A process stalls (SIGSTOP): what others send it waits in its sockets, and its clock stands."""

    instance: str
    mechanism: str = FREEZE


class Continue(_Step, frozen=True, kw_only=True, rename="kebab", tag="continue"):
    """A stopped process goes on (SIGCONT); the time that passed meanwhile passes for it now."""

    instance: str


class Kill(_Step, frozen=True, kw_only=True, rename="kebab", tag="kill"):
    """A process dies at once (SIGKILL), and its memory with it. The run goes on without it."""

    instance: str
    mechanism: str = CRASH


class Restart(_Step, frozen=True, kw_only=True, rename="kebab", tag="restart"):
    """A new process takes the place of a killed one: same address, same name on the bus, and empty."""

    instance: str


class Unregister(_Step, frozen=True, kw_only=True, rename="kebab", tag="unregister"):
    """An instance takes its memory back from the transport, whatever is under way to it, and keeps using it."""

    instance: str


class Unmap(_Step, frozen=True, kw_only=True, rename="kebab", tag="unmap"):
    """An instance has its memory at other addresses from now on: where it is registered, nothing is mapped."""

    instance: str


Arming = Hold | Pass | Delay | Duplicate
ProcessStep = Stop | Continue | Kill | Restart | Unregister | Unmap
Step = Submit | Abort | Retry | Retract | Advance | Arming | Release | Drop | Reset | Await | Expect | ProcessStep

_KINDS: tuple[type[Step], ...] = (
    *(Submit, Abort, Retry, Retract, Advance),
    *(Hold, Pass, Delay, Duplicate),
    *(Release, Drop, Reset),
    *(Await, Expect),
    *(Stop, Continue, Kill, Restart, Unregister, Unmap),
)
VERBS: dict[str, type[Step]] = {str(kind.__struct_config__.tag): kind for kind in _KINDS}


def verb(step: _Step) -> str:
    """The word that starts a step in YAML."""
    return str(step.__struct_config__.tag)


def read_aloud(step: Step) -> str:
    """One line for people: `hold w1: writes of r1 (4 of them)`."""
    match step:
        case Armed():
            return f"{verb(step)} {step.id}: {_armed(step)}"
        case Await(event="held", hold=str() as hold):
            return f"await held: everything that {hold} asked for"
        case Await() if step.event == REST:
            return "await rest: all that is not held has arrived"
        case Await():
            return f"await {step.event} {_fields(step, skip=('event',))}".rstrip()
        case Expect(claim="reuses"):
            return f"expect that {step.request} holds a page that {step.of} held"
        case Expect(claim="reuses-source"):
            return f"expect that {step.request} has a source page that {step.of} had"
        case Expect():
            return f"expect that {step.request} is {step.claim}"
        case Advance():
            return f"advance the clock by {step.ms:,} ms"
        case Submit(reference_of=str() as of):
            return f"submit {step.request} with the reference of {of}"
        case Submit(transfer_id=str() | int() as transfer):
            return f"submit {step.request} with transfer id {transfer}"
        case Abort(at=where) if where != "decode":
            return f"abort {step.request} at {where}"
        case Submit() if (step.prefill, step.decode) != ROLES:
            return f"submit {step.request} to {step.prefill} and {step.decode}"
        case Retry():
            return f"retry {step.request} on {step.prefill}"
        case Submit() | Abort() | Retract():
            return f"{verb(step)} {step.request}"
        case Unregister() | Unmap():
            return f"{verb(step)} the memory of {step.instance}"
        case Stop() | Continue() | Kill() | Restart():
            return f"{verb(step)} {step.instance}"
        case Release(corrupt=int() as offset):
            return f"release {step.hold} with byte {offset:,} changed"
        case Release(tear=int() as size):
            return f"release {step.hold}, torn after {size:,} bytes"
        case Release(order="reversed"):
            return f"release {step.hold}, the last one first"
        case Release() | Drop():
            return f"{verb(step)} {step.hold}"
        case Reset():
            return f"reset the connections of {step.hold}"


def _armed(step: Armed) -> str:
    """`4 write(s) with request r1, as ghost`."""
    match = step.match
    if match is None:
        return "nothing"
    many = f"{step.count}" if step.count else "every"
    kind = "piece(s) of local work" if step.work is not None else "read(s)" if step.reads else f"{step.subject}(s)"
    kind = "whole batch(es)" if step.batches else kind
    fields = _fields(match, skip=("op", "batch"))
    things = f"{many} {kind} with {fields}" if fields else f"{many} {kind}"
    if isinstance(step, Delay):
        return f"{things}, {delays.in_words(step.ms)}"
    if step.action not in ("hold", verb(step)):
        things += f", as {step.action}"
    return things + (f", payload {step.payload}" if step.payload is not None else "")


def _fields(struct: msgspec.Struct, skip: tuple[str, ...] = ()) -> str:
    values = msgspec.to_builtins(struct)
    defaults = defaults_of(type(struct))
    shown = [key for key in values if key in defaults and key not in skip and values[key] != defaults[key]]
    return ", ".join(f"{key} {_shown(values[key])}" for key in shown)


def _shown(value: Any) -> str:
    """A value on one line; a range as `0-4096`."""
    return "-".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@cache
def defaults_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Each field's default by the name that YAML uses."""
    return {field.encode_name: field.default for field in msgspec.structs.fields(kind)}

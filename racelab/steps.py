"""The steps of a schedule: one struct a verb, and how each reads aloud.

    submit / abort / advance   act on the system as a client or operator would
    hold                       arm a gate for the writes or messages that match
    release / drop             let a held thing go, or lose it as its transport would
    await                      wait until the system itself reports an event
    expect                     a claim about the state at this point

racelab/scenario.py reads them from YAML and checks them; docs/scenarios.md lists them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import msgspec


class WriteMatch(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Which one-sided writes: those whose published identity agrees in every field given."""

    request: str | None = None
    attempt: int | None = None
    chunk: int | None = None
    layer: int | None = None
    page: int | None = None


class MessageMatch(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Which control messages, by type and request; `chunk` for those that carry one."""

    type: str
    request: str | None = None
    attempt: int | None = None
    chunk: int | None = None


class _Step(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", tag_field="verb"):
    """What every step is: a struct tagged with its verb."""


class Submit(_Step, frozen=True, kw_only=True, rename="kebab", tag="submit"):
    """The client sends a request; submitting an ended one again is its next attempt."""

    request: str


class Abort(_Step, frozen=True, kw_only=True, rename="kebab", tag="abort"):
    """The client gives up on a request."""

    request: str


class Advance(_Step, frozen=True, kw_only=True, rename="kebab", tag="advance"):
    """Virtual time passes on every instance; timers that fall due fire in order."""

    ms: int


class Hold(_Step, frozen=True, kw_only=True, rename="kebab", tag="hold"):
    """Arm a gate: the next `count` matching things stop in the network until let go.

    `action` says what their sender learns meanwhile (docs/rdma.md): of a `ghost` that it failed, although
    its packets are still on their way; of `fail` that it failed, and it did. `payload` is that of the
    gate if it is left out. A gate need not know them all.
    """

    id: str
    write: WriteMatch | None = None
    message: MessageMatch | None = None
    count: int = 1
    mechanism: str = "congestion"
    action: Literal["hold", "ghost", "fail"] = "hold"
    payload: Literal["at-hold", "at-release"] | None = None


class Release(_Step, frozen=True, kw_only=True, rename="kebab", tag="release"):
    """Everything stopped under a hold goes on, in the order in which it stopped.

    With `corrupt` the byte at that offset of the first held write is another one when it goes on. No
    link does that unnoticed, so a run with it is labelled `synthetic`. With `tear` the first held write
    breaks off after so many bytes: its connection ends there, and the rest is lost.
    """

    hold: str
    corrupt: int | None = None
    tear: int | None = None


class Drop(_Step, frozen=True, kw_only=True, rename="kebab", tag="drop"):
    """Everything stopped under a hold is lost: a message vanishes, a write's connection is reset."""

    hold: str


class Await(_Step, frozen=True, kw_only=True, rename="kebab", tag="await"):
    """Wait until the system reports `count` events that agree in every field given.

    Events from before the step count too, unless `new` is set. The event `held` with a hold
    waits until everything that the hold asked for has stopped.
    """

    event: str
    request: str | None = None
    attempt: int | None = None
    hold: str | None = None
    count: int = 1
    new: bool = False


class Expect(_Step, frozen=True, kw_only=True, rename="kebab", tag="expect"):
    """A claim: `reuses` (`request` holds a page that `of` held) or `ended` (`request` is terminal)."""

    claim: Literal["reuses", "ended", "alive"]
    request: str
    of: str | None = None


Step = Submit | Abort | Advance | Hold | Release | Drop | Await | Expect

_KINDS: tuple[type[Step], ...] = (Submit, Abort, Advance, Hold, Release, Drop, Await, Expect)
VERBS: dict[str, type[Step]] = {str(kind.__struct_config__.tag): kind for kind in _KINDS}


def verb(step: Step) -> str:
    """The word that starts a step in YAML."""
    return str(step.__struct_config__.tag)


def read_aloud(step: Step) -> str:
    """One line for people: `hold w1: writes of r1 (4 of them)`."""
    match step:
        case Hold(write=WriteMatch() as write):
            how = f", as {step.action}" if step.action != "hold" else ""
            return f"hold {step.id}: {step.count} write(s) with {_fields(write)}{how}"
        case Hold(message=MessageMatch() as message):
            return f"hold {step.id}: {step.count} message(s) with {_fields(message)}"
        case Await(event="held", hold=str() as hold):
            return f"await held: everything that {hold} asked for"
        case Await():
            return f"await {step.event} {_fields(step, skip=('event',))}".rstrip()
        case Expect(claim="reuses"):
            return f"expect that {step.request} holds a page that {step.of} held"
        case Expect():
            return f"expect that {step.request} is {step.claim}"
        case Advance():
            return f"advance the clock by {step.ms:,} ms"
        case Submit() | Abort():
            return f"{verb(step)} {step.request}"
        case Release(corrupt=int() as offset):
            return f"release {step.hold} with byte {offset:,} changed"
        case Release(tear=int() as size):
            return f"release {step.hold}, torn after {size:,} bytes"
        case Release() | Drop():
            return f"{verb(step)} {step.hold}"
        case Hold():
            return f"hold {step.id}: nothing"


def _fields(struct: msgspec.Struct, skip: tuple[str, ...] = ()) -> str:
    values = msgspec.to_builtins(struct)
    defaults = defaults_of(type(struct))
    shown = [key for key in values if key in defaults and key not in skip and values[key] != defaults[key]]
    return ", ".join(f"{key} {values[key]}" for key in shown)


@cache
def defaults_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Each field's default by the name that YAML uses."""
    return {field.encode_name: field.default for field in msgspec.structs.fields(kind)}

"""What an injector says of itself, and the commands that every gate's process answers.

An injector is found through the entry point group `racelab.injectors`. Its gate runs as a process
of its own, `python -m MODULE --hub HOST:PORT --instance NAME ...`, connects to the conductor with
`racelab.channel.link.Link` (token in the environment variable RACELAB_TOKEN) and answers:

    arm(hold, match, count)     watch for the next `count` things (0: all) that agree with `match`; `action`,
                                `payload`, and for a delay `ms` and `seed` (racelab.delays), follow where a
                                step asks for them, and the gate has them
    release(hold)               end a hold: what it holds goes on, in the order in which it stopped; what it
                                delays goes on when its time has come
    release(hold, corrupt)      the same, with the byte at offset `corrupt` of the first thing changed
    release(hold, tear)         the same, with all but the first `tear` bytes of the first thing lost
    release(hold, order)        the same, "reversed": what stopped last goes first
    drop(hold)                  end a hold: what it holds is lost, as the transport would lose it
    reset_connections(hold)     end a hold: the connections of what it holds are reset at both ends
    reset(incarnation)          forget rules that did not fire; answer what is still held
    count()                     record a `counted` event: own byte counts beside the kernel's
    retarget(targets)           if it `retargets`: stand before other engines; answer the facts of its hello anew

An injector whose subject is a process acts on the instances themselves. It is started when a scenario first needs
it, and answers `reset` and

    stop(fault, peer, pid)      every thread of it stands still when this is answered; records `stopped`
    continue(fault, peer, pid)  it goes on; records `continued`
    kill(fault, peer, pid, idle) it is gone when this is answered; records `killed`

docs/writing-an-injector.md shows one from start to end.
"""

from __future__ import annotations

from typing import Literal

import msgspec

TOKEN_VARIABLE = "RACELAB_TOKEN"
INSTANCE_VARIABLE = "RACELAB_INSTANCE"
"""Which instance of the lab a process is: preloaded libraries introduce themselves by it."""


class Mechanism(msgspec.Struct, frozen=True, kw_only=True):
    """Something in a real network that could cause a hold, and how long that can last."""

    means: str
    bound_ms: int
    source: str


class Injector(msgspec.Struct, frozen=True, kw_only=True):
    """One gate: what it holds, at which stage of an access, and by which real mechanisms.

    `payload` says what the bytes of a late write are: `at-hold`, `at-release` or `reread`.
    `transports` are those whose data path it stands in; without any it is not in a data path. One that
    `preloads` starts before the instances, and what its hello gives as `environment` goes into theirs.
    One that `retargets` can be told of other targets than those it was started with, and stays when instances are
    replaced. `actions` and `payloads` are those that it can be asked for besides holding with its own payload;
    actions that are `only_simulated` need a simulated device. `ends` are the ways in which a hold can end there;
    `reads` are the payloads that it has for reads, if it holds any; `notifies` are the actions that it has for
    notifications of the transport, and `ends_of_notifies` how a hold of those can end. With `machines` it has a place
    in those alone. One without a `module` is no process: the instances themselves answer for it (`arm_work`,
    `release_work`), and `simulates` says what they stand in for. `endless` says why the peer of a process that it kills
    would wait for ever here, if so; what is in `gives_up` is then not offered, as it takes a requester that gives up.
    """

    name: str
    subject: Literal["write", "message", "process", "work"]
    module: str
    means: str
    stage: str
    payload: str
    mechanisms: dict[str, Mechanism]
    transports: tuple[str, ...] = ()
    preloads: bool = False
    retargets: bool = False
    actions: tuple[str, ...] = ("hold",)
    payloads: tuple[str, ...] = ()
    ends: tuple[str, ...] = ("release", "drop")
    reads: tuple[str, ...] = ()
    notifies: tuple[str, ...] = ()
    ends_of_notifies: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    only_simulated: tuple[str, ...] = ()
    simulates: str | None = None
    endless: str = ""
    gives_up: tuple[str, ...] = ()

    def serves(self, transport: str, machine: str = "") -> bool:
        """Whether it has a place in a lab with this transport, in this machine."""
        placed = not self.transports or transport in self.transports
        return placed and (not self.machines or machine in self.machines)

    def without_end(self, why: str) -> Injector:
        """The same where a requester never gives up."""
        actions, ends = (tuple(one for one in each if one not in self.gives_up) for each in (self.actions, self.ends))
        return msgspec.structs.replace(self, endless=why, actions=actions, ends=ends)

    def on_a_real_device(self) -> Injector:
        """The same, less what only a simulated device can do."""
        left = tuple(action for action in self.actions if action not in self.only_simulated)
        return msgspec.structs.replace(self, actions=left)

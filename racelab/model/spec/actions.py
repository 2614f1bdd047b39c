"""The actions by name, which of them a state enables, and what each leads to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from racelab.model.spec import decode, network, prefill, prefix_cache, pull
from racelab.model.spec.draft import Draft
from racelab.model.spec.state import (
    COPY,
    DECODE,
    FAIL,
    LATE_FORWARD,
    LOSE,
    PREFILL,
    ROUTER,
    Attempt,
    Config,
    Effect,
    Message,
    State,
)


class Action(NamedTuple):
    """A name and its arguments."""

    name: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        shown = []
        for argument in self.args:
            if isinstance(argument, Message):
                chunk = "" if argument.chunk is None else f" chunk {argument.chunk}"
                shown.append(f"{argument.type} of {argument.request}/{argument.attempt}{chunk}")
            elif hasattr(argument, "layer"):
                shown.append(f"{argument.request}/{argument.attempt} page {argument.page} layer {argument.layer}")
            elif isinstance(argument, frozenset | tuple):
                shown.append(f"{len(argument)} write(s)")
            else:
                shown.append(str(argument))
        return f"{self.name}({', '.join(shown)})"


class Step(NamedTuple):
    """An action taken: where it leads, and what the instances report of it, in order."""

    action: Action
    state: State
    effects: tuple[Effect, ...]


def _receive_complete(draft: Draft, message: Message) -> bool:
    """Decode says that it has what it asked prefill for, or what it has read itself."""
    return (pull.receive_readers_end if draft.config.pulls else prefill.receive_complete)(draft, message)


_RECEIVE: dict[str, Callable[[Draft, Message], bool]] = {
    "reserve": prefill.receive_reserve,
    "abort": prefill.receive_abort,
    "complete": _receive_complete,
    "claim": pull.receive_claim,
    "claimed": pull.receive_claimed,
    "release-source": pull.receive_readers_end,
    "written": decode.receive_written,
    "failed": decode.receive_failed,
    "abort-ack": decode.receive_ack,
    "hello": decode.receive_hello,
}


def _receive(draft: Draft, message: Message) -> bool:
    """A message arrives and is gone from the network."""
    if message not in draft.net:
        return False
    draft.net -= {message}
    return _RECEIVE[message.type](draft, message)


def _receive_copy(draft: Draft, message: Message) -> bool:
    """A message arrives, and will once more."""
    if message not in draft.net or COPY not in draft.config.faults:
        return False
    kept = draft.net
    if not _RECEIVE[message.type](draft, message):
        return False
    draft.net |= kept
    return True


ACTIONS: dict[str, Callable[..., bool]] = {
    "Submit": decode.submit,
    "Join": prefix_cache.join,
    "Evict": prefix_cache.evict,
    "Unjoin": prefix_cache.unjoin,
    "Admit": decode.admit,
    "Fill": decode.fill,
    "Register": decode.register,
    "Receive": _receive,
    "ReceiveCopy": _receive_copy,
    "Read": decode.read,
    "Enter": decode.enter,
    "Finish": decode.finish,
    "TimeOut": decode.time_out,
    "Abort": decode.abort,
    "Retract": decode.retract,
    "Retry": decode.retry,
    "GiveUp": decode.give_up,
    "Orphan": decode.orphan,
    "GiveUpSource": prefill.give_up_source,
    "Accept": prefill.accept,
    "Compute": prefill.compute,
    "Post": prefill.post,
    "Complete": prefill.complete,
    "Offer": prefill.offer,
    "GiveUpOffer": prefill.give_up_offer,
    "Request": pull.request,
    "Refer": pull.refer,
    "Forward": pull.forward,
    "Present": pull.present,
    "TimeOutAway": pull.time_out_away,
    "AbortAway": pull.abort_away,
    "Lapse": pull.lapse,
    "CompleteRead": pull.complete_read,
    "Land": network.land,
    "LandSlot": network.land_in_slot,
    "Vanish": network.vanish,
    "Lose": network.lose,
    "Expire": network.expire,
    "Restart": prefill.restart,
}
"""`Read` changes nothing: a search leaves it out, a history has it."""

FAULTS = ("Abort", "AbortAway", "Retract", "Retry", "ReceiveCopy", "Lose", "Submit", "Request", "Present", "Restart")
"""What need never happen: everything else does if it stays possible."""


def take(config: Config, state: State, action: Action) -> Step | None:
    """The step that `action` is from this state, or None if the state does not enable it."""
    draft = Draft(config, state)
    if not ACTIONS[action.name](draft, *action.args):
        return None
    return Step(action, draft.state, tuple(draft.effects))


def enabled(config: Config, state: State) -> Iterator[Step]:
    """Every step that is possible from this state."""
    for action in _candidates(config, state):
        step = take(config, state, action)
        if step is not None:
            yield step


def _candidates(config: Config, state: State) -> Iterator[Action]:
    yield from _of_requests(config, state)
    yield from _of_jobs(config, state)
    for write in sorted(state.wire):
        yield Action("LandSlot" if write.layer == config.layers else "Land", (write,))
        yield Action("Vanish", (write,))
    for message in sorted(state.net, key=repr):
        yield Action("Receive", (message,))
        if COPY in config.faults:
            yield Action("ReceiveCopy", (message,))
        if LOSE in config.faults:
            yield Action("Lose", (message,))
    for where, side in ((DECODE, state.decode), (PREFILL, state.prefill)):
        for page, held in enumerate(side.pages):
            if held.state == "DRAINING":
                yield Action("Expire", (where, page))
    yield Action("Restart")


def _of_requests(config: Config, state: State) -> Iterator[Action]:
    for request, attempts in zip(config.shapes, state.attempts, strict=True):
        yield Action("Submit", (request,))
        if config.pulls:
            yield from _of_pulled(config, request, attempts)
        for number, attempt in enumerate(attempts, 1):
            if attempt.running:
                yield Action("Finish", (request, number))
            if attempt.waits_its_turn:
                yield Action("Enter", (request, number))
            if number == len(attempts) and attempt.ended is None:
                for end in ("TimeOut", "Abort", "GiveUp", "Orphan", "Retract", "Retry"):
                    yield Action(end, (request, number))
            if not attempt.filled:
                yield Action("Fill", (request, number))
            if not attempt.registered:
                yield Action("Register", (request, number))
    if state.queue:
        yield Action("Join", state.queue[0])
        yield Action("Unjoin", state.queue[0])
        yield Action("Admit", state.queue[0])
        for page, held in enumerate(state.decode.pages):
            if held.state == "SHARED" and not held.readers:
                yield Action("Evict", (page,))


def _of_pulled(config: Config, request: str, attempts: tuple[Attempt, ...]) -> Iterator[Action]:
    yield Action("Request", (request,))
    for of in config.shapes:
        yield Action("Present", (request, of))
    for number, attempt in enumerate(attempts, 1):
        if attempt.stage == "away":
            for away in ("Forward", "TimeOutAway", "AbortAway"):
                yield Action(away, (request, number))
        if attempt.reading:
            yield Action("CompleteRead", (request, number, attempt.reading, True))
            if FAIL in config.faults:
                yield Action("CompleteRead", (request, number, attempt.reading, False))


def _of_jobs(config: Config, state: State) -> Iterator[Action]:
    if state.waiting:
        yield Action("Accept", state.waiting[0])
    for request, jobs in zip(config.shapes, state.jobs, strict=True):
        for number, job in enumerate(jobs, 1):
            if job.stage != "none":
                yield Action("GiveUpSource", (request, number))
            if job.stage == "accepted":
                if LATE_FORWARD in config.parts:
                    yield Action("Compute", (request, number, job.computed))
                yield Action("Post", (request, number, job.posted))
                yield Action("Refer", (request, number))
            if ROUTER in config.parts:
                yield Action("Offer", (request, number))
                yield Action("GiveUpOffer", (request, number))
            if job.stage == "referenced":
                yield Action("Lapse", (request, number))
            batches: dict[tuple[int, int, bool], set[tuple[int, int]]] = {}
            for nth, layer in job.outstanding:
                part = (nth // config.chunk_pages, config.rank_of(layer), layer == config.layers)
                batches.setdefault(part, set()).add((nth, layer))
            for _, writes in sorted(batches.items()):
                yield Action("Complete", (request, number, frozenset(writes), True))
                if FAIL in config.faults:
                    yield Action("Complete", (request, number, frozenset(writes), False))

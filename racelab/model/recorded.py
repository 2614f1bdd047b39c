"""A run's history as a Trace of PdLedger: what its replay went through, state by state.

Where the run violated a specification the trace ends at the state that does, and is a
counterexample that `racelab run` plays again; else it is an example of a correct run.
"""

from __future__ import annotations

from typing import Any

from racelab.errors import HistoryError
from racelab.evidence.history import History
from racelab.model.replay import Replay
from racelab.model.spec.actions import Action
from racelab.model.spec.invariants import INVARIANTS
from racelab.model.spec.state import DECODE, GUARDS, ROUTER, Config, Message, Side, State, Write, initial
from racelab.traces.trace import Action as TraceAction
from racelab.traces.trace import Step, Trace
from racelab.traces.values import Function, ModelValue, Value

MODULE = "PdLedger"
PROPERTIES = {"isolation": "Isolation", "integrity": "Integrity", "conservation": "Conservation"}
_NAMES = {"nth": "index", "source_gen": "sourceGen"}
"""Fields that PdLedger.tla calls otherwise."""


def trace_of(history: History, file: str) -> Trace:
    """The history as a trace; `file` is what messages call it.

    Raises:
        HistoryError: the specification does not explain the history.
    """
    replay = Replay(history)
    refused = replay.run()
    if refused is not None:
        raise HistoryError(
            f"the specification does not explain this run ({refused.gap}): {refused.why}",
            file=file,
            next="`racelab validate RUN` shows the first event that is refused",
        )
    states = [initial(replay.config)] + [taken.step.state for taken in replay.taken]
    acts = [_setting(replay.config)] + [
        _act(replay.config, before, taken.step.action) for before, taken in zip(states, replay.taken, strict=False)
    ]
    spec, end = _violated(replay.config, states, history.header.scenario.spec)
    steps = [
        Step(_state(replay.config, state, act), TraceAction(name=act["name"]) if place else None, place + 1)
        for place, (state, act) in enumerate(zip(states[:end], acts[:end], strict=True))
    ]
    return Trace(
        file=file,
        format="history",
        checker="racelab",
        steps=tuple(steps),
        modules=(MODULE,),
        kind="none" if spec is None else "invariant",
        property_name=None if spec is None else PROPERTIES[spec],
    )


def _violated(config: Config, states: list[State], wanted: str | None) -> tuple[str | None, int]:
    """Which specification the trace shows violated, the scenario's own if it can, and how many states that takes."""
    ends = {}
    for spec in PROPERTIES:
        places = (place for place, state in enumerate(states) if not INVARIANTS[spec](config, state))
        first = next(places, None)
        if first is not None:
            ends[spec] = first + 1
    if not ends:
        return None, len(states)
    spec = wanted if wanted in ends else min(ends, key=lambda name: ends[name])
    assert spec is not None
    return spec, ends[spec]


_NOTHING: dict[str, Any] = {
    "name": "Init",
    "request": None,
    "attempt": 0,
    "part": 0,
    "rank": 0,
    "page": 0,
    "taken": frozenset(),
    "found": 0,
}


def _setting(config: Config) -> dict[str, Any]:
    """What `act` says of the configuration before the first step."""
    without = frozenset(GUARDS) - config.guards
    too_long = frozenset(request for request, shape in config.shapes.items() if shape.too_long)
    return {
        **_NOTHING,
        "without": without,
        "may": config.faults,
        "has": config.parts,
        "tooLong": too_long,
        "ranks": config.ranks,
        "slots": config.slots,
        "pinned": config.prefill_pages if config.pulls else 0,
        "room": {request: shape.room for request, shape in config.shapes.items()},
    }


def _act(config: Config, state: State, action: Action) -> dict[str, Any]:
    """What PdLedger.tla's variable `act` says of the action, taken from `state`."""
    act = {**_NOTHING, "name": action.name}
    match action.name, action.args:
        case "Present", (request, of):
            attempts = state.attempts[config.place[request]]
            return act | {"request": request, "attempt": len(attempts) + 1, "taken": frozenset({of})}
        case (("Submit" | "Request"), (request,)):
            attempts = state.attempts[config.place[request]]
            asked = "Request" if ROUTER in config.parts else action.name
            return act | {"name": asked, "request": request, "attempt": len(attempts) + 1}
        case "Admit", (request, number):
            attempt = state.attempts[config.place[request]][number - 1]
            hits = len(attempt.tickets)
            taken = frozenset(state.decode.free[: config.shapes[request].pages - hits])
            begun = "Begin" if config.pulls or ROUTER in config.parts else "Admit"
            return act | {"name": begun, "request": request, "attempt": number, "taken": taken, "found": hits}
        case (("Receive" | "ReceiveCopy" | "Lose"), (message,)):
            part = 0 if message.chunk is None else _part(config, state, message.request, message.attempt, message.chunk)
            about = {"request": message.request, "attempt": message.attempt, "part": part, "rank": message.rank}
            news = "failure" if message.type == "written" and not message.ok else message.type
            return act | about | {"name": f"{action.name}-{news}"}
        case (("Land" | "LandSlot" | "Vanish"), (write,)):
            chunk = write.nth // config.chunk_pages
            part = _part(config, state, write.request, write.attempt, chunk)
            part_only = action.name == "Land" and not _is_first(config, state, write)
            slot = action.name == "Vanish" and write.layer == config.layers
            name = "LandPart" if part_only else "VanishSlot" if slot else action.name
            return act | {
                "name": name,
                "request": write.request,
                "attempt": write.attempt,
                "part": part,
                "rank": config.rank_of(write.layer),
                "page": write.page,
            }
        case (("Complete" | "CompleteRead"), (request, number, writes, ok)):
            nth, layer = min(writes)
            part, rank = _part(config, state, request, number, nth // config.chunk_pages), config.rank_of(layer)
            told = ("Complete" if ok else "Fail") + ("Slot" if layer == config.layers else "")
            return act | {"name": told, "request": request, "attempt": number, "part": part, "rank": rank}
        case (("Post" | "Compute"), (request, number, chunk)):
            part = _part(config, state, request, number, chunk)
            return act | {"request": request, "attempt": number, "part": part}
        case "Expire", (where, page):
            held = (state.decode if where == DECODE else state.prefill).pages[page]
            expire = "Expire" if where == DECODE else "ExpirePinned" if config.pulls else "ExpireSource"
            return act | {"name": expire, "request": held.request, "attempt": held.attempt, "page": page}
        case "Restart", ():
            return act | {"attempt": 1}
        case "Evict", (page,):
            held = state.decode.pages[page]
            return act | {"request": held.request, "attempt": held.attempt, "page": page}
        case "Accept", (request, number):
            return act | {"name": "Pin" if config.pulls else "Accept", "request": request, "attempt": number}
        case (("TimeOutAway" | "AbortAway"), (request, number)):
            return act | {"name": action.name.removesuffix("Away"), "request": request, "attempt": number}
        case _, (request, number):
            return act | {"request": request, "attempt": number}
    raise TypeError(f"{action} has no name in {MODULE}")


def _part(config: Config, state: State, request: str, attempt: int, chunk: int) -> int:
    """The chunk's number among those that prefill writes."""
    return max(0, chunk - _first(config, state, request, attempt) // config.chunk_pages)


def _first(config: Config, state: State, request: str, attempt: int) -> int:
    """The place of the first page that is transferred."""
    place = config.place[request]
    return state.attempts[place][attempt - 1].hits if config.pulls else state.jobs[place][attempt - 1].first


def _is_first(config: Config, state: State, write: Write) -> bool:
    """Whether no other write of the same rank's part of a chunk has landed."""
    chunk, rank = write.nth // config.chunk_pages, write.layer % config.ranks
    first = _first(config, state, write.request, write.attempt)
    flying = [
        other
        for other in state.wire
        if other[:2] == write[:2]
        and other.nth // config.chunk_pages == chunk
        and config.rank_of(other.layer) == rank
        and other.layer < config.layers
    ]
    layers = len(range(rank, config.layers, config.ranks))
    return len(flying) == len(config.posted(write.request, chunk, first)) * layers


def _state(config: Config, state: State, act: dict[str, Any]) -> dict[str, Value]:
    names = tuple(config.shapes)
    cache = frozenset(Function({"key": key, "ticket": _value(ticket)}) for key, ticket in state.cache)
    return {
        "decode": _side(state.decode),
        "prefill": _side(state.prefill),
        "attempts": Function({name: _value(row) for name, row in zip(names, state.attempts, strict=True)}),
        "jobs": Function({name: _value(row) for name, row in zip(names, state.jobs, strict=True)}),
        "cache": cache,
        "queue": _value(state.queue),
        "waiting": _value(state.waiting),
        "wire": _value(state.wire),
        "net": frozenset(map(_message, state.net)),
        "strays": _value(state.strays),
        "act": Function({name: _value(value) for name, value in act.items()}),
    }


def _side(side: Side) -> Value:
    pages = [(number, _value(page)) for number, page in enumerate(side.pages)]
    content = [
        (number, Function([(layer, _value(held)) for layer, held in enumerate(row)]))
        for number, row in enumerate(side.content)
    ]
    return Function(
        {
            "pages": Function(pages),
            "free": side.free,
            "grants": _value(side.grants),
            "content": Function(content),
            "epoch": side.epoch,
            "rooms": _value(side.rooms),
            "slots": _value(side.slots),
            "spare": side.spare,
        }
    )


def _message(message: Message) -> Value:
    shown = message._asdict() | {"chunk": -1 if message.chunk is None else message.chunk}
    shown["request"] = message.request or None  # a hello is of nobody's request
    return Function({name: _value(item) for name, item in shown.items()})


def _value(value: Any) -> Value:
    """Named tuples are records, plain ones sequences, None is nobody."""
    if value is None:
        return ModelValue("Nobody")
    if isinstance(value, frozenset):
        return frozenset(map(_value, value))
    if isinstance(value, dict):
        return Function({name: _value(item) for name, item in value.items()})
    fields = getattr(value, "_fields", None)
    if fields is not None:
        return Function({_NAMES.get(name, name): _value(item) for name, item in zip(fields, value, strict=True)})
    if isinstance(value, tuple):
        return tuple(map(_value, value))
    plain: Value = value
    return plain


__all__ = ["MODULE", "PROPERTIES", "trace_of"]

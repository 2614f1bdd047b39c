"""The specifications as predicates over a state; finality is one over a state and what it enables."""

from __future__ import annotations

from collections.abc import Callable

from racelab.model.spec.actions import FAULTS, enabled
from racelab.model.spec.state import Config, Content, State


def isolation(config: Config, state: State) -> bool:
    """Nothing took effect after the generation or the attempt that it was for had ended."""
    return not state.strays


def integrity(config: Config, state: State) -> bool:
    """Whoever reads holds the pages, and every layer of them has the bytes of its own attempt."""
    for request, attempts in zip(config.shapes, state.attempts, strict=True):
        granted = config.shapes[request].granted
        for number, attempt in enumerate(attempts, 1):
            if not attempt.running:
                continue
            for index, ticket in enumerate(attempt.tickets[:granted]):
                page = state.decode.pages[ticket.page]
                if page.gen != ticket.gen or page.state != "PRIVATE":
                    return False
                if any(layer != Content(request, number, index) for layer in state.decode.content[ticket.page]):
                    return False
    return True


def conservation(config: Config, state: State) -> bool:
    """Every page is in one place, once; and none is free while an access under its last grant can take effect."""
    for side in (state.decode, state.prefill):
        if len(set(side.free)) != len(side.free):
            return False
        if any((page.state == "FREE") != (number in side.free) for number, page in enumerate(side.pages)):
            return False
    for write in state.wire:
        target, source = state.decode.pages[write.page], state.prefill.pages[write.source]
        if target == (("FREE"), write.gen, None, 0) or source == ("FREE", write.source_gen, None, 0):
            return False
    return True


def finality(config: Config, state: State) -> bool:
    """No dead end: as long as a request or a draining page is not terminal, something that must happen can.

    Every such step makes progress that nothing undoes, so together with fairness this is termination.
    """
    return terminal(state) or any(step.action.name not in FAULTS for step in enabled(config, state))


def terminal(state: State) -> bool:
    """Every request has ended, and no page drains."""
    ended = all(attempt.ended is not None and not attempt.running for row in state.attempts for attempt in row)
    return ended and not any(page.state == "DRAINING" for side in state[:2] for page in side.pages)


INVARIANTS: dict[str, Callable[[Config, State], bool]] = {
    "isolation": isolation,
    "integrity": integrity,
    "conservation": conservation,
    "finality": finality,
}

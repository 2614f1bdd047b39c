"""The specifications as predicates over a state; finality is one over a state and what it enables."""

from __future__ import annotations

from collections.abc import Callable

from racelab.model.spec.actions import FAULTS, enabled
from racelab.model.spec.prefill import can_accept, will_give_up
from racelab.model.spec.state import LEASE, LOSE, RECEIVE_TIME_OUT, Config, Content, Page, Side, State


def isolation(config: Config, state: State) -> bool:
    """Nothing took effect after the generation or the attempt that it was for had ended."""
    return not state.strays


def integrity(config: Config, state: State) -> bool:
    """What is read, and what is published, is complete and of the right content."""
    return _right_reads(config, state) and _right_cache(config, state)


def _right_reads(config: Config, state: State) -> bool:
    """Whoever reads holds the pages; they have its own bytes, or, found in the cache, those of the same key."""
    for request, attempts in zip(config.shapes, state.attempts, strict=True):
        shape = config.shapes[request]
        for number, attempt in enumerate(attempts, 1):
            if not attempt.running:
                continue
            for index, ticket in enumerate(attempt.tickets[: shape.granted]):
                page = state.decode.pages[ticket.page]
                if page.gen != ticket.gen or page.state not in ("PRIVATE", "SHARED", "DUP"):
                    return False
                for content in state.decode.content[ticket.page]:
                    own = content == Content(request, number, index)
                    if not own and not (index < attempt.hits and _key(config, content) == shape.keys[index]):
                        return False
    return True


def _right_cache(config: Config, state: State) -> bool:
    """What is found under a key is alive and has the bytes of that key in every layer."""
    for key, ticket in state.cache:
        page = state.decode.pages[ticket.page]
        if page.gen != ticket.gen or page.state != "SHARED":
            return False
        if any(_key(config, content) != key for content in state.decode.content[ticket.page]):
            return False
    return True


def _key(config: Config, content: Content | None) -> str | None:
    """The key of what some bytes are, if they are the full page of a prompt."""
    if content is None:
        return None
    keys = config.shapes[content.request].keys
    return keys[content.nth] if 0 <= content.nth < len(keys) else None


def conservation(config: Config, state: State) -> bool:
    """Every page is in one place, once; none is free while an access under its last grant can take effect; and when
    nothing is under way any more, nobody holds one.

    Where a word can be lost a side may never hear that it can let go: then it takes the watchdogs, or the lease.
    """
    for side in (state.decode, state.prefill):
        if len(set(side.free)) != len(side.free):
            return False
        if any((page.state == "FREE") != (number in side.free) for number, page in enumerate(side.pages)):
            return False
    for write in (write for write in state.wire if write.layer < config.layers):
        target, source = state.decode.pages[write.page], state.prefill.pages[write.source]
        alive = write.epoch == state.prefill.epoch
        if target == Page("FREE", write.gen) or (alive and source == Page("FREE", write.source_gen)):
            return False
    deaf = LOSE in config.faults and (LEASE if config.pulls else RECEIVE_TIME_OUT) not in config.faults
    return deaf or not _at_rest(config, state) or _none_leaked(state)


def _at_rest(config: Config, state: State) -> bool:
    """Whether nothing is under way any more."""
    if state.net or state.wire or can_accept(config, state) or not terminal(state):
        return False
    for request, jobs in zip(config.shapes, state.jobs, strict=True):
        for job in jobs:
            posting = job.stage == "accepted" and not job.released
            posting = posting and (config.pulls or job.posted < config.posted_chunks(request))
            posting |= LEASE in config.faults and job.stage == "referenced" and not job.released
            if job.outstanding or posting or will_give_up(config, job):
                return False
    return True


def _none_leaked(state: State) -> bool:
    def returned(side: Side, states: tuple[str, ...]) -> bool:
        return all(page.state in states and not page.readers for page in side.pages)

    at_home = returned(state.decode, ("FREE", "QUARANTINED", "SHARED"))
    return not state.waiting and at_home and returned(state.prefill, ("FREE", "QUARANTINED"))


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

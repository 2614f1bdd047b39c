"""Which pages change hands in a trace, and how small the pool must be for the engine to agree.

The engine's allocator is LIFO; a model's may be anything. The pool is made just so small that
every reuse of the model is one of the engine too.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from racelab.binding.document import Binding
from racelab.binding.expression import Undefined, word
from racelab.binding.moves import Attempt, Course
from racelab.binding.naming import Named
from racelab.traces.values import Value, show


@dataclass(frozen=True)
class Seen:
    """An event of the engine that the model's state shows for a page of `attempt`."""

    event: str
    attempt: Attempt


@dataclass
class Pages:
    """What a trace says of pages, step by step."""

    reuses: dict[Attempt, list[Attempt]]
    """for an attempt, those of others whose pages it takes"""
    seen: dict[int, list[Seen]]
    """by step number: pages freed, draining, quarantined"""
    pool: int


def follow(course: Course, binding: Binding, model_pages: int) -> Pages | None:
    """The pages of a course, or None if no pool makes the LIFO allocator reuse what the model does."""
    holder: dict[Value, Attempt] = {}
    reuses: dict[Attempt, list[Attempt]] = {}
    seen: dict[int, list[Seen]] = {}
    story: list[tuple[str, Attempt]] = []
    for step in course.steps:
        changes = _freed(step, binding, holder)
        story += [("free", attempt) for attempt in dict.fromkeys(change.attempt for change in changes)]
        for move in course.of_step(step):
            if course.takes_pages(move):
                pages = course.pages[move.attempt]
                before = {holder[page] for page in pages if page in holder}
                reuses[move.attempt] = sorted(
                    (old for old in before if old.request != move.attempt.request), key=lambda old: old.request
                )
                holder |= dict.fromkeys(pages, move.attempt)
                story.append(("take", move.attempt))
        seen[step.number] = changes + _entered(step, binding, holder)
    sizes = {attempt: course.size(attempt) for attempt in course.pages}
    for pool in range(max(model_pages, *sizes.values(), 1), 0, -1):
        if _agrees(story, sizes, reuses, pool):
            return Pages(reuses, seen, pool)
    return None


def _freed(step: Named, binding: Binding, holder: dict[Value, Attempt]) -> list[Seen]:
    """Pages that were freed: those of their last holder before the step."""
    if binding.freed is None:
        return []
    try:
        page = binding.freed.value(step.scene)
    except Undefined:
        return []
    pages = page if isinstance(page, frozenset) else {page}
    return [Seen("page-free", holder[freed]) for freed in sorted(pages, key=show) if freed in holder]


def _entered(step: Named, binding: Binding, holder: dict[Value, Attempt]) -> list[Seen]:
    """Pages that entered a state that the engine reports, those taken in this very step among them."""
    found = []
    if binding.page is not None:
        for page, attempt in holder.items():
            before, after = _state(step, binding, page, old=True), _state(step, binding, page, old=False)
            if before != after:
                found += [Seen(event, attempt) for event in binding.page.events.get(after, ())]
    return found


def _state(step: Named, binding: Binding, page: Value, *, old: bool) -> str:
    assert binding.page is not None
    scene = step.scene.before if old else step.scene.after
    try:
        return word(binding.page.state.value(type(step.scene)({}, scene, {"this": page})))
    except Undefined:
        return ""


def _agrees(
    story: list[tuple[str, Attempt]], sizes: dict[Attempt, int], reuses: dict[Attempt, list[Attempt]], pool: int
) -> bool:
    """Whether a LIFO allocator over `pool` pages reuses at least what the model reuses."""
    free = list(reversed(range(pool)))
    holds: dict[Attempt, list[int]] = {}
    holders: dict[int, set[Attempt]] = defaultdict(set)
    for what, attempt in story:
        if what == "free":
            free += holds.get(attempt, [])
            continue
        if len(free) < sizes[attempt]:
            return False
        holds[attempt] = [free.pop() for _ in range(sizes[attempt])]
        before = set().union(*(holders[page] for page in holds[attempt]))
        if not set(reuses[attempt]) <= before:
            return False
        for page in holds[attempt]:
            holders[page].add(attempt)
    return True


__all__ = ["Pages", "Seen", "follow"]

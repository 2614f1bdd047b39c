"""From a Trace to a Scenario: holds armed before what they hold, order kept by awaits.

`explain` goes with it: for every step of the model its action, why that name, and the schedule
steps that came of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from racelab import scenario
from racelab.binding import moves, naming, pages
from racelab.binding.document import ANY_TEMPORAL, DEADLOCK, Binding, Property
from racelab.binding.expression import Scene, Undefined
from racelab.binding.timing import Impatient
from racelab.binding.writing import TIMEOUT_MS, Explained, Writer
from racelab.documents import nearest
from racelab.errors import BindingError
from racelab.scenario import Expected, Scenario
from racelab.traces.trace import Trace

PROMPT_TOKENS = 9
NEW_TOKENS = 4
PREFIX = "common"
"""All pages but the last of a prompt are those of every other request, where the model publishes pages."""


@dataclass(frozen=True)
class Converted:
    """The scenario, and the story of its making."""

    scenario: Scenario
    explain: tuple[Explained, ...]


def convert(trace: Trace, binding: Binding, source: Path | None = None) -> Converted:
    """The scenario that forces the trace's schedule.

    Raises:
        BindingError: the trace shows no violation, or a step has no name, two names, no meaning,
            or a place in time that the engine cannot give it.
    """
    prop = _property(trace, binding)
    steps = naming.name_steps(trace, binding, source)
    course = moves.course(trace, binding, steps)
    if not course.moves:
        raise BindingError(
            "no step of the trace does anything that a schedule can force", file=trace.file, line=trace.line
        )
    held_pages = pages.follow(course, binding, _pool(trace, binding))
    if held_pages is None:
        raise BindingError(
            "the model's allocator reuses pages in an order that a LIFO allocator cannot follow",
            file=trace.file,
            line=trace.line,
            next="let the model take the page that was freed last",
        )
    patience: dict[str, int] = {}
    for _ in course.moves:
        writer = Writer(trace, binding, course, held_pages, patience)
        try:
            explained = [writer.step(step) for step in steps]
        except Impatient as impatient:
            patience[impatient.request] = patience.get(impatient.request, 0) + 2 * TIMEOUT_MS
        else:
            return Converted(_scenario(trace, binding, prop, writer), tuple(explained))
    raise AssertionError("one client more is patient each time, and there are no more clients than moves")


def _property(trace: Trace, binding: Binding) -> Property:
    if trace.kind == "none":
        raise BindingError(
            f"{trace.checker} found no violation: the trace is an example of a correct run",
            file=trace.file,
            line=trace.line,
            next="give a trace of a violated property",
        )
    name = trace.property_name or {"temporal": ANY_TEMPORAL, "deadlock": DEADLOCK}.get(trace.kind)
    if name is None and len(binding.properties) == 1:
        (name,) = binding.properties
    if name is None:  # the format does not say: any specification that is violated will do
        return Property(spec=None, expected={"eager": "moved"})
    if name not in binding.properties:
        known = list(binding.properties)
        raise BindingError(
            f"the violated property is {name!r}, which binding {binding.name} does not know{nearest(name, known)}",
            file=trace.file,
            line=trace.line,
            next=f"add it under 'properties' with the specification that it breaks, in {binding.file}",
        )
    return binding.properties[name]


def _pool(trace: Trace, binding: Binding) -> int:
    """How many pages the model has."""
    if binding.pool is None or not trace.steps:
        return 1
    plain = {variable.rsplit("::", 1)[-1]: value for variable, value in trace.steps[0].state.items()}
    try:
        value = binding.pool.value(Scene({}, plain, {}))
    except Undefined:
        return 1
    return len(value) if isinstance(value, tuple | frozenset) else 1


def _scenario(trace: Trace, binding: Binding, prop: Property, writer: Writer) -> Scenario:
    path = Path(trace.file)
    module = trace.modules[0] if trace.modules else "the model"
    publishes = writer.publishes
    requests: dict[str, scenario.Request] = {}
    for attempt, taken in writer.course.pages.items():
        shared = max(0, len(taken) + writer.course.found[attempt] - 1) * writer.lab.page_tokens
        requests[attempt.request] = scenario.Request(
            prompt_tokens=shared + PROMPT_TOKENS,
            new_tokens=NEW_TOKENS,
            prefix=PREFIX if publishes and shared else None,
            prefix_tokens=shared if publishes else 0,
            timeout_ms=writer.patience.get(attempt.request),
        )
    expected: dict[str, Expected] = {
        "eager": "reproduced",
        "ledger": "prevented" if writer.guard and not writer.setting.is_duty else "not-reproduced",
    }
    return Scenario(
        scenario=re.sub(r"[^a-z0-9]+", "-", path.name.split(".")[0].lower()).strip("-") or "counterexample",
        about=f"{trace.checker} found {_violation(trace)} in {module}, {len(trace.steps) - 1} steps long.",
        spec=prop.spec,
        guard=writer.guard,
        victim=writer.victim,
        origin=scenario.Origin(
            trace=path.name, module=module, property=trace.property_name or trace.kind, binding=binding.name
        ),
        lab=msgspec.structs.replace(writer.lab, prefix_cache=publishes, **writer.setting.lab),
        finality_ms=writer.setting.finality_ms if prop.spec == "finality" else None,
        requests=requests,
        steps=writer.steps,
        expected=expected | prop.expected,
    )


def _violation(trace: Trace) -> str:
    if trace.kind == "deadlock":
        return "a deadlock"
    if trace.kind == "temporal" and trace.property_name is None:
        return "a violation of a temporal property"
    return f"a violation of {trace.property_name or 'a property that it does not name'}"


__all__ = ["Converted", "Explained", "convert"]

"""A scenario file read: every problem in it is listed with its line.

Each step is a mapping with one verb (racelab.scenario.steps), or `repeat` with a list of steps that come several
times (racelab.scenario.repeats).
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any, Protocol

import msgspec

from racelab import documents
from racelab.instances import INSTANCES_MAX, ROLES
from racelab.races import RACES
from racelab.scenario import lab as labs
from racelab.scenario import matches, repeats
from racelab.scenario.lab import RANKS, Lab
from racelab.scenario.process_steps import Condition
from racelab.scenario.request import Request, of_sizes, pages_needed
from racelab.scenario.scenario import PROBE, Origin, Scenario
from racelab.scenario.step_problems import of_instances, of_processes, problems
from racelab.scenario.steps import VERBS, Abort, Armed, Await, Expect, Retry, Step, Submit


class Surroundings(Protocol):
    """What a scenario names and does not have itself: the guards and policies of a target, what its gates can do."""

    def check(self, document: documents.Document, data: dict[str, Any], lab: Lab, steps: list[Placed]) -> None:
        """Note in the document what is not there."""


def load(path: str | Path) -> Scenario:
    """Read a scenario file.

    Raises:
        DocumentError: with every unknown key, missing key, wrong value and dangling name in it.
    """
    return build(documents.read(path))


def loads(text: str, file: str = "<scenario>") -> Scenario:
    """Read a scenario from text; `file` is what messages call it."""
    return build(documents.parse(text, file))


def build(document: documents.Document, here: Surroundings | None = None) -> Scenario:
    """A checked Scenario from a parsed document; what it names of its surroundings is checked where they are known."""
    data = document.data
    if not isinstance(data, dict):
        document.problem("a scenario is a mapping that starts with 'scenario: NAME'")
        document.finish(next="see docs/scenarios.md")
    head = {key: value for key, value in data.items() if key not in _BUILT}
    head |= {"requests": {}, "steps": []}
    shell = document.build(Scenario, head)
    lab = document.build(Lab, data.get("lab", {}), "lab", partial=True)
    origin = document.build(Origin, data["origin"], "origin") if "origin" in data else None
    requests = _requests(document, data.get("requests"))
    steps = _steps(document, data.get("steps"))
    _check(document, data, lab, requests, steps)
    if here is not None:
        here.check(document, data, lab or Lab(), [placed for placed in steps if not document.is_wrong(*placed[1])])
    document.finish(next="docs/scenarios.md lists every key and step")
    assert shell is not None
    assert lab is not None
    return msgspec.structs.replace(
        shell, lab=lab, origin=origin, requests=requests, steps=[step for step, _ in steps if step is not None]
    )


_BUILT = ("lab", "origin", "requests", "steps")


def _requests(document: documents.Document, data: Any) -> dict[str, Request]:
    if data is None:
        document.problem("missing key 'requests'")
        return {}
    if not isinstance(data, dict) or not data:
        document.problem("requests: a mapping from name to sizes, such as 'r1: {prompt-tokens: 25}'", "requests")
        return {}
    built: dict[str, Request] = {}
    for name, value, key in repeats.requests(document, data):
        request = document.build(Request, value or {}, "requests", key, partial=True)
        if name in built:
            document.problem(f"there is a request {name!r} already", "requests", key)
        if request is not None:
            built[name] = request
    return built


Placed = tuple[Step | None, documents.Place]
"""A step, or None where it cannot be read, and where it stands."""


def _steps(document: documents.Document, data: Any) -> list[Placed]:
    if not isinstance(data, list) or not data:
        document.problem("steps: a list of at least one step, such as '- submit: r1'", "steps")
        return []
    return [_step(document, item, place) for item, place in repeats.steps(document, data)]


def _words(data: Any) -> set[str]:
    """Every word in a step that cannot be read: perhaps the request or the hold that a later one speaks of."""
    if isinstance(data, dict | list):
        return {word for item in (data.values() if isinstance(data, dict) else data) for word in _words(item)}
    return {data} if isinstance(data, str) else set()


def _step(document: documents.Document, item: Any, place: documents.Place) -> Placed:
    if not isinstance(item, dict) or len(item) != 1:
        document.problem(f"a step is a mapping with one verb of {', '.join([*VERBS, repeats.REPEAT])}", *place)
        return None, place
    word, value = next(iter(item.items()))
    place = (*place, word)
    kind = VERBS.get(word)
    if kind is None:
        near = documents.nearest(word, [*VERBS, repeats.REPEAT])
        document.problem(f"unknown step {word!r}{near}", *place)
        return None, place
    if not isinstance(value, dict):
        value = {msgspec.structs.fields(kind)[0].encode_name: value}
    if not issubclass(kind, Armed):
        return document.build(kind, value, *place, partial=True), place
    nested = matches.read(document, value, place)
    step = document.build(kind, matches.rest(value), *place, partial=True, more=matches.OWN_KEYS)
    return msgspec.structs.replace(step, **nested) if step is not None and nested else step, place


def _check(
    document: documents.Document,
    data: dict[str, Any],
    lab: Lab | None,
    requests: dict[str, Request],
    steps: list[Placed],
) -> None:
    """Names that dangle and sizes that cannot be."""
    _check_steps(document, lab, requests if "requests" in data else None, steps)
    bound_ms = data.get("finality-ms")
    if isinstance(bound_ms, int) and bound_ms < 1:
        document.problem("finality-ms must be at least 1", "finality-ms")
    if PROBE in requests:
        document.problem(f"the name {PROBE!r} is kept for the request that follows the drain", "requests", PROBE)
    race = data.get("race")
    if isinstance(race, str) and race not in RACES:
        document.problem(f"no class of races {race!r}{documents.nearest(str(race), list(RACES))}", "race")
    victim = data.get("victim")
    if isinstance(victim, str) and victim not in requests and "requests" in data:
        document.problem(f"no request {victim!r} under requests", "victim")
    if lab is not None:
        _check_sizes(document, lab, requests)


def _check_steps(
    document: documents.Document, lab: Lab | None, requests: dict[str, Request] | None, steps: list[Placed]
) -> None:
    """Each step after those before it: what it names has to be there, and to be what can be asked for it.

    What follows from a step that cannot be read is not said as well: it may have named whatever a later one names.
    """
    read = [step for step, _ in steps if step is not None]
    holds: dict[str, Armed] = {}
    submitted: set[str] = set()
    unread: set[str] = set()
    condition = Condition(lab.instances if lab is not None else ROLES)
    for step, place in steps:
        if step is None:
            unread |= _words(document.at(*place))
            continue
        wrong = document.is_wrong(*place)
        hold = getattr(step, "hold", None)
        found = [*of_instances(step, condition.instances), *of_processes(step, condition)]
        found += _dangling(step, requests, submitted, holds.keys(), unread)
        found += labs.of_step(step, read, lab) if lab is not None else ()
        found += problems(step, holds.get(hold or "")) if not wrong else ()
        for problem in found:
            document.problem(problem, *place)
        if isinstance(step, Submit):
            submitted.add(step.request)
        if isinstance(step, Armed):
            holds[step.id] = step


def _dangling(
    step: Step, requests: dict[str, Request] | None, submitted: Set[str], holds: Set[str], unread: Set[str]
) -> Iterator[str]:
    """Names in a step of what is not there, or not before it, and of what is there already."""
    for name in _requests_named(step):
        if requests is not None and name not in requests:
            yield f"no request {name!r} under requests{documents.nearest(name, list(requests))}"
    if (
        isinstance(step, Abort | Retry | Await | Expect)
        and step.request in (requests or {}).keys() - submitted - unread
    ):
        yield f"{step.request} is not submitted before this step"
    hold = getattr(step, "hold", None)
    if hold is not None and hold not in holds | unread:
        yield f"no hold {hold!r} before this step"
    if isinstance(step, Armed) and step.id in holds:
        yield f"hold {step.id!r} is armed twice"


def _check_sizes(document: documents.Document, lab: Lab, requests: dict[str, Request]) -> None:
    for name, value in msgspec.structs.asdict(lab).items():
        number = isinstance(value, int) and not isinstance(value, bool)
        if number and value < (name != "control_qos"):
            document.problem(f"{name.replace('_', '-')} must be at least 1", "lab", name.replace("_", "-"))
    for key, count in (("prefills", lab.prefills), ("decodes", lab.decodes)):
        if count > INSTANCES_MAX:
            document.problem(f"{key}: {INSTANCES_MAX} at most", "lab", key)
    if lab.ranks not in RANKS:
        document.problem(f"ranks: one of {', '.join(map(str, RANKS))}, which divide the heads evenly", "lab", "ranks")
    for key, problem in labs.of_lab(lab):
        document.problem(problem, "lab", key)
    if lab.chunk_tokens % max(lab.page_tokens, 1):
        document.problem("chunk-tokens must be a multiple of page-tokens", "lab", "chunk-tokens")
    for name, request in requests.items():
        for problem in of_sizes(request, lab, pages_needed(lab, request)):
            document.problem(problem, "requests", name)


def _requests_named(step: Step) -> list[str]:
    names = [getattr(step, name, None) for name in ("request", "of", "reference_of")]
    if isinstance(step, Armed):
        names.append(getattr(step.match, "request", None))
    return [name for name in names if name is not None and name != PROBE]

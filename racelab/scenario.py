"""The scenario: a schedule that a person can read aloud, the lab it needs, and what is expected.

A scenario file is YAML. Each step is a mapping with one verb (racelab.steps), or `repeat` with a list of
steps that come several times (racelab.repeats).

`load` reads one and lists every problem in it with its line; `dump` writes one that loads equal.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import yaml

from racelab import documents, lab_problems, matches, repeats, request_problems
from racelab.errors import DocumentError
from racelab.instances import INSTANCES_MAX, ROLES, named
from racelab.process_steps import Condition
from racelab.races import RACES
from racelab.step_problems import of_instances, of_processes, problems
from racelab.steps import (
    VERBS,
    Abort,
    Advance,
    Armed,
    Arming,
    Await,
    Delay,
    Drop,
    Duplicate,
    Expect,
    Hold,
    MessageMatch,
    Pass,
    ProcessStep,
    Release,
    Reset,
    Retract,
    Retry,
    Step,
    Submit,
    WorkMatch,
    WriteMatch,
    defaults_of,
    read_aloud,
    verb,
)

SPECIFICATIONS = ("isolation", "integrity", "finality", "conservation")
Specification = Literal["isolation", "integrity", "finality", "conservation"]
VERDICTS = ("reproduced", "moved", "prevented", "not-reproduced", "diverged", "inconclusive")
Expected = Literal["reproduced", "moved", "prevented", "not-reproduced"]

PROBE = "probe"
"""The request that the conductor submits after the drain; no scenario may use the name."""


RANKS = (1, 2, 4, 8)


class Lab(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The shape of the system under test: sizes in pages, tokens and layers, timers in ms.

    The timers are the reference engine's own, on its virtual clock; the defaults are the
    engine's defaults, and a scenario that shortens one is labelled `shortened`.
    """

    prefills: int = 1
    """instances that compute prompts: `prefill`, `prefill-2` ..., each with a pool of its own"""
    decodes: int = 1
    """instances that answer: `decode`, `decode-2` ..., each with a pool of its own"""
    decode_pages: int = 6
    prefill_pages: int = 8
    page_tokens: int = 16
    layers: int = 2
    ranks: int = 1
    """tensor-parallel ranks of each instance: each has some of the heads of every layer, and writes them by itself"""
    chunk_tokens: int = 16
    send: Literal["chunk-wise", "layer-wise"] = "chunk-wise"
    """prefill writes a chunk when all of it is computed, or each layer of it as soon as that layer is"""
    request_timeout_ms: int | None = 10_000
    """how long a client waits; null: for ever"""
    drain_timeout_ms: int = 10_000
    receive_timeout_ms: int = 300_000
    """how long decode waits for a transfer (SGLang: SGLANG_DISAGGREGATION_WAITING_TIMEOUT, 300 s)"""
    source_hold_ms: int = 480_000
    """how long prefill keeps an attempt's source pages for decode (vLLM: VLLM_NIXL_ABORT_REQUEST_TIMEOUT, 480 s)"""
    prefill_token_limit: int | None = None
    """a longer prompt is not accepted by prefill"""
    transfer: Literal["push", "pull"] = "push"
    """prefill writes into decode's pages, or decode reads prefill's"""
    lease_ms: int = 5_000
    """how long prefill keeps source pages to be pulled, from their reference or its last renewal"""
    router: bool = False
    """a router sends each request to prefill and to decode; else decode passes it on"""
    bootstrap_timeout_ms: int = 300_000
    """how long prefill keeps a router's request without decode's pages (SGLang:
    SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT, 300 s)"""
    prefix_cache: bool = False
    """decode keeps the full pages of committed prompts, and a request with the same prefix takes them"""
    metadata_slots: int | None = None
    """decode's metadata slots: prefill writes each request's first token into one"""
    streams: tuple[Literal["scales", "draft"], ...] = ()
    """what travels beside the model's own KV, in blocks of its own (racelab.engine.streams)"""
    preemption: bool = False
    """decode takes pages for a request's answer when a token needs one, and may preempt the youngest for it; else it
    takes them all at once"""
    max_batch: int | None = None
    """how many requests decode answers at a time"""
    zero_fill: bool = False
    """decode clears the pages that a request is given, before they are filled"""
    clock: Literal["virtual", "real"] = "virtual"
    """engine time moves when a step advances it, or by itself"""
    control_qos: Literal[0, 1] = 0
    """MQTT's quality of service for control messages: at 1 a lost acknowledgement leads to a duplicate"""
    news: Literal["bus", "notify"] = "bus"
    """how decode hears that writes have completed: by a control message, or by the transport's own notification"""

    @property
    def instances(self) -> list[str]:
        """Their names."""
        return named("prefill", self.prefills) + named("decode", self.decodes)


class Request(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """One client request. `salt` seeds its prompt, so that equal lengths never mean equal bytes.

    `timeout_ms` is how long this client waits, in place of the lab's request time-out.
    With `prefix` the prompt starts with `prefix_tokens` tokens that depend on that name and the seed
    alone: requests that name the same prefix start alike, and go on each with a tail of its own.
    """

    prompt_tokens: int = 25
    new_tokens: int = 4
    salt: str | None = None
    prefix: str | None = None
    prefix_tokens: int = 0
    timeout_ms: int | None = None
    stop_at: int | None = None
    """the token of this index in the request's solo answer is its stop token"""


class Origin(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The counterexample that a scenario came from."""

    trace: str
    module: str
    property: str
    binding: str


class Scenario(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """One schedule with everything that a run of it needs."""

    scenario: str
    about: str
    spec: Specification | None = None
    guard: str | None = None
    race: str | None = None
    """the class of races that it is of (racelab.races)"""
    victim: str | None = None
    origin: Origin | None = None
    sources: list[str] = []
    lab: Lab = Lab()
    requests: dict[str, Request]
    steps: list[Step]
    finality_ms: int | None = None
    """within which time after the schedule everything has to be over, on the virtual clock"""
    expected: dict[str, Expected] = {}
    """by policy; `ledger less GUARD` where the removal of another guard than its own changes the verdict,
    `POLICY CONTROL` where a control is not clean (racelab.campaign.controls)"""

    def holds(self) -> dict[str, Arming]:
        """Every step that arms a gate, by its id."""
        return {step.id: step for step in self.steps if isinstance(step, Armed)}

    def notifies(self, step: Armed) -> bool:
        """Whether a step is about notifications of the transport, and not about the bus."""
        return step.message is not None and step.message.type == matches.NEWS and self.lab.news == "notify"

    def timeout_ms(self, request: str) -> int | None:
        """How long the client of a request waits, on the virtual clock; None if it does so for ever."""
        own = self.requests[request].timeout_ms if request in self.requests else None
        return self.lab.request_timeout_ms if own is None else own

    @property
    def bound_ms(self) -> int:
        """How long after the schedule everything is over: as stated, or as the timers of this lab have it."""
        if self.finality_ms is not None:
            return self.finality_ms
        waits = [self.lab.request_timeout_ms, *(self.timeout_ms(request) for request in self.requests)]
        patience_ms = max(self.lab.receive_timeout_ms if wait is None else wait for wait in waits)
        return patience_ms + self.lab.drain_timeout_ms + (self.lab.lease_ms if self.lab.transfer == "pull" else 0)

    def process_faults(self) -> dict[str, ProcessStep]:
        """Every step that acts on a process by its id: `stop-prefill`, then `stop-prefill-2`."""
        faults: dict[str, ProcessStep] = {}
        for step in self.steps:
            if isinstance(step, ProcessStep):
                name = f"{verb(step)}-{step.instance}"
                numbered = (f"{name}-{number}" for number in itertools.count(2))
                faults[next(each for each in itertools.chain([name], numbered) if each not in faults)] = step
        return faults

    def corrupted(self, hold: str) -> int | None:
        """Which byte of what is held under `hold` is changed when it is released, if one is."""
        return self._release(hold).corrupt

    def torn(self, hold: str) -> int | None:
        """After how many bytes what is held under `hold` breaks off when it is released, if it does."""
        return self._release(hold).tear

    def reversed(self, hold: str) -> bool:
        """Whether what stops last under `hold` goes first when it is released."""
        return self._release(hold).order == "reversed"

    def _release(self, hold: str) -> Release:
        steps = (step for step in self.steps if isinstance(step, Release) and step.hold == hold)
        return next(steps, Release(hold=hold))


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
    holds: dict[str, Armed] = {}
    submitted: set[str] = set()
    unread: set[str] = set()
    condition = Condition(lab.instances if lab is not None else ROLES)
    for step, place in steps:
        if step is None:
            unread |= _words(document.at(*place))
            continue
        wrong = document.is_wrong(*place)  # what follows from that is not said as well
        for problem in (*of_instances(step, condition.instances), *of_processes(step, condition)):
            document.problem(problem, *place)
        for name in _requests_named(step):
            if name not in requests and "requests" in data:
                document.problem(f"no request {name!r} under requests{documents.nearest(name, list(requests))}", *place)
        if isinstance(step, Submit):
            submitted.add(step.request)
        elif isinstance(step, Abort | Retry | Await | Expect) and step.request in requests.keys() - submitted - unread:
            document.problem(f"{step.request} is not submitted before this step", *place)
        pulls = (isinstance(step, Armed) and step.reads) or getattr(step, "reference_of", None) is not None
        if pulls and lab is not None and lab.transfer != "pull":
            document.problem("nothing is read where prefill pushes: it needs 'lab: {transfer: pull}'", *place)
        if isinstance(step, Submit) and step.transfer_id is not None and lab is not None and lab.transfer == "pull":
            document.problem("a pull goes by its reference and has no transfer id: leave 'transfer-id' out", *place)
        if lab is not None:
            for problem in lab_problems.of_step(step, [other for other, _ in steps if other is not None], lab):
                document.problem(problem, *place)
        if isinstance(step, Retry) and lab is not None and lab.transfer == "pull":
            document.problem("a retry has pages filled by another prefill: it is for labs that push", *place)
        if isinstance(step, Armed):
            if step.id in holds:
                document.problem(f"hold {step.id!r} is armed twice", *place)
            holds[step.id] = step
        named = getattr(step, "hold", None)
        if named is not None and named not in holds and named not in unread:
            document.problem(f"no hold {named!r} before this step", *place)
        for problem in problems(step, holds.get(named or "")) if not wrong else ():
            document.problem(problem, *place)
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
    for key, problem in lab_problems.of_lab(lab):
        document.problem(problem, "lab", key)
    if lab.chunk_tokens % max(lab.page_tokens, 1):
        document.problem("chunk-tokens must be a multiple of page-tokens", "lab", "chunk-tokens")
    for name, request in requests.items():
        for problem in request_problems.of_sizes(request, lab, pages_needed(lab, request)):
            document.problem(problem, "requests", name)


def _requests_named(step: Step) -> list[str]:
    names = [getattr(step, name, None) for name in ("request", "of", "reference_of")]
    if isinstance(step, Armed):
        names.append(getattr(step.match, "request", None))
    return [name for name in names if name is not None and name != PROBE]


def pages_needed(lab: Lab, request: Request) -> int:
    """Pages that a request fills on decode: its prompt and the tokens that decode appends."""
    return -(-(request.prompt_tokens + request.new_tokens) // max(lab.page_tokens, 1))


def dump(scenario: Scenario) -> str:
    """YAML text that `loads` reads back equal; defaults are left out."""
    data: dict[str, Any] = msgspec.to_builtins(scenario)
    data["lab"] = _without_defaults(scenario.lab)
    data["requests"] = {name: _without_defaults(request) for name, request in scenario.requests.items()}
    data["steps"] = [_dump_step(step) for step in scenario.steps]
    kept = {key: value for key, value in data.items() if value not in (None, [], {}) or key in ("requests", "steps")}
    return yaml.safe_dump(kept, sort_keys=False, width=100, default_flow_style=None, allow_unicode=True)


def _dump_step(step: Step) -> dict[str, Any]:
    value = _without_defaults(step)
    for key in ("write", "message", "work"):
        if isinstance(value.get(key), dict):
            value[key] = _without_defaults(getattr(step, key))
    if isinstance(step, Armed):
        value = matches.dump(step, value)
    return {verb(step): value if len(value) != 1 else next(iter(value.values()))}


def _without_defaults(struct: msgspec.Struct) -> dict[str, Any]:
    defaults = defaults_of(type(struct))
    values = msgspec.to_builtins(struct)
    return {key: value for key, value in values.items() if key in defaults and value != defaults[key]}


__all__ = [
    "Abort",
    "Advance",
    "Armed",
    "Arming",
    "Await",
    "Delay",
    "DocumentError",
    "Drop",
    "Duplicate",
    "Expect",
    "Hold",
    "MessageMatch",
    "Pass",
    "Release",
    "Reset",
    "Retract",
    "Retry",
    "Scenario",
    "Step",
    "Submit",
    "WorkMatch",
    "WriteMatch",
    "build",
    "dump",
    "load",
    "loads",
    "pages_needed",
    "read_aloud",
    "verb",
]

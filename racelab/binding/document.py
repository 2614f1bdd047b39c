"""The binding file: which models it fits, how a step's action is found, and what each action means.

`load` reads one and lists every problem with its line, as for a scenario.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from racelab import documents
from racelab.binding import expression, setting
from racelab.binding.expression import Expression
from racelab.binding.setting import Stated
from racelab.evidence.events import KINDS
from racelab.scenario import Expected, Specification
from racelab.transport.messages import TYPES

Meaning = Literal[
    "submit",
    "post",
    "compute",
    "fill",
    "register",
    "land",
    "fail",
    "complete",
    "vanish",
    "deliver",
    "lose",
    "copy",
    "time-out",
    "abort",
    "retract",
    "retry",
    "enter",
    "finish",
    "expire",
    "restart",
    "admit",
    "accept",
    "refer",
    "lapse",
    "expire-source",
    "give-up-offer",
    "land-slot",
    "silent",
]
"""What a model's action is in words of a schedule:

    submit    the client submits the request; decode takes its page
    post      prefill posts the write
    land      the write takes effect, and prefill notifies decode
    fail      the completion of the write is an error; the write is lost, unless it lands all the same
    complete  the transport says that the write has landed; it says so too early if that is still to come
    vanish    a write whose completion was an error, or whose sender has died, is lost
    deliver   the notification arrives; decode commits. With `message` it is another message that arrives
    lose      the notification is lost, or another message
    copy      it arrives, and will once more
    time-out  the request's time runs out
    abort     the client gives up
    retract   decode takes the request's pages back; the next `submit` is its waiting for others, as `attempt`
    retry     another prefill is to serve the request, in the pages that it has: what is named as its next attempt
    enter     the request waited for its turn, and is in decode's batch now
    finish    the request has its answer
    expire    the drain of the request's page runs out
    compute   the queued forward of a chunk runs on prefill
    fill      the queued zeros of the request's pages are written on decode
    register  the queued registration of the request's transfer is made on decode
    admit     decode takes the request's page, where `submit` is a step of its own: in labs that pull or have a router
    accept    prefill takes the request's source pages
    refer     the client gets the reference to them, and can pull
    lapse     the lease of the source pages ends
    expire-source  their drain runs out
    give-up-offer  prefill gives up waiting for decode's pages
    land-slot the write of the request's metadata lands in `slot`
    restart   prefill dies, and another takes its place (`instance` for another process)
    silent    nothing that can be seen from outside
"""
MEANINGS: tuple[str, ...] = get_args(Meaning)

Change = Literal["gains", "loses", "swaps", "changes", "same"]
CHANGES: tuple[str, ...] = get_args(Change)

ANY_TEMPORAL = "temporal"
DEADLOCK = "deadlock"

_ACTION_KEYS = (
    *("also", "means", "not-expressible", "message", "instance", "request", "attempt", "chunk", "rank", "slot"),
    *("reference-of", "shows"),
    *("changes", "when"),
)
INSTANCES = ("prefill", "decode")

NOTIFICATION = "written"
"""The message that `deliver`, `lose` and `copy` are about unless the rule names another."""


class Fits(msgspec.Struct, frozen=True, kw_only=True):
    """A trace fits if all `variables` are in it and, where it names modules, one of `modules` is."""

    modules: list[str]
    variables: list[str] = []


class Property(msgspec.Struct, frozen=True, kw_only=True):
    """What a violated property of the model is in words of racelab.

    `spec` is null if it is none of the four. `expected` overrides, policy by policy, what a
    counterexample is expected to do: `reproduced` under `eager`, and under `ledger` `prevented` if
    a guard refuses one of its steps.
    """

    spec: Specification | None
    expected: dict[str, Expected] = {}


@dataclass(frozen=True)
class Rule:
    """One action of the model.

    `request`, `attempt`, `chunk`, `rank`, `slot` and `reference_of` (whose reference is presented) are alternatives:
    the first that has a value in the step counts. `message` is the type of the message that it is about, `instance`
    the process that restarts. Of `shows` each event is awaited where its expression is a set with something in it.
    `changes` and `when` recognise the action by its effect where nothing names it.
    """

    name: str
    also: tuple[str, ...]
    means: tuple[Meaning, ...]
    not_expressible: str | None
    message: str
    instance: str
    request: tuple[Expression, ...]
    attempt: tuple[Expression, ...]
    chunk: tuple[Expression, ...]
    rank: tuple[Expression, ...]
    slot: tuple[Expression, ...]
    reference_of: tuple[Expression, ...]
    shows: tuple[tuple[str, Expression], ...]
    changes: tuple[tuple[Expression, Change], ...]
    when: tuple[tuple[Expression, tuple[str, ...]], ...]
    line: int


@dataclass(frozen=True)
class Seen:
    """States of a page or request in the model whose beginning is an event, or several, of the engine."""

    state: Expression
    events: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Binding:
    """A checked binding; `parameters` names an action's arguments by position."""

    name: str
    about: str
    file: str
    fits: Fits
    action: tuple[Expression, ...]
    parameters: dict[str, tuple[str, ...]]
    rules: tuple[Rule, ...]
    pool: Expression | None
    taken: Expression | None
    found: Expression | None
    freed: Expression | None
    page: Seen | None
    request: Seen | None
    properties: dict[str, Property]
    sent: Expression | None = None
    """the messages that a step sends: records with `type`, `request` and `attempt`"""
    setting: Stated = field(default_factory=Stated)

    def rule(self, name: str) -> Rule | None:
        """The rule for what a trace calls an action; `a::b::Name` and `Inst!Name` are `Name`."""
        plain = name.replace("!", "::").rsplit("::", 1)[-1]
        return next((rule for rule in self.rules if plain == rule.name or plain in rule.also), None)


def load(path: str | Path) -> Binding:
    """Read a binding file.

    Raises:
        DocumentError: with every unknown key, missing key and malformed expression in it.
    """
    document = documents.read(path)
    if not isinstance(document.data, dict):
        document.problem("a binding is a mapping that starts with 'binding: NAME'")
        document.finish(next="see docs/bindings.md")
    return _Builder(document).build()


class _Builder:
    KEYS = (
        *("binding", "about", "fits", "setting", "action", "parameters", "actions", "messages", "pages", "requests"),
        "properties",
    )

    def __init__(self, document: documents.Document) -> None:
        self.document = document
        self.data: dict[str, Any] = document.data

    def build(self) -> Binding:
        self.known(self.data, self.KEYS)
        for key in ("binding", "fits", "actions", "properties"):
            if key not in self.data:
                self.document.problem(f"missing key {key!r}")
        fits = self.document.build(Fits, self.data.get("fits", {"modules": []}), "fits")
        pages = self.mapping("pages")
        self.known(pages, ("pool", "taken", "found", "freed", "state", "events"), "pages")
        requests = self.mapping("requests")
        self.known(requests, ("state", "events"), "requests")
        messages = self.mapping("messages")
        self.known(messages, ("sent",), "messages")
        stated = self.document.build(Stated, self.data.get("setting", {}), "setting") or Stated()
        setting.check(self.document, stated)
        binding = Binding(
            name=str(self.data.get("binding")),
            about=str(self.data.get("about", "")).strip(),
            file=self.document.file,
            fits=fits or Fits(modules=[]),
            action=self.expressions(self.data, "action"),
            parameters=self.parameters(),
            rules=tuple(self.rule(name, value) for name, value in self.mapping("actions").items()),
            pool=self.one(pages, "pool", "pages"),
            taken=self.one(pages, "taken", "pages"),
            found=self.one(pages, "found", "pages"),
            freed=self.one(pages, "freed", "pages"),
            page=self.seen(pages, "pages"),
            request=self.seen(requests, "requests"),
            properties=self.properties(),
            sent=self.one(messages, "sent", "messages"),
            setting=stated,
        )
        self.twice(binding.rules)
        self.document.finish(next="docs/bindings.md shows every key with an example")
        return binding

    def known(self, data: dict[str, Any], keys: tuple[str, ...], *place: str) -> None:
        for key in data:
            if key not in keys:
                self.document.problem(f"unknown key {key!r}{documents.nearest(str(key), list(keys))}", *place, key)

    def mapping(self, key: str) -> dict[str, Any]:
        value = self.data.get(key, {})
        if isinstance(value, dict):
            return value
        self.document.problem(f"{key}: expected a mapping", key)
        return {}

    def parameters(self) -> dict[str, tuple[str, ...]]:
        found = self.mapping("parameters")
        return {name: self.words(found, name, "parameters") for name in found}

    def rule(self, name: str, value: Any) -> Rule:
        place = ("actions", name)
        if isinstance(value, str | list):
            value = {"means": value}
        if not isinstance(value, dict):
            self.document.problem("an action takes 'means' and where its request is found", *place)
            value = {"means": "silent"}
        self.known(value, _ACTION_KEYS, *place)
        means = self.words(value, "means", *place)
        for word in means:
            if word not in MEANINGS:
                near = documents.nearest(word, list(MEANINGS))
                self.document.problem(f"unknown meaning {word!r}{near}", *place, "means")
        reason = value.get("not-expressible")
        if not means and not reason:
            self.document.problem("missing key 'means' (or 'not-expressible' with the reason)", *place)
        rule = Rule(
            name=name,
            also=self.words(value, "also", *place),
            means=means,  # type: ignore[arg-type]  # checked just above
            not_expressible=str(reason) if reason else None,
            message=self.message(value, *place),
            instance=self.instance(value, *place),
            request=self.expressions(value, "request", *place),
            attempt=self.expressions(value, "attempt", *place),
            chunk=self.expressions(value, "chunk", *place),
            rank=self.expressions(value, "rank", *place),
            slot=self.expressions(value, "slot", *place),
            reference_of=self.expressions(value, "reference-of", *place),
            shows=self.shows(value, *place),
            changes=self.changes(value, *place),
            when=self.when(value, *place),
            line=self.document.line(*place),
        )
        if set(means) - {"silent", "restart"} and not rule.request:
            self.document.problem("missing key 'request': an expression for the request that it is about", *place)
        return rule

    def message(self, value: dict[str, Any], *place: str) -> str:
        (found,) = self.words(value, "message", *place)[:1] or (NOTIFICATION,)
        if found not in TYPES:
            self.document.problem(
                f"unknown message {found!r}{documents.nearest(found, list(TYPES))}", *place, "message"
            )
        return found

    def instance(self, value: dict[str, Any], *place: str) -> str:
        (found,) = self.words(value, "instance", *place)[:1] or INSTANCES[:1]
        if found not in INSTANCES:
            self.document.problem(f"instance: one of {', '.join(INSTANCES)}", *place, "instance")
        return found

    def shows(self, value: dict[str, Any], *place: str) -> tuple[tuple[str, Expression], ...]:
        found = self.inner(value, "shows", *place, what="an event")
        for kind in found:
            self.event(kind, *place, "shows", kind)
        parsed = {kind: self.expression(str(text), *place, "shows", kind) for kind, text in found.items()}
        return tuple((kind, one) for kind, one in parsed.items() if one is not None)

    def event(self, kind: str, *place: str) -> None:
        if kind not in KINDS:
            self.document.problem(f"unknown event {kind!r}{documents.nearest(kind, list(KINDS))}", *place)

    def changes(self, value: dict[str, Any], *place: str) -> tuple[tuple[Expression, Change], ...]:
        found = []
        for text, change in self.inner(value, "changes", *place).items():
            if change not in CHANGES:
                self.document.problem(f"{text}: one of {', '.join(CHANGES)}", *place, "changes", text)
            parsed = self.expression(text, *place, "changes", text)
            if parsed is not None:
                found.append((parsed, change))
        return tuple(found)

    def when(self, value: dict[str, Any], *place: str) -> tuple[tuple[Expression, tuple[str, ...]], ...]:
        conditions = self.inner(value, "when", *place)
        parsed = {text: self.expression(text, *place, "when", text) for text in conditions}
        return tuple(
            (found, self.words(conditions, text, *place, "when")) for text, found in parsed.items() if found is not None
        )

    def inner(self, value: dict[str, Any], key: str, *place: str, what: str = "an expression") -> dict[str, Any]:
        found = value.get(key, {})
        if isinstance(found, dict):
            return found
        self.document.problem(f"{key}: expected a mapping from {what}", *place, key)
        return {}

    def seen(self, value: dict[str, Any], place: str) -> Seen | None:
        state = self.one(value, "state", place)
        events = self.inner(value, "events", place)
        if state is None:
            return None
        found = {model: self.words(events, model, place, "events") for model in events}
        for model, kinds in found.items():
            for kind in kinds:
                self.event(kind, place, "events", model)
        return Seen(state, found)

    def properties(self) -> dict[str, Property]:
        found = {}
        for name, value in self.mapping("properties").items():
            data = {"spec": value} if isinstance(value, str) else value
            built = self.document.build(Property, data, "properties", name)
            if built is not None:
                found[name] = built
        return found

    def words(self, value: dict[str, Any], key: str, *place: str) -> tuple[str, ...]:
        """One word or a list of them."""
        found = value.get(key, [])
        found = found if isinstance(found, list) else [found]
        if any(isinstance(item, dict | list) for item in found):
            self.document.problem(f"{key}: one word or a list of words", *place, key)
            return ()
        return tuple({True: "TRUE", False: "FALSE"}[item] if isinstance(item, bool) else str(item) for item in found)

    def one(self, value: dict[str, Any], key: str, *place: str) -> Expression | None:
        return self.expression(str(value[key]), *place, key) if key in value else None

    def expressions(self, value: dict[str, Any], key: str, *place: str) -> tuple[Expression, ...]:
        parsed = [self.expression(text, *place, key) for text in self.words(value, key, *place)]
        return tuple(found for found in parsed if found is not None)

    def expression(self, text: str, *place: str) -> Expression | None:
        try:
            return expression.parse(text)
        except expression.Malformed as error:
            self.document.problem(str(error), *place)
            return None

    def twice(self, rules: tuple[Rule, ...]) -> None:
        seen: set[str] = set()
        for rule in rules:
            for name in (rule.name, *rule.also):
                if name in seen:
                    self.document.problem(f"{name!r} names two actions", "actions", rule.name)
                seen.add(name)


__all__ = ["CHANGES", "MEANINGS", "Binding", "Fits", "Meaning", "Property", "Rule", "Seen", "load"]

"""Which action of the binding each step of a trace is, and why that one.

In this order: a variable that the binding designates; the header's name (with `mbt::actionTaken`
among them, which a reader puts there); the source text at the header's location; the difference
of the states. Where two candidates are left, both are shown and nothing is guessed.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from racelab.binding.document import Binding, Change, Rule
from racelab.binding.expression import Expression, Scene, Undefined, word
from racelab.errors import BindingError
from racelab.traces.trace import Action, Location, State, Trace
from racelab.traces.values import Value, show


@dataclass(frozen=True)
class Named:
    """One step with its name: `number` is that of the state it leads to, counted from 1."""

    number: int
    rule: Rule
    why: str
    scene: Scene
    line: int

    def first(self, alternatives: tuple[Expression, ...]) -> Value | None:
        """The first alternative that has a value, if any has."""
        for alternative in alternatives:
            try:
                return alternative.value(self.scene)
            except Undefined:
                continue
        return None


def name_steps(trace: Trace, binding: Binding, source: Path | None = None) -> list[Named]:
    """The action of every step.

    Raises:
        BindingError: a step has no name, or two; it shows what was tried.
    """
    namer = _Namer(trace, binding, source)
    return [namer.name(index) for index in range(1, len(trace.steps))]


class _Namer:
    def __init__(self, trace: Trace, binding: Binding, source: Path | None) -> None:
        self.trace = trace
        self.binding = binding
        self.source = source

    def name(self, index: int) -> Named:
        step = self.trace.steps[index]
        before, after = self.plain(self.trace.steps[index - 1].state), self.plain(step.state)
        action = step.action or Action()
        tried: list[str] = []

        def named(rule: Rule, why: str) -> Named:
            return Named(index + 1, rule, why, Scene(before, after, self.parameters(rule, action)), step.line)

        for designated in self.binding.action:
            try:
                value = word(designated.value(Scene(before, after, {})))
            except Undefined as undefined:
                tried.append(f"variable {designated.text}: {undefined}")
                continue
            rule = self.binding.rule(value)
            if rule is not None:
                return named(rule, f"{designated.text} says {value}")
            tried.append(f"variable {designated.text} says {value!r}, which the binding does not know")
        if action.name is not None:
            rule = self.binding.rule(action.name)
            if rule is not None:
                return named(rule, f"the trace says {_called(action)}")
            tried.append(f"the trace says {action.name!r}, which the binding does not know")
        candidates = self.by_source(action.location, tried)
        if len(candidates) == 1:
            return named(candidates[0], f"the source at {action.location} calls it")
        rules = candidates or list(self.binding.rules)
        fitting = [rule for rule in rules if _differs(rule, Scene(before, after, self.parameters(rule, action)))]
        if len(fitting) == 1:
            return named(fitting[0], "only its changes are those of the state")
        raise self.undecided(index, fitting, tried)

    def plain(self, state: State) -> State:
        """The state under the binding's names: Quint prefixes a variable with its instances."""
        return {variable.rsplit("::", 1)[-1]: value for variable, value in state.items()}

    def parameters(self, rule: Rule, action: Action) -> dict[str, Value]:
        """The action's arguments by name; a binding names those that come by position."""
        names = self.binding.parameters.get(rule.name, ())
        return {**dict(zip(names, action.args, strict=False)), **action.parameters}

    def by_source(self, location: Location | None, tried: list[str]) -> list[Rule]:
        """The binding's actions that the module's text at the location calls."""
        if location is None:
            return []
        if self.source is None:
            tried.append(f"the source at {location}: not given (--source DIR)")
            return []
        text = _source_text(self.source, location)
        if text is None:
            tried.append(f"the source at {location}: no such lines in {location.module}.tla")
            return []
        rules = [rule for rule in self.binding.rules if re.search(rf"(?<!\w){re.escape(rule.name)}(?!\w)", text)]
        if len(rules) != 1:
            called = " and ".join(rule.name for rule in rules) or "no action that the binding knows"
            tried.append(f"the source at {location} calls {called}")
        return rules

    def undecided(self, index: int, fitting: list[Rule], tried: list[str]) -> BindingError:
        step = self.trace.steps[index]
        shown = "".join(f"\n  tried: {attempt}" for attempt in tried)
        if fitting:
            names = " or ".join(f"{rule.name} ({Path(self.binding.file).name}:{rule.line})" for rule in fitting)
            what = f"step {index} to state {index + 1} could be {names}: the state changes as both say{shown}"
        else:
            before = self.trace.steps[index - 1].state
            changed = ", ".join(key for key in step.state if step.state[key] != before.get(key)) or "nothing"
            what = f"step {index} to state {index + 1} is no action of binding {self.binding.name} (changed: {changed})"
            what += f"{shown}\n  tried: the changes of every action in the binding"
        hint = "give --source DIR with the model" if self.source is None and step.action else "mend the binding"
        return BindingError(what, file=self.trace.file, line=step.line, next=f"{hint}; see docs/bindings.md")


def _called(action: Action) -> str:
    if action.args:
        return f"{action.name}({', '.join(map(show, action.args))})"
    return str(action.name)


def _source_text(source: Path, location: Location) -> str | None:
    """The module's text from the location's begin to its end."""
    try:
        text = (source / f"{location.module}.tla").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    lines = text.splitlines()[location.begin_line - 1 : location.end_line]
    if len(lines) != location.end_line - location.begin_line + 1:
        return None
    lines[-1] = lines[-1][: location.end_column]
    lines[0] = lines[0][location.begin_column - 1 :]
    return "\n".join(lines)


def _differs(rule: Rule, scene: Scene) -> bool:
    """Whether the state changed as the rule says; a rule without `changes` is never guessed."""
    if not rule.changes:
        return False
    for alternative in rule.request:
        try:
            scene = scene.named(this=alternative.value(scene))
            break
        except Undefined:
            continue
    try:
        return all(_change(expression, scene, change) for expression, change in rule.changes) and all(
            word(expression.value(scene)) in words for expression, words in rule.when
        )
    except Undefined:
        return False


def _change(expression: Expression, scene: Scene, change: Change) -> bool:
    before = expression.value(Scene({}, scene.before, {}))
    after = expression.value(Scene(scene.before, scene.after, {}))
    if change in ("same", "changes"):
        return (before == after) == (change == "same")
    if not isinstance(before, tuple | frozenset) or not isinstance(after, tuple | frozenset):
        return False
    came = (Counter(after) - Counter(before)).total()
    went = (Counter(before) - Counter(after)).total()
    return (came, went) == {"gains": (1, 0), "loses": (0, 1), "swaps": (1, 1)}[change]


__all__ = ["Named", "name_steps"]

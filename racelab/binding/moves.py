"""From named steps to moves: what each step means for which attempt of which request.

A write lives from its submit to its landing, a notification from the landing to its delivery or
loss. What ends later than the next thing that happens to anybody else is held meanwhile; what the
trace never ends is held if anything follows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from racelab.binding.document import Binding, Meaning
from racelab.binding.expression import Expression, Undefined, word
from racelab.binding.naming import Named
from racelab.errors import BindingError
from racelab.scenario import PROBE
from racelab.traces.trace import Trace
from racelab.traces.values import Value


@dataclass(frozen=True)
class Attempt:
    """One attempt of one request, counted from 1."""

    request: str
    number: int

    def __str__(self) -> str:
        return self.request if self.number == 1 else f"{self.request}-attempt-{self.number}"


@dataclass(frozen=True)
class Move:
    """One meaning of one step; `at` counts moves in the order of the trace."""

    at: int
    means: Meaning
    attempt: Attempt
    chunk: int
    step: Named


@dataclass
class Span:
    """A write or a notification in the network: the moves that begin and end it."""

    attempt: Attempt
    chunk: int
    begin: Move
    end: Move | None = None
    lost: bool = False
    held: bool = False


@dataclass
class Course:
    """The whole trace as moves."""

    steps: list[Named]
    moves: list[Move] = field(default_factory=list)
    writes: dict[tuple[Attempt, int], Span] = field(default_factory=dict)
    notes: dict[tuple[Attempt, int], Span] = field(default_factory=dict)
    pages: dict[Attempt, frozenset[Value]] = field(default_factory=dict)
    """the model's pages that each attempt takes"""
    found: dict[Attempt, int] = field(default_factory=dict)
    """how many pages each attempt has from the prefix cache instead"""

    def of_step(self, step: Named) -> list[Move]:
        """The moves of one step."""
        return [move for move in self.moves if move.step is step]

    def size(self, attempt: Attempt) -> int:
        """How many pages an attempt takes: one if the model does not say."""
        return len(self.pages[attempt]) or int(not self.found[attempt])

    def attempts(self, request: str) -> int:
        """How often the request is submitted."""
        return sum(attempt.request == request for attempt in self.pages)


def course(trace: Trace, binding: Binding, steps: list[Named]) -> Course:
    """The moves of a trace and what they begin and end.

    Raises:
        BindingError: a step's request is not to be found, or a landing has no write, and so on.
    """
    found = Course(steps)
    tracker = _Tracker(trace, binding, found)
    for step in steps:
        if step.rule.not_expressible:
            raise tracker.error(step, f"cannot be a schedule step: {step.rule.not_expressible}")
        for means in step.rule.means:
            if means != "silent":
                tracker.add(step, means)
    models_notes = any({"deliver", "lose"} & set(rule.means) for rule in binding.rules)
    for span in found.writes.values():
        span.held = _interrupted(span, found.moves)
    for span in found.notes.values():
        span.held = models_notes and (span.lost or _interrupted(span, found.moves))
    return found


def _interrupted(span: Span, moves: list[Move]) -> bool:
    """Whether anything but the attempt's own progress happens while it is in the network."""
    end = span.end.at if span.end else len(moves)
    own = ("submit", "post", "land")
    between = moves[span.begin.at + 1 : end]
    return any(move.attempt != span.attempt or move.means not in own for move in between)


class _Tracker:
    def __init__(self, trace: Trace, binding: Binding, found: Course) -> None:
        self.trace = trace
        self.binding = binding
        self.found = found
        self.live: dict[str, Attempt] = {}

    def add(self, step: Named, means: Meaning) -> None:
        request = self.request(step)
        if means == "submit":
            earlier = self.live.get(request)
            self.live[request] = Attempt(request, earlier.number + 1 if earlier else 1)
        attempt = self.live.get(request)
        if attempt is None:
            raise self.error(step, f"{means} of {request}, which no step has submitted")
        chunk = self.number(step, step.rule.chunk, "chunk", 0)
        if means in ("land", "deliver", "lose"):
            attempt = self.owner(step, means, attempt, chunk)
        move = Move(len(self.found.moves), means, attempt, chunk, step)
        self.found.moves.append(move)
        if means == "submit":
            self.found.pages[attempt] = self.taken(step)
            self.found.found[attempt] = self.from_cache(step)
        self.follow(move)

    def follow(self, move: Move) -> None:
        """Begin and end the writes and notifications that the move is about."""
        key = (move.attempt, move.chunk)
        if move.means == "submit":
            for chunk in range(self.found.size(move.attempt)):
                self.found.writes[move.attempt, chunk] = Span(move.attempt, chunk, move)
        elif move.means == "land":
            self.found.writes[key].end = move
            self.found.notes[key] = Span(*key, move)
        elif move.means in ("deliver", "lose"):
            self.found.notes[key].end = move
            self.found.notes[key].lost = move.means == "lose"

    def owner(self, step: Named, means: Meaning, newest: Attempt, chunk: int) -> Attempt:
        """The attempt whose write or notification it is: the one named, or the oldest that has one."""
        spans = self.found.writes if means == "land" else self.found.notes
        what = "write" if means == "land" else "notification"
        named = self.number(step, step.rule.attempt, "attempt", 1) if step.rule.attempt else None
        for number in [named] if named else range(1, newest.number + 1):
            attempt = Attempt(newest.request, number)
            span = spans.get((attempt, chunk))
            if span is not None and span.end is None:
                return attempt
        raise self.error(step, f"{means} of {newest.request}, but no {what} of it is in the network")

    def request(self, step: Named) -> str:
        value = step.first(step.rule.request)
        if value is None:
            tried = []
            for alternative in step.rule.request:
                try:
                    alternative.value(step.scene)
                except Undefined as undefined:
                    tried.append(f"\n  tried: {alternative.text}: {undefined}")
            raise self.error(step, f"the request of {step.rule.name} is not to be found{''.join(tried)}")
        name = f"r{value}" if type(value) is int else word(value)
        return f"{name}-of-the-model" if name == PROBE else name

    def number(self, step: Named, alternatives: tuple[Expression, ...], what: str, otherwise: int) -> int:
        if not alternatives:
            return otherwise
        value = step.first(alternatives)
        if type(value) is not int or value < otherwise:
            raise self.error(step, f"{what}: expected a number from {otherwise} on, found {value!r}")
        return value

    def taken(self, step: Named) -> frozenset[Value]:
        """The model's pages that the request took in this step."""
        if self.binding.taken is None:
            return frozenset()
        try:
            pages = self.binding.taken.value(step.scene.named(this=_value_of(step)))
        except Undefined:
            return frozenset()
        return frozenset(pages) if isinstance(pages, tuple | frozenset) else frozenset({pages})

    def from_cache(self, step: Named) -> int:
        """How many pages the request had from the prefix cache in this step."""
        if self.binding.found is None:
            return 0
        try:
            found = self.binding.found.value(step.scene.named(this=_value_of(step)))
        except Undefined:
            return 0
        return found if type(found) is int else 0

    def error(self, step: Named, what: str) -> BindingError:
        return BindingError(
            f"step {step.number - 1} ({step.rule.name}): {what}",
            file=self.trace.file,
            line=step.line,
            next=f"see actions.{step.rule.name} in {self.binding.file}",
        )


def _value_of(step: Named) -> Value:
    value = step.first(step.rule.request)
    assert value is not None
    return value


__all__ = ["Attempt", "Course", "Move", "Span", "course"]

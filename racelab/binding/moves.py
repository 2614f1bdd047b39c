"""From named steps to moves: what each step means for which attempt of which request.

A write lives from its submit to its landing, a notification from the landing to its delivery or
loss. What ends later than the next thing that happens to anybody else is held meanwhile; what the
trace never ends is held if anything follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from racelab.binding import setting
from racelab.binding.document import NOTIFICATION, Binding, Meaning
from racelab.binding.expression import Expression, Undefined, word
from racelab.binding.naming import Named
from racelab.errors import BindingError
from racelab.scenario import PROBE
from racelab.traces.trace import Trace
from racelab.traces.values import Value

KV = "kv"
"""The model's own stream, beside others."""


@dataclass(frozen=True)
class Attempt:
    """One attempt of one request, counted from 1. What befalls a process is of its name and the number 0."""

    request: str
    number: int

    def __str__(self) -> str:
        return self.request if self.number < 2 else f"{self.request}-attempt-{self.number}"


class Part(NamedTuple):
    """What an attempt's writes of one chunk are, or one rank's share of them."""

    attempt: Attempt
    chunk: int
    rank: int


@dataclass(frozen=True)
class Move:
    """One meaning of one step; `at` counts moves in the order of the trace."""

    at: int
    means: Meaning
    attempt: Attempt
    chunk: int
    step: Named
    rank: int = 0

    @property
    def part(self) -> Part:
        """The writes that it is about."""
        return Part(self.attempt, self.chunk, self.rank)


@dataclass
class Span:
    """A write or a message in the network, or queued local work: the moves that begin and end it.

    A message that is `copied` arrives twice: `first` is the first time, and `end` the second. Of a write `early` is
    the move at which its success is told before it lands, `failed` that of its completion with an error.
    """

    attempt: Attempt
    chunk: int
    begin: Move
    end: Move | None = None
    lost: bool = False
    first: Move | None = None
    early: Move | None = None
    failed: Move | None = None
    held: bool = False
    rank: int = 0
    sent: int = 0
    """the step that sends a message, where the model shows it"""

    @property
    def copied(self) -> bool:
        """Whether it arrives twice."""
        return self.first is not None

    @property
    def never_arrives(self) -> bool:
        """Whether it is lost, and no copy of it came."""
        return self.lost and not self.copied

    @property
    def is_ghost(self) -> bool:
        """Whether a write lands although its completion was an error."""
        return self.failed is not None and self.end is not None and not self.lost


@dataclass
class Course:
    """The whole trace as moves."""

    steps: list[Named]
    ranks: int = 1
    streams: tuple[str, ...] = ()
    """what travels beside the KV: the last of the ranks"""
    moves: list[Move] = field(default_factory=list)
    writes: dict[Part, Span] = field(default_factory=dict)
    notes: dict[Part, Span] = field(default_factory=dict)
    messages: dict[tuple[Attempt, str], Span] = field(default_factory=dict)
    """other messages than notifications, by type"""
    forwards: dict[tuple[Attempt, int], Span] = field(default_factory=dict)
    """queued forwards of chunks, where the model has them"""
    fills: dict[Attempt, Span] = field(default_factory=dict)
    """queued zeros of an attempt's pages, where the model has them"""
    answers: dict[Attempt, Span] = field(default_factory=dict)
    """what is computed of an attempt's answer, where the model has a batch that can be full"""
    slots: dict[Attempt, Span] = field(default_factory=dict)
    """writes of an attempt's metadata, where the model has slots; `chunk` is the slot"""
    pulls: bool = False
    """decode reads the pages itself"""
    routed: bool = False
    """a router takes requests to both sides"""
    apart: bool = False
    """a request is submitted in one step, and admitted by decode in another"""
    rooms: dict[str, str] = field(default_factory=dict)
    """the transfer ids of requests"""
    registrations: dict[Attempt, Span] = field(default_factory=dict)
    """queued registrations of an attempt's transfer, where the model has them"""
    pages: dict[Attempt, frozenset[Value]] = field(default_factory=dict)
    """the model's pages that each attempt takes"""
    found: dict[Attempt, int] = field(default_factory=dict)
    """how many pages each attempt has from the prefix cache instead"""
    retried: set[Attempt] = field(default_factory=set)
    """those with which another prefill takes over: for the system they are the attempt before"""

    def of_step(self, step: Named) -> list[Move]:
        """The moves of one step."""
        return [move for move in self.moves if move.step is step]

    def size(self, attempt: Attempt) -> int:
        """How many pages an attempt takes: one if the model does not say."""
        return len(self.pages[attempt]) or int(not self.found[attempt])

    def share(self, rank: int) -> dict[str, Any]:
        """By what a schedule names a rank's writes and what is said of them: nothing where there is one alone."""
        if self.streams:
            return {"stream": (KV, *self.streams)[rank]}
        return {"rank": rank} if self.ranks > 1 else {}

    def takes_pages(self, move: Move) -> bool:
        """Whether decode admits an attempt in this move."""
        return move.means == "admit" or (move.means == "submit" and not self.apart)

    def attempts(self, request: str) -> int:
        """How often the request is submitted."""
        return sum(attempt.request == request for attempt in self.pages) - self._retries(request)

    def number(self, attempt: Attempt) -> int:
        """As which attempt the system knows it."""
        return attempt.number - self._retries(attempt.request, attempt.number)

    def server(self, attempt: Attempt) -> str | None:
        """Which prefill it is with, where its request is taken to another."""
        before = self._retries(attempt.request, attempt.number)
        if not self._retries(attempt.request):
            return None
        return f"prefill-{before + 1}" if before else "prefill"

    def _retries(self, request: str, until: int | None = None) -> int:
        return sum(one.request == request and (until is None or one.number <= until) for one in self.retried)


def course(trace: Trace, binding: Binding, steps: list[Named]) -> Course:
    """The moves of a trace and what they begin and end.

    Raises:
        BindingError: a step's request is not to be found, or a landing has no write, and so on.
    """
    stated = setting.of(trace, binding.setting)
    streams = stated.lab.get("streams", ())
    found = Course(
        steps,
        ranks=stated.lab.get("ranks", 1) + len(streams),
        streams=streams,
        pulls="pull" in stated.has,
        routed="router" in stated.has,
        apart=bool({"pull", "router"} & stated.has),
        rooms=stated.rooms,
    )
    has = stated.has | ({"slots"} if "metadata_slots" in stated.lab else set())
    tracker = _Tracker(trace, binding, found, has)
    for step in steps:
        if step.rule.not_expressible:
            raise tracker.error(step, f"cannot be a schedule step: {step.rule.not_expressible}")
        for means in step.rule.means:
            if means != "silent":
                tracker.add(step, means)
        tracker.note_sent(step)
    models_notes = any({"deliver", "lose"} & set(rule.means) for rule in binding.rules)
    _hold_what_is_late(found, models_notes=models_notes)
    return found


def _hold_what_is_late(found: Course, *, models_notes: bool) -> None:
    """Say of every span whether it has to be held so that the schedule's order is the trace's."""
    for (_, kind), span in found.messages.items():
        before = _before_first(span, found.moves)
        late = _interrupted(before, span) if kind == "claim" else bool(before)
        span.held = span.never_arrives or late
    for span in found.slots.values():
        span.held = _interrupted(_meanwhile(span, found.moves), span)
    posted = {move.part[:2] for move in found.moves if move.means == "post"}
    unasked = {of for (of, kind), span in found.messages.items() if kind == "reserve" and span.held}
    never = {of for (of, kind), span in found.messages.items() if kind == "reserve" and span.never_arrives}
    answered = {span.attempt for span in found.notes.values() if span.end is not None}
    for key, span in found.writes.items():
        asked = key[:2] in posted or (not posted and not found.routed) or span.attempt not in unasked | answered
        asked = asked and span.attempt not in never
        told = span.lost or span.early is not None or span.failed is not None
        span.held = told or (asked and _interrupted(_meanwhile(span, found.moves), span))
    for span in found.notes.values():
        late = _interrupted(_before_first(span, found.moves), span)
        span.held = models_notes and (span.never_arrives or late)
    for span in [*found.forwards.values(), *found.fills.values()]:
        span.held = any(move.means not in ("submit", "deliver") for move in _meanwhile(span, found.moves))
    for span in found.answers.values():
        span.held = span.end is not None and _interrupted(_meanwhile(span, found.moves), span)
    for span in found.registrations.values():
        heard = any(move.means == "deliver" for move in _meanwhile(span, found.moves) if move.attempt == span.attempt)
        span.held = span.end is not None and heard


def _meanwhile(span: Span, moves: list[Move]) -> list[Move]:
    return moves[span.begin.at + 1 : span.end.at if span.end else len(moves)]


def _before_first(span: Span, moves: list[Move]) -> list[Move]:
    """What happens until a message arrives for the first time."""
    end = span.first or span.end
    return moves[span.begin.at + 1 : end.at if end else len(moves)]


def _interrupted(meanwhile: list[Move], span: Span) -> bool:
    """Whether anything but the attempt's own progress happens while it is in the network."""
    return any(move.attempt != span.attempt or not _is_progress(move) for move in meanwhile)


def _is_progress(move: Move) -> bool:
    """Whether it is what an attempt does by itself until its bytes are there."""
    other = move.means == "deliver" and move.step.rule.message != NOTIFICATION
    return other or move.means in _PROGRESS


_PROGRESS = (
    *("submit", "admit", "accept", "refer", "post", "land", "land-slot", "complete", "vanish", "compute", "fill"),
)


_OF_WRITES = ("land", "fail", "complete", "vanish")


class _Tracker:
    def __init__(self, trace: Trace, binding: Binding, found: Course, has: frozenset[str]) -> None:
        self.trace = trace
        self.has = has
        self.binding = binding
        self.found = found
        self.live: dict[str, Attempt] = {}
        self.retracted: set[str] = set()
        self.admitted: set[Attempt] = set()

    def add(self, step: Named, means: Meaning) -> None:
        if means == "restart":
            process = Attempt(step.rule.instance, 0)
            self.found.moves.append(Move(len(self.found.moves), means, process, 0, step))
            return
        request = self.request(step)
        if means == "submit" and request in self.retracted:  # decode admits it by itself
            self.retracted.remove(request)
            means = "admit"
        if means == "submit":
            earlier = self.live.get(request)
            self.live[request] = Attempt(request, earlier.number + 1 if earlier else 1)
        attempt = self.live.get(request)
        if attempt is None:
            raise self.error(step, f"{means} of {request}, which no step has submitted")
        chunk = self.number(step, step.rule.chunk, "chunk", 0)
        rank = self.number(step, step.rule.rank, "rank", 0)
        if means in (*_OF_WRITES, "deliver", "lose", "copy"):
            attempt = self.owner(step, means, attempt, chunk, rank)
        if means == "retry":
            attempt = self.retry(attempt)
        if means == "retract":
            attempt = self.live[request] = self.of_message(step, attempt)
            self.retracted.add(request)
        move = Move(len(self.found.moves), means, attempt, chunk, step, rank)
        self.found.moves.append(move)
        if means == "submit" or (means == "retract" and attempt not in self.found.pages):
            self.found.pages[attempt], self.found.found[attempt] = frozenset(), 0
        if self.found.takes_pages(move):
            self.found.pages[attempt] = self.taken(step)
            self.found.found[attempt] = self.from_cache(step)
        self.follow(move)

    def retry(self, before: Attempt) -> Attempt:
        """Another prefill takes over, with the same pages."""
        attempt = self.live[before.request] = Attempt(before.request, before.number + 1)
        self.found.retried.add(attempt)
        self.found.pages[attempt], self.found.found[attempt] = self.found.pages[before], self.found.found[before]
        return attempt

    def follow(self, move: Move) -> None:
        """Begin and end the writes, messages and local work that the move is about."""
        if move.means == "accept" and self.found.pulls:  # then it ends up at decode with a claim, if nothing stops it
            self.found.messages[move.attempt, "claim"] = Span(move.attempt, 0, move)
        if self.found.takes_pages(move) or move.means == "retry":
            if move.attempt not in self.admitted:
                self.admit(move)
            self.admitted.add(move.attempt)
        elif move.means == "land-slot" and move.attempt in self.found.slots:
            self.found.slots[move.attempt].end = move
            self.found.slots[move.attempt].chunk = self.number(move.step, move.step.rule.slot, "slot", 0)
        elif move.means in _OF_WRITES:
            self.of_write(move, self.found.writes.get(move.part))
        elif move.means == "compute" and (move.attempt, move.chunk) in self.found.forwards:
            self.found.forwards[move.attempt, move.chunk].end = move
        elif move.means == "fill" and move.attempt in self.found.fills:
            self.found.fills[move.attempt].end = move
        elif move.means == "register" and move.attempt in self.found.registrations:
            self.found.registrations[move.attempt].end = move
        elif move.means == "enter":
            self.found.answers[move.attempt] = Span(move.attempt, 0, move)
        elif move.means == "finish" and move.attempt in self.found.answers:
            self.found.answers[move.attempt].end = move
        elif move.means in ("deliver", "lose", "copy"):
            if "batch" in self.has and move.means == "deliver" and move.step.rule.message == NOTIFICATION:
                self.found.answers[move.attempt] = Span(move.attempt, 0, move)  # if it is the last, and there is room
            self.arrive(move, self.message(move.step, move.part))

    def admit(self, move: Move) -> None:
        """What decode begins for an attempt. What it reads it reads as soon as its claim is honoured and it has pages:
        if nobody else does anything until then, at once."""
        attempt = move.attempt
        since = [one for one in self.found.moves if one.attempt == attempt and one.step.rule.message == "claimed"]
        if since and all(one.attempt == attempt for one in self.found.moves[since[-1].at :]):
            move = since[-1]
        if "slots" in self.has:
            self.found.slots[attempt] = Span(attempt, 0, move)
        for chunk in range(self.found.size(attempt)):
            for rank in range(self.found.ranks):
                self.found.writes[Part(attempt, chunk, rank)] = Span(attempt, chunk, move, rank=rank)
            if "late-forward" in self.has:
                self.found.forwards[attempt, chunk] = Span(attempt, chunk, move)
        if "late-fill" in self.has:
            self.found.fills[attempt] = Span(attempt, 0, move)
        if "late-register" in self.has:
            self.found.registrations[attempt] = Span(attempt, 0, move)

    def of_write(self, move: Move, write: Span | None) -> None:
        """A write lands, is lost, or is said to have landed or failed; with that its news is on the way."""
        if write is None:
            return
        if move.means == "complete":
            if self.found.pulls and write.end is not None and not write.lost:
                write.end = move  # whoever reads learns of it here
            if write.end is not None or write.early is not None:
                return
            write.early = move
        elif move.means == "fail":
            write.failed, write.lost = move, True
        else:
            write.end, write.lost = move, move.means == "vanish"
        if move.means != "vanish" and not self.found.pulls:
            self.found.notes.setdefault(move.part, Span(move.attempt, move.chunk, move, rank=move.rank))

    def arrive(self, move: Move, span: Span | None) -> None:
        """A message arrives or is lost; of a copy it is the first time."""
        if span is None:
            return
        if move.means == "copy":
            if span.copied:
                raise self.error(move.step, "a message that arrives three times is no step")
            span.first = move
        else:
            span.end = move
            span.lost = move.means == "lose"

    def message(self, step: Named, part: Part) -> Span | None:
        """The message that a step is about, where the model shows when it was sent."""
        if step.rule.message == NOTIFICATION:
            return self.found.notes.get(part)
        return self.found.messages.get((part.attempt, step.rule.message))

    def note_sent(self, step: Named) -> None:
        """Other messages than notifications are in the network from the step on that sends them."""
        if self.binding.sent is None or not self.found.moves:
            return
        try:
            sent = self.binding.sent.value(step.scene)
        except Undefined:
            return
        for record in sent if isinstance(sent, frozenset | tuple) else (sent,):
            if not isinstance(record, Mapping) or record["type"] == NOTIFICATION:
                continue
            attempt = Attempt(word(record["request"]), int(str(record["attempt"])))
            if attempt in self.found.pages:
                begin = self.found.moves[-1]
                if self.found.apart and word(record["type"]) == "reserve":  # decode has pages as soon as it can
                    begin = next(move for move in self.found.moves if move.attempt == attempt)
                span = Span(attempt, 0, begin, sent=step.number)
                self.found.messages.setdefault((attempt, word(record["type"])), span)

    def owner(self, step: Named, means: Meaning, newest: Attempt, chunk: int, rank: int) -> Attempt:
        """The attempt whose write or notification it is: the one named, or the oldest that has one."""
        if step.rule.message != NOTIFICATION and means not in _OF_WRITES:
            return self.of_message(step, newest)
        spans = self.found.writes if means in _OF_WRITES else self.found.notes
        what = "write" if means in _OF_WRITES else "notification"
        named = self.number(step, step.rule.attempt, "attempt", 1) if step.rule.attempt else None
        for number in [named] if named else range(1, newest.number + 1):
            attempt = Attempt(newest.request, number)
            span = spans.get(Part(attempt, chunk, rank))
            if span is not None and (span.end is None or means == "complete"):
                return attempt
        raise self.error(step, f"{means} of {newest.request}, but no {what} of it is in the network")

    def of_message(self, step: Named, newest: Attempt) -> Attempt:
        """The attempt that a message is of: the one named, or the newest."""
        number = self.number(step, step.rule.attempt, "attempt", 1) if step.rule.attempt else newest.number
        return Attempt(newest.request, number)

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


__all__ = ["Attempt", "Course", "Move", "Part", "Span", "course"]

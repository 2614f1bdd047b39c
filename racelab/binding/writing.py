"""Writes the schedule of a course, step of the model by step: what is awaited, released, lost, and when time passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from racelab import scenario
from racelab.binding import pages, setting
from racelab.binding.document import NOTIFICATION, Binding
from racelab.binding.expression import Scene, Undefined, word
from racelab.binding.holding import ANSWER, Holding, copy_hold, message_hold, slot_hold, work_hold, write_hold
from racelab.binding.moves import Attempt, Course, Move, Part, Span
from racelab.binding.naming import Named
from racelab.binding.timing import Impatient, Timeline, TooEarly
from racelab.errors import BindingError
from racelab.evidence.events import TERMINAL_KINDS
from racelab.scenario.steps import (
    Abort,
    Advance,
    Await,
    Drop,
    Expect,
    Kill,
    Release,
    Restart,
    Retract,
    Retry,
    Step,
    Submit,
    read_aloud,
)
from racelab.traces.trace import Trace

TIMEOUT_MS = 10_000
OF_PREFILL = ("accepted", "posted", "completed")
"""Events that prefill reports."""
TO_PREFILL = ("reserve", "abort", "complete")
"""Messages that decode sends."""


@dataclass(frozen=True)
class Explained:
    """One step of the model and what became of it; `number` is the state that it leads to."""

    number: int
    action: str
    why: str
    steps: tuple[str, ...]

    def __str__(self) -> str:
        head = f"state {self.number}: {self.action}, for {self.why}"
        return "\n".join([head, *(f"    {step}" for step in self.steps or ("(nothing)",))])


class Writer:
    """Writes the schedule, step of the model by step."""

    def __init__(
        self, trace: Trace, binding: Binding, course: Course, held_pages: pages.Pages, patience: Mapping[str, int]
    ) -> None:
        self.trace = trace
        self.binding = binding
        self.course = course
        self.pages = held_pages
        self.setting = setting.of(trace, binding.setting)
        lab = scenario.Lab(decode_pages=held_pages.pool, request_timeout_ms=TIMEOUT_MS)
        timers = ("lease_ms", "drain_timeout_ms", "bootstrap_timeout_ms")
        stated = {key: value for key, value in self.setting.lab.items() if key in timers}
        self.lab = msgspec.structs.replace(lab, **stated)
        self.patience = patience
        self.holding = Holding(course, self.lab.layers)
        self.posts_apart = any("post" in rule.means and "submit" not in rule.means for rule in binding.rules)
        self.timeline = Timeline(course, TIMEOUT_MS, self.lab.drain_timeout_ms, patience)
        self.steps: list[Step] = []
        self.ended: set[Attempt] = set()
        self.gone: set[Attempt] = set()
        """ended by a time-out or the client, not by an answer"""
        self.awaited: Counter[tuple[str, Attempt]] = Counter()
        self.victim: str | None = None
        self.guard = self.setting.guard
        self.delivered: set[Attempt] = set()

    def step(self, step: Named) -> Explained:
        """The schedule steps of one step of the model."""
        begin = len(self.steps)
        for move in self.course.of_step(step):
            self.move(move)
        self.note_guard(step)
        self.note_drain(step)
        self.show(step)
        for seen in self.pages.seen[step.number]:
            self.wait(seen.event, seen.attempt)
        for (_, kind), span in self.course.messages.items():
            if span.held and span.sent == step.number:
                self.steps.append(Await(event="held", hold=message_hold(kind, span)))
        action = f"{step.rule.name}({', '.join(str(move.attempt) for move in self.course.of_step(step)[:1])})"
        read = tuple(read_aloud(written) for written in self.steps[begin:])
        return Explained(step.number, action, step.why, read)

    def move(self, move: Move) -> None:
        attempt = move.attempt
        match move.means:
            case "submit":
                self.submit(move)
            case "admit":
                self.admit(move)
            case "accept" | "refer":
                self.wait({"accept": "accepted", "refer": "referenced"}[move.means], attempt)
            case "lapse":
                self.steps.append(Advance(ms=self.lab.lease_ms))
                self.wait("lease-expired", attempt)
            case "expire-source":
                self.steps.append(Advance(ms=self.lab.drain_timeout_ms))
            case "give-up-offer":
                self.steps.append(Advance(ms=self.lab.bootstrap_timeout_ms))
                self.wait("attempt-ended", attempt)
            case "land-slot":
                self.land_in_slot(move)
            case "post":
                if self.posts_apart:
                    self.post(move)
            case "land" | "fail" | "complete" | "vanish":
                self.of_write(move)
            case "compute":
                self.work("forward", self.course.forwards.get((attempt, move.chunk)))
            case "fill":
                self.work("zero-fill", self.course.fills.get(attempt))
            case "register":
                self.work("register", self.course.registrations.get(attempt))
            case "restart":
                self.restart(move)
            case "deliver" | "lose" | "copy" if move.step.rule.message != NOTIFICATION:
                self.message(move)
            case "deliver" | "copy":
                self.deliver(move)
            case "lose":
                note = self.course.notes[move.part]
                self.end_of((copy_hold if note.copied else message_hold)(NOTIFICATION, note), lost=True)
            case "time-out":
                self.advance(move, "time-out")
                self.wait("timed-out", attempt)
                self.end(attempt)
                self.gone.add(attempt)
            case "abort":
                self.steps.append(Abort(request=attempt.request))
                if attempt not in self.ended:
                    self.wait("aborted", attempt)
                    self.gone.add(attempt)
                self.end(attempt)
            case "retract":
                if attempt.number > 1 and all(one.attempt != attempt for one in self.course.moves[: move.at]):
                    self.steps += self.holding.armed(attempt)
                self.steps.append(Retract(request=attempt.request))
            case "retry":
                self.steps += self.holding.armed(attempt)
                self.steps.append(Retry(request=attempt.request, prefill=str(self.course.server(attempt))))
                self.wait("retried", attempt)
            case "enter":
                self.answer(move)
            case "finish":
                self.work(ANSWER, self.course.answers.get(attempt))
                self.wait("finished", attempt)
                self.end(attempt)
            case "expire":
                self.advance(move, "drain")
            case "silent":
                pass

    def submit(self, move: Move) -> None:
        attempt = move.attempt
        gap_ms = self.timeline.start(attempt, "time-out", move)
        if gap_ms:
            self.steps.append(Advance(ms=gap_ms))
        self.steps += self.holding.armed(attempt)
        presented = move.step.first(move.step.rule.reference_of)
        of = next(map(word, presented)) if isinstance(presented, frozenset | tuple) and presented else None
        room = self.course.rooms.get(attempt.request)
        self.steps.append(Submit(request=attempt.request, reference_of=of, transfer_id=room))
        if not self.course.apart:
            self.admit(move)

    def admit(self, move: Move) -> None:
        """Decode has pages for an attempt."""
        attempt = move.attempt
        if self.course.pulls:
            self.wait("posted", attempt)  # its first read
        if move.means == "admit" and not self.course.apart:  # by itself, after a retraction
            times = sum(
                self.course.takes_pages(one) and one.attempt == attempt for one in self.course.moves[: move.at + 1]
            )
            again = Await(event="admitted", request=attempt.request, attempt=attempt.number, count=times)
            self.steps.append(again)
        elif self.course.apart or attempt.request in self.course.rooms:
            self.wait("admitted", attempt)
        elif self.course.size(attempt):
            self.wait("page-private", attempt)
        fill = self.course.fills.get(attempt)
        if fill is not None and fill.held:
            self.steps.append(Await(event="held", hold=work_hold("zero-fill", fill)))
            self.wait("granted", attempt)
        registration = self.course.registrations.get(attempt)
        if registration is not None and registration.held:
            self.steps.append(Await(event="held", hold=work_hold("register", registration)))
            self.wait("sent", attempt)  # what asks for a transfer that nobody knows yet
        if self.course.found[attempt]:
            self.steps.append(
                Await(
                    event="cache-hit",
                    request=attempt.request,
                    attempt=self.number(attempt),
                    count=self.course.found[attempt],
                )
            )
            self.victim = attempt.request
        for old in self.pages.reuses[attempt]:
            self.steps.append(Expect(claim="reuses", request=attempt.request, of=old.request))
            self.victim = attempt.request
        for span in self.course.writes.values() if not self.posts_apart else ():
            if span.attempt == attempt and span.held:
                self.steps.append(Await(event="held", hold=write_hold(span)))

    def post(self, move: Move) -> None:
        """The writes of a chunk are posted, in a step of its own."""
        forward = self.course.forwards.get((move.attempt, move.chunk))
        if forward is not None and forward.held:
            self.steps.append(Await(event="held", hold=work_hold("forward", forward)))
        for _ in range(self.lab.layers):
            self.wait("posted", move.attempt)
        del self.steps[-self.lab.layers : -1]  # the last one waits for all
        for rank in range(self.course.ranks):
            span = self.course.writes[Part(move.attempt, move.chunk, rank)]
            if span.held:
                self.steps.append(Await(event="held", hold=write_hold(span)))
        metadata = self.course.slots.get(move.attempt)
        if metadata is not None and metadata.held:
            self.steps.append(Await(event="held", hold=slot_hold(metadata)))

    def of_write(self, move: Move) -> None:
        """A write lands, or is said to have landed, or to have failed; or it is lost after that."""
        write, note = self.course.writes[move.part], self.course.notes.get(move.part)
        if move.means == "complete":
            if self.course.pulls and write.end is move:
                self.release(write)
                return
            if write.early is not move:
                return
            self.wait("completed", move.attempt)  # its transport's word, while it is held
        elif move.means == "fail":
            if not write.is_ghost:
                self.steps.append(Drop(hold=write_hold(write)))
            self.wait("completed", move.attempt)
        elif move.means == "vanish":
            if write.failed is None and write.early is None:  # its sender has died
                self.steps.append(Drop(hold=write_hold(write)))
            return
        elif write.end is move:
            self.release(write)
        if note is not None and note.held and note.begin is move:
            self.steps.append(Await(event="held", hold=message_hold(NOTIFICATION, note)))

    def release(self, write: Span) -> None:
        """A write lands now, or a read's bytes do."""
        if not write.held:
            self.wait("completed", write.attempt)
            return
        self.steps.append(Release(hold=write_hold(write)))
        if self.course.pulls:
            self.wait("completed", write.attempt)
        else:
            self.steps.append(Await(event="landed", hold=write_hold(write), count=self.lab.layers))

    def land_in_slot(self, move: Move) -> None:
        """The first token of an attempt arrives in its slot."""
        span = self.course.slots.get(move.attempt)
        if span is not None and span.held:
            self.steps.append(Release(hold=slot_hold(span)))
            self.steps.append(Await(event="landed", hold=slot_hold(span)))

    def restart(self, move: Move) -> None:
        """A process dies, with what was under way to it, and another takes its place."""
        instance = move.attempt.request
        dying = [
            write
            for write in self.course.writes.values()
            if write.held and write.begin.at < move.at and write.end is None and write.failed is None
        ]
        posted = [Await(event="held", hold=write_hold(write)) for write in dying]
        self.steps += [step for step in posted if step not in self.steps]
        self.steps.append(Kill(instance=instance))
        self.steps += [Drop(hold=write_hold(write)) for write in dying]
        for (attempt, kind), span in self.course.messages.items():
            over = span.end is not None and span.end.at > move.at and not span.lost
            if kind in TO_PREFILL and span.begin.at < move.at and over:
                raise BindingError(
                    f"step {move.step.number - 1} ({move.step.rule.name}): {kind} of {attempt} is under way to a "
                    "process that dies, and does not reach the one that takes its place",
                    file=self.trace.file,
                    line=move.step.line,
                    next="let the model lose what is under way to a process with it",
                )
        self.steps.append(Restart(instance=instance))

    def show(self, step: Named) -> None:
        """Events that the binding has shown by what changes in the state."""
        for move in self.course.of_step(step)[:1]:
            for event, expression in step.rule.shows:
                try:
                    shown = expression.value(step.scene)
                except Undefined:
                    continue
                if isinstance(shown, frozenset | tuple) and shown:
                    self.wait(event, move.attempt)

    def work(self, op: str, span: Span | None) -> None:
        """Local work that was held runs."""
        if span is not None and span.held:
            self.steps.append(Release(hold=work_hold(op, span)))

    def answer(self, move: Move) -> None:
        """An attempt is in decode's batch, and its first forward waits if others go first."""
        span = self.course.answers.get(move.attempt)
        if span is not None and span.held and span.begin is move:
            self.steps.append(Await(event="held", hold=work_hold(ANSWER, span)))

    def message(self, move: Move) -> None:
        """Another message than a notification arrives, or is lost."""
        kind = move.step.rule.message
        span = self.course.messages.get((move.attempt, kind))
        if span is None:
            return
        if move.means == "copy":
            if span.held:
                self.end_of(message_hold(kind, span), lost=False)
            self.steps.append(Await(event="held", hold=copy_hold(kind, span)))
        elif span.copied or span.held:
            hold = copy_hold(kind, span) if span.copied else message_hold(kind, span)
            self.end_of(hold, lost=span.lost)
        if move.means == "deliver":
            self.await_posted(move, kind)

    def await_posted(self, move: Move, kind: str) -> None:
        """After a message that has an engine post by itself; where the model has a step for it, it is awaited there."""
        posts = any(other.means == "post" for other in self.course.moves)
        spans = [span for span in self.course.writes.values() if span.attempt == move.attempt and span.held]
        if (kind == "reserve" and not posts) or kind == "claimed":
            self.steps += [
                Await(event="held", hold=write_hold(span)) for span in spans if kind == "reserve" or span.begin is move
            ]

    def end_of(self, hold: str, *, lost: bool) -> None:
        """What is held goes on, or is lost."""
        if lost:
            self.steps.append(Drop(hold=hold))
        else:
            self.steps.append(Release(hold=hold))
            self.steps.append(Await(event="delivered", hold=hold))

    def deliver(self, move: Move) -> None:
        note = self.course.notes[move.part]
        self.delivered.add(move.attempt)
        if note.held and (move.means == "copy" or not note.copied):
            self.end_of(message_hold(NOTIFICATION, note), lost=False)
        if move.means == "copy":
            self.steps.append(Await(event="held", hold=copy_hold(NOTIFICATION, note)))
        elif note.copied:
            self.end_of(copy_hold(NOTIFICATION, note), lost=False)
        if self.is_unheard(move):
            self.wait("ignored", move.attempt)
        shown = self.shown(move)
        if shown is None and self.is_last_chunk(move) and move.attempt not in self.ended:
            shown = ["committed"]
        if move.attempt in self.course.slots and "committed" in (shown or []):
            self.wait("slot-read", move.attempt)
        live = self.live(move)  # an engine without the guard applies it to whichever attempt is live
        for event in shown or []:
            self.wait(event, live)
            if event in TERMINAL_KINDS:
                self.end(live)
        self.answer(move)

    def shown(self, move: Move) -> list[str] | None:
        """The events that a change of the request's state means, or None if the model shows no states."""
        if self.binding.request is None:
            return None
        request = move.step.first(move.step.rule.request)
        assert request is not None
        states = []
        for state in (move.step.scene.before, move.step.scene.after):
            try:
                states.append(word(self.binding.request.state.value(Scene({}, state, {"this": request}))))
            except Undefined:
                return None
        if states[0] == states[1]:
            return []
        return list(self.binding.request.events.get(states[1], ()))

    def is_unheard(self, move: Move) -> bool:
        """Whether news comes before decode knows what it is of."""
        registration = self.course.registrations.get(move.attempt)
        if registration is None or not registration.held:
            return False
        return registration.end is not None and registration.end.at > move.at

    def is_last_chunk(self, move: Move) -> bool:
        parts = [part for part in self.course.writes if part.attempt == move.attempt]
        notes = [self.course.notes.get(part) for part in parts]
        return all(note is not None and note.end is not None and note.end.at <= move.at for note in notes)

    def advance(self, move: Move, kind: str) -> None:
        if (move.attempt, kind) not in self.timeline.due:
            self.timeline.start(move.attempt, kind, move)
        try:
            ms = self.timeline.fire(move.attempt, kind)
        except TooEarly as early:
            clients = [other.request for other, what in early.others if what == "time-out"]
            if clients and len(clients) == len(early.others) and move.attempt.request not in clients:
                raise Impatient(clients[0]) from None
            raise BindingError(
                f"step {move.step.number - 1} ({move.step.rule.name}): the {kind} of {move.attempt} cannot come "
                f"before {early}, which began earlier and runs as long",
                file=self.trace.file,
                line=move.step.line,
                next="let the model's time-outs fall due in the order in which they began",
            ) from None
        if ms:
            self.steps.append(Advance(ms=ms))

    @property
    def publishes(self) -> bool:
        """Whether some page of the trace enters the prefix cache or is found there."""
        shared = any(seen.event == "page-shared" for changes in self.pages.seen.values() for seen in changes)
        return shared or any(self.course.found.values())

    def end(self, attempt: Attempt) -> None:
        self.ended.add(attempt)
        self.timeline.stop(attempt, "time-out")

    def wait(self, event: str, attempt: Attempt) -> None:
        """Await the next event of this kind of this attempt; those awaited before count too."""
        self.awaited[event, attempt] += 1
        step = Await(
            event=event,
            request=attempt.request,
            attempt=self.number(attempt),
            count=self.awaited[event, attempt],
            instance=self.course.server(attempt) if event in OF_PREFILL else None,
        )
        self.steps.append(step)

    def note_drain(self, step: Named) -> None:
        """A release that frees no page starts a drain, if the model has drains that expire."""
        if not any("expire" in rule.means for rule in self.binding.rules):
            return
        freed = {seen.attempt for seen in self.pages.seen[step.number] if seen.event == "page-free"}
        for move in self.course.of_step(step):
            if move.means in ("time-out", "abort") and move.attempt not in freed:
                self.timeline.start(move.attempt, "drain", move)
        for attempt in freed:
            self.timeline.stop(attempt, "drain")

    def note_guard(self, step: Named) -> None:
        """The guard that would be the first to refuse what happens here."""
        freed = {seen.attempt for seen in self.pages.seen[step.number] if seen.event == "page-free"}
        for move in self.course.of_step(step):
            exposed = move.attempt not in self.delivered
            frees = move.attempt in freed
            if self.guard is not None:
                return
            if any(
                seen.event == "page-shared" and seen.attempt not in self.delivered
                for seen in self.pages.seen[step.number]
            ):
                self.guard = "publish-after-commit"
            elif move.means in ("time-out", "abort") and exposed and frees:
                self.guard = "drain-before-free"
            elif move.means == "expire" and frees:
                self.guard = "quarantine-on-expiry"
            elif move.means == "deliver" and self.shown(move):
                stale = self.live(move) != move.attempt or move.attempt in self.gone
                self.guard = "control-carries-generation" if stale else None

    def live(self, move: Move) -> Attempt:
        """The newest attempt of the request at this move."""
        submitted = [span.begin for span in self.course.writes.values() if span.begin.at <= move.at]
        numbers = [begin.attempt.number for begin in submitted if begin.attempt.request == move.attempt.request]
        return Attempt(move.attempt.request, max(numbers))

    def number(self, attempt: Attempt) -> int | None:
        """The attempt's number where the schedule needs it."""
        return self.holding.number(attempt)

"""What a schedule arms before it submits an attempt: everything of it that the trace has come late, twice or never."""

from __future__ import annotations

from typing import Literal

from racelab.binding.document import NOTIFICATION
from racelab.binding.moves import Attempt, Course, Span
from racelab.scenario.steps import Duplicate, Hold, MessageMatch, Step, WorkMatch, WriteMatch

MESSAGE_MECHANISM = "broker-backlog"
OF_PREFILL = (NOTIFICATION, "failed", "abort-ack")
"""Messages that prefill sends."""
ANSWER = "answer"
"""The name of decode's forwards, beside those of prefill."""


class Holding:
    """The holds of a course. `layers` is how many writes a rank's share of a chunk of one page has."""

    def __init__(self, course: Course, layers: int) -> None:
        self.course = course
        self.layers = layers

    def armed(self, attempt: Attempt) -> list[Step]:
        """The steps before an attempt is submitted. What is late and comes twice stops first, then its copy does."""
        course = self.course
        writes = [span for span in course.writes.values() if span.attempt == attempt and span.held]
        forwards = [span for span in course.forwards.values() if span.attempt == attempt and span.held]
        notes = [(NOTIFICATION, span) for span in course.notes.values() if span.attempt == attempt]
        others = [(kind, span) for (of, kind), span in course.messages.items() if of == attempt]
        answer = course.answers.get(attempt)
        fill, register = course.fills.get(attempt), course.registrations.get(attempt)
        return [
            *(self._work("decode", "zero-fill", fill, None) for _ in range(fill is not None and fill.held)),
            *(self._work("decode", "register", register, None) for _ in range(register is not None and register.held)),
            *(self._work("decode", "forward", answer, None, ANSWER) for _ in range(answer is not None and answer.held)),
            *(self._work("prefill", "forward", span, span.chunk) for span in forwards),
            *(self._of_slot(span) for of, span in course.slots.items() if of == attempt and span.held),
            *(self._of_write(span) for span in writes),
            *(self._late(kind, span) for kind, span in (*notes, *others) if span.held),
            *(self._twice(kind, span) for kind, span in (*notes, *others) if span.copied),
        ]

    def number(self, attempt: Attempt) -> int | None:
        """The attempt's number where the schedule needs it."""
        return self.course.number(attempt) if self.course.attempts(attempt.request) > 1 else None

    def _of_slot(self, span: Span) -> Step:
        attempt = span.attempt
        match = WriteMatch(request=attempt.request, attempt=self.number(attempt), slot=span.chunk)
        return Hold(id=slot_hold(span), write=match)

    def _of_write(self, span: Span) -> Step:
        match = WriteMatch(
            op="read" if self.course.pulls else None,
            request=span.attempt.request,
            attempt=self.number(span.attempt),
            chunk=self._chunk(span, NOTIFICATION),
            writer=self.course.server(span.attempt),
            **self.course.share(span.rank),
        )
        action: Literal["hold", "ghost", "early-success"] = "hold"
        if span.early is not None:
            action = "early-success"
        elif span.is_ghost:
            action = "ghost"
        return Hold(id=write_hold(span), write=match, count=self.layers, action=action)

    def _match(self, kind: str, span: Span) -> MessageMatch:
        server = self.course.server(span.attempt)
        return MessageMatch(
            type=kind,
            request=span.attempt.request,
            attempt=self.number(span.attempt),
            chunk=self._chunk(span, kind),
            **(self.course.share(span.rank) if kind == NOTIFICATION else {}),
            sender=server if kind in OF_PREFILL else None,
            to=None if kind in OF_PREFILL else server,
        )

    def _late(self, kind: str, span: Span) -> Step:
        return Hold(id=message_hold(kind, span), message=self._match(kind, span), mechanism=MESSAGE_MECHANISM)

    def _twice(self, kind: str, span: Span) -> Step:
        return Duplicate(id=copy_hold(kind, span), message=self._match(kind, span))

    def _work(self, on: str, op: str, span: Span | None, chunk: int | None, name: str | None = None) -> Step:
        assert span is not None
        match = WorkMatch(
            on=on,
            op=op,  # type: ignore[arg-type]  # one of its words
            request=span.attempt.request,
            attempt=self.number(span.attempt),
            chunk=chunk,
        )
        return Hold(id=work_hold(name or op, span), work=match)

    def _chunk(self, span: Span, kind: str) -> int | None:
        """The chunk's number where the schedule needs it."""
        several = kind == NOTIFICATION and len(self.course.pages[span.attempt]) > 1
        return span.chunk if several else None


def write_hold(span: Span) -> str:
    """The name of the hold of a chunk's writes, or of one rank's share of them."""
    return f"{span.attempt}-write" + _of_part(span)


def slot_hold(span: Span) -> str:
    """The name of the hold of an attempt's metadata."""
    return f"{span.attempt}-metadata"


def message_hold(kind: str, span: Span) -> str:
    """The name of the hold of a message."""
    return f"{span.attempt}-{kind}" + _of_part(span)


def copy_hold(kind: str, span: Span) -> str:
    """The name of the hold of a message's copy."""
    return message_hold(kind, span) + "-copy"


def work_hold(op: str, span: Span) -> str:
    """The name of the hold of local work."""
    return f"{span.attempt}-{op}" + _of_part(span)


def _of_part(span: Span) -> str:
    return (f"-{span.chunk}" if span.chunk else "") + (f"-rank-{span.rank}" if span.rank else "")


__all__ = ["ANSWER", "Holding", "copy_hold", "message_hold", "slot_hold", "work_hold", "write_hold"]

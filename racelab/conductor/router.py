"""The client of a lab that pulls: it takes each request to prefill, and with the reference from there to decode."""

from __future__ import annotations

from typing import Any

from racelab.conductor.crew import Crew
from racelab.conductor.witness import Witness
from racelab.evidence.events import Event
from racelab.scenario.steps import Submit


class Router:
    """What it knows of its requests is what prefill reported: `referenced` is the answer with the reference."""

    def __init__(self, crew: Crew, witness: Witness) -> None:
        self._crew = crew
        self._witness = witness
        self._asked: dict[str, dict[str, Any]] = {}
        self._answers = 0
        self._sent: dict[str, Submit] = {}
        self._at_decode: set[str] = set()

    def submit(self, name: str, attempt: int, asked: dict[str, Any], sent: Submit) -> bool:
        """Take a request to the prefill of `sent`; False if that is stopped or dead."""
        self._asked[name] = asked
        self._sent[name] = sent
        self._at_decode.discard(name)
        return self._crew.ask(sent.prefill, "submit", name=name, attempt=attempt, **asked)

    def present(self, name: str, attempt: int, asked: dict[str, Any], of: str, sent: Submit) -> bool | None:
        """Take a request to the decode of `sent` with the latest reference that was made for `of`; None if there is
        none."""
        self._sent[name] = sent
        made = [event for event in self._witness.of("referenced") if event.request == of]
        return self._forward(name, attempt, asked, made[-1]) if made else None

    def forward(self) -> bool:
        """Take on what prefill has answered since the last call; whether that was anything."""
        answers = self._witness.of("referenced")[self._answers :]
        self._answers += len(answers)
        for answer in answers:
            assert answer.request is not None
            assert answer.attempt is not None
            self._forward(answer.request, answer.attempt, self._asked[answer.request], answer)
        return bool(answers)

    def _forward(self, name: str, attempt: int, asked: dict[str, Any], made: Event) -> bool:
        self._at_decode.add(name)
        reference = made.data["reference"]
        decode = self._sent[name].decode
        return self._crew.ask(decode, "submit", name=name, attempt=attempt, reference=reference, **asked)

    def has(self, name: str) -> str:
        """The instance that has a request now."""
        sent = self._sent[name]
        return sent.decode if name in self._at_decode else sent.prefill

"""A router's retry: another prefill is to serve a request that decode has pages for.

The attempt stays what it was, and its pages are granted once more, unless a guard has something against it: then it
ends, and the request begins anew with the other prefill.
"""

from __future__ import annotations

from collections.abc import Callable

from racelab.engine.guards import SILENCE, Guards, KeepDestination, SkipNotice
from racelab.engine.ledger import Ledger
from racelab.engine.live import Live
from racelab.engine.mail import Mail
from racelab.evidence.recorder import Recorder


class Retries:
    """`fill` asks a request's prefill for its pages, `begin_anew` ends it and submits it once more."""

    def __init__(
        self,
        recorder: Recorder,
        guards: Guards,
        ledger: Ledger,
        mail: Mail,
        fill: Callable[[Live], None],
        begin_anew: Callable[[Live, str], None],
    ) -> None:
        self._recorder = recorder
        self._guards = guards
        self._ledger = ledger
        self._mail = mail
        self._fill = fill
        self._begin_anew = begin_anew

    def retry(self, request: Live, prefill: str) -> None:
        """Have another prefill serve a request; harmless once its KV is complete, or it has ended."""
        if request.committed or request.ended is not None:
            return
        before, request.prefill = request.prefill, prefill
        about = (request.name, request.attempt)
        if not request.reserved:
            self._recorder.record("retried", *about, before=before, to=prefill)
            return
        outstanding = len(self._ledger.granted_to(*about))
        question = KeepDestination(*about, None, None, "retried", before=before, outstanding=outstanding)
        if self._guards.refuse(question):
            request.prefill = before
            self._begin_anew(request, prefill)
            return
        self._recorder.record("retried", *about, before=before, to=prefill)
        if self._guards.refuse(SkipNotice(*about, None, None, SILENCE, peer=before)):
            self._mail.send("abort", before, *about, transfer=request.transfer, why="retried")
        request.stop_watching()
        self._fill(request)

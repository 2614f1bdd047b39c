"""Local work: in order, at once while nothing is held, and what stands behind a held piece waits with it."""

from __future__ import annotations

import pytest
from duet import Duet

from checkers import integrity
from racelab.engine.guards import GUARDS
from racelab.engine.local_work import LocalWork
from racelab.evidence.recorder import Recorder
from racelab.scenario import Lab, Request

PROMPT = Request(prompt_tokens=25, new_tokens=2)


class Stream:
    """Local work that only notes that it ran."""

    def __init__(self) -> None:
        self.recorder = Recorder("decode")
        self.work = LocalWork(self.recorder)
        self.ran: list[str] = []

    def add(self, op: str, request: str) -> None:
        self.work.add(op, lambda: self.ran.append(f"{op} {request}"), of=[(request, 1)], pages=[3])

    def arm(self, hold: str, op: str, request: str) -> None:
        self.work.arm(hold, {"on": "decode", "op": op, "request": request}, 1)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.recorder.drain()]


@pytest.fixture
def stream() -> Stream:
    return Stream()


def test_without_a_hold_work_is_a_call_and_leaves_no_event(stream: Stream) -> None:
    stream.add("zero-fill", "r1")
    assert stream.ran == ["zero-fill r1"]
    assert not stream.work.stopped
    assert stream.kinds() == []


def test_what_is_behind_a_held_piece_waits_and_then_runs_in_order(stream: Stream) -> None:
    stream.arm("z", "zero-fill", "r1")
    for request in ("r0", "r1", "r2"):
        stream.add("zero-fill", request)
    assert stream.ran == ["zero-fill r0"]
    assert stream.work.queued("zero-fill", [3]) == 2
    assert stream.work.queued("zero-fill", [4]) == 0
    assert stream.work.release("z") is None
    assert stream.ran == ["zero-fill r0", "zero-fill r1", "zero-fill r2"]
    assert stream.kinds() == ["armed", "work-held", "work-released", "work-done", "work-done"]


def test_a_held_piece_behind_another_does_not_start_before_it(stream: Stream) -> None:
    stream.arm("a", "zero-fill", "r1")
    stream.arm("b", "forward", "r2")
    stream.add("zero-fill", "r1")
    stream.add("forward", "r2")
    assert stream.work.release("b") == "a"
    assert stream.ran == []
    assert stream.work.release("a") is None
    assert stream.ran == ["zero-fill r1", "forward r2"]


def test_what_follows_an_event_on_the_stream_waits_for_it(stream: Stream) -> None:
    stream.work.behind(lambda: stream.ran.append("at once"))
    stream.arm("z", "zero-fill", "r1")
    stream.add("zero-fill", "r1")
    stream.work.behind(lambda: stream.ran.append("after it"))
    assert stream.ran == ["at once"]
    assert stream.work.waiting == 1
    stream.work.release("z")
    assert stream.ran == ["at once", "zero-fill r1", "after it"]


# -- in the engines


def zeroed_late(guards: set[str]) -> Duet:
    duet = Duet({"r1": PROMPT}, Lab(zero_fill=True), guards)
    duet.decode.work.arm("z1", {"on": "decode", "op": "zero-fill", "request": "r1"}, 1)
    duet.submit("r1")
    duet.play()
    return duet


def computed_late(guards: set[str]) -> Duet:
    duet = Duet({"r1": PROMPT}, Lab(), guards)
    duet.prefill.work.arm("f1", {"on": "prefill", "op": "forward", "request": "r1", "chunk": 0}, 1)
    duet.submit("r1")
    duet.play()
    return duet


def kinds(duet: Duet) -> set[str]:
    return {event.kind for event in duet.events}


def test_clearing_behind_a_transfer_wipes_it() -> None:
    duet = zeroed_late(set(GUARDS) - {"local-work-before-grant"})
    assert "committed" in kinds(duet)
    assert "read" not in kinds(duet), "attention is behind the clearing on the same stream"
    duet.decode.work.release("z1")
    duet.play()
    read = next(event for event in duet.events if event.kind == "read")
    for row in read.data["fingerprints"]:
        chunks = duet.pools["decode"].seen.of(row[5])
        duet.recorders["decode"].record("chunks", fingerprint=row[5], chunks=chunks)
    result = integrity.check(duet.history())
    assert result.outcome == "violated"
    assert "what this instance's own work left there (zero-fill" in result.findings[0].what


def test_pages_are_advertised_after_their_clearing() -> None:
    duet = zeroed_late(set(GUARDS))
    refused = next(event for event in duet.events if event.kind == "refused")
    assert (refused.data["guard"], refused.data["refuses"]) == ("local-work-before-grant", "granted")
    assert "granted" not in kinds(duet)
    duet.decode.work.release("z1")
    duet.play()
    assert "finished" in kinds(duet)
    assert integrity.check(duet.history()).outcome == "held"


def test_a_request_that_ends_before_its_pages_are_cleared_is_never_granted_them() -> None:
    duet = zeroed_late(set(GUARDS))
    duet.decode.abort("r1")
    duet.decode.work.release("z1")
    duet.play()
    assert "granted" not in kinds(duet)
    assert duet.decode.leftovers() == dict.fromkeys(duet.decode.leftovers(), 0)


def test_a_chunk_that_is_posted_before_it_is_computed_brings_what_was_there() -> None:
    duet = computed_late(set(GUARDS) - {"compute-before-post"})
    assert "committed" in kinds(duet)
    duet.prefill.work.release("f1")
    result = integrity.check(duet.history())
    assert result.outcome == "violated"
    early = [finding for finding in result.findings if "before the forward of chunk 0 has run" in finding.what]
    assert len(early) == Lab().layers
    assert "r1 attempt 1 commits it" in early[0].what


def test_a_chunk_is_posted_after_its_forward() -> None:
    duet = computed_late(set(GUARDS))
    refused = next(event for event in duet.events if event.kind == "refused")
    assert (refused.data["guard"], refused.data["refuses"]) == ("compute-before-post", "posted")
    assert "posted" not in kinds(duet)
    duet.prefill.work.release("f1")
    duet.play()
    assert "finished" in kinds(duet)
    assert integrity.check(duet.history()).outcome == "held"


def test_a_chunk_of_an_attempt_that_ended_meanwhile_is_not_posted() -> None:
    duet = computed_late(set(GUARDS))
    duet.decode.abort("r1")
    duet.play()
    duet.prefill.work.release("f1")
    duet.play()
    assert "posted" not in kinds(duet)

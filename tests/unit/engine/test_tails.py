"""Bytes before commit: what was reported as written counts when it is there, and not before."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from duet import Duet

from checkers import conservation, integrity
from racelab.engine.guards import GUARDS
from racelab.evidence.events import Event
from racelab.scenario import Lab, Request
from racelab.transport.mooncake import Write

OWN = "bytes-before-commit"


class LyingDuet(Duet):
    """Writes complete with success before their bytes are there; `arrive` brings them."""

    def __init__(self, guards: Sequence[str], ranks: int = 1) -> None:
        super().__init__({"r1": Request(prompt_tokens=25, new_tokens=3)}, Lab(ranks=ranks), guards)
        self.submit("r1")
        self.written: list[tuple[Write, ...]] = []
        complete = self.wire._complete

        def lie(writes: tuple[Write, ...]) -> object:
            before = self.pools["decode"].kv.clone()
            completion = complete(writes)
            self.pools["decode"].kv[:] = before
            self.written.append(writes)
            return completion

        self.wire._complete = lie  # type: ignore[assignment,method-assign]

    def arrive(self) -> None:
        """What was reported as written is there now."""
        pools = {role: pool.kv.view(torch.uint8) for role, pool in self.pools.items()}
        for write in [write for writes in self.written for write in writes]:
            to, size = write.identity, write.identity.bytes
            block = to.layer if to.block is None else to.block
            count = self.pools["decode"].page_bytes
            target = pools["decode"].view(len(self.pools["decode"].blocks), -1, count)
            source = pools["prefill"].view(len(self.pools["prefill"].blocks), -1, count)
            target[block, to.page, :size] = source[block, write.source_page, :size]


def of(duet: Duet, kind: str) -> list[Event]:
    return [event for event in duet.events if event.kind == kind]


@pytest.mark.parametrize("ranks", [1, 2])
def test_success_without_bytes_is_not_committed(ranks: int) -> None:
    duet = LyingDuet(tuple(GUARDS), ranks)
    duet.play()
    refused = [event for event in of(duet, "refused") if event.data["guard"] == OWN]
    assert {event.data["refuses"] for event in refused} == {"committed"}
    assert of(duet, "committed") == []
    assert [event for event in of(duet, "grant-closed") if event.instance == "decode"] == []
    duet.arrive()
    duet.clock.advance(1_000)
    duet.play()
    assert len(of(duet, "finished")) == 1
    assert integrity.check(duet.history()).outcome == "held"


def test_what_never_arrives_is_never_committed_and_its_pages_are_kept() -> None:
    duet = LyingDuet(tuple(GUARDS))
    duet.play()
    history = duet.history()
    assert of(duet, "committed") == []
    assert {event.page for event in of(duet, "page-quarantined")} == {0, 1}
    assert conservation.check(history).outcome == "held"
    assert len([event for event in of(duet, "refused") if event.data["guard"] == OWN]) < 40


def test_without_the_guard_decode_answers_from_what_was_there() -> None:
    duet = LyingDuet(tuple(set(GUARDS) - {OWN}))
    duet.play()
    assert len(of(duet, "finished")) == 1
    result = integrity.check(duet.history())
    assert result.outcome == "violated"


def test_an_aborted_attempt_that_nobody_wrote_for_gives_its_pages_back() -> None:
    duet = Duet({"r1": Request(prompt_tokens=25)}, Lab(), tuple(GUARDS))
    duet.submit("r1")
    duet.decode.abort("r1")
    duet.play()
    assert of(duet, "page-quarantined") == []
    assert duet.decode.leftovers() == dict.fromkeys(duet.decode.leftovers(), 0)

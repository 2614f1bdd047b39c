"""Seeded bugs of pulls: each is put into a history of real engines that was right, and its checker says so."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import histories
import pytest
from duet import Duet
from histories import kind

from checkers import conservation, finality, integrity, isolation
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.scenario import Lab, Request

CHECKERS = {module.SPEC: module.check for module in (isolation, integrity, finality, conservation)}
REQUESTS = dict.fromkeys(("r1", "r2"), Request(prompt_tokens=13, new_tokens=2))
"""One page each; r2's is the one that r1 had, on both sides."""

Tamper = Callable[[History], History]


@cache
def pulled() -> History:
    duet = Duet(REQUESTS, Lab(transfer="pull"))
    for name in REQUESTS:
        duet.submit(name)
        duet.play()
    return duet.history()


@cache
def lapsed() -> History:
    """The lease of r1's page ends while r1 reads it; the page drains, and r1 answers."""
    duet = Duet(REQUESTS, Lab(transfer="pull"), ("drain-before-free", "quarantine-on-expiry"))
    duet.reads.held = True
    duet.submit("r1")
    duet.play()
    duet.pass_time(6_000)
    duet.reads.held = False
    duet.play()
    return duet.history()


def change(where: Callable[[Event], bool], **fields: object) -> Tamper:
    return lambda history: histories.changed(history, where, **fields)


def freed_before_the_reads(history: History) -> History:
    """Prefill gives r1's page back before it answers the claim that it honours."""
    free = kind("page-free", "prefill", request="r1")
    return histories.moved(history, free, kind("granted", "prefill", request="r1"))


SEEDED: list[tuple[str, Tamper, str, str, str]] = [
    ("the source's generation", change(kind("posted", request="r2"), data={"source_gen": 1}), "isolation", "violated",
     "reads source page 0 gen 1, which was never granted to it"),
    ("a source that is nobody's", change(kind("posted", request="r1"), data={"source_page": 7}), "isolation",
     "violated", "source page 7 gen 1, which was never granted to it"),
    ("a source of somebody else", change(kind("granted", "prefill", request="r2"), request="r1", attempt=1),
     "isolation", "violated", "which was never granted to it"),
    ("the source page is given back too early", freed_before_the_reads, "isolation", "violated",
     "reads source page 0 gen 1 after it ended"),
    ("where the bytes go", change(kind("posted", request="r1"), data={"address": 64}), "isolation", "unknown",
     "an address in no known page"),
    ("the page that the bytes go to", change(kind("posted", request="r2"), gen=1), "isolation", "violated",
     "never granted"),
    ("what the source held", change(kind("posted", request="r1"), data={"fingerprint": "feedfeedfeedfeed"}),
     "integrity", "violated", "its source had feedfeedfeedfeed"),
    ("a read that failed", change(kind("completed", request="r1"), data={"status": "failed"}), "conservation",
     "violated", "which proves nothing"),
    ("who acknowledges", lambda history: histories.changed(
        history, kind("grant-closed", "prefill", request="r1"),
        data={"by": next(filter(kind("sent", "decode", type="claim"), history.events)).data["id"]},
     ), "conservation", "violated", "'claim' acknowledges nothing"),
    ("the reader's acknowledgement of unclean reads", change(
        kind("sent", "decode", type="complete", request="r1"), data={"clean": False}
     ), "conservation", "violated", "not every write succeeded"),
    ("a page that is freed under its reader", lambda history: histories.without(
        history, kind("grant-closed", "prefill", request="r1")
     ), "conservation", "violated", "without stop evidence"),
]  # fmt: skip


@pytest.mark.parametrize("history", [pulled, lapsed])
def test_what_is_right_holds(history: Callable[[], History]) -> None:
    for spec, check in CHECKERS.items():
        result = check(history())
        assert (spec, result.outcome, result.findings) == (spec, "held", [])


@pytest.mark.parametrize(
    ("tamper", "spec", "outcome", "words"), [row[1:] for row in SEEDED], ids=[row[0] for row in SEEDED]
)
def test_a_seeded_bug_is_found_by_the_checker_whose_business_it_is(
    tamper: Tamper, spec: str, outcome: str, words: str
) -> None:
    result = CHECKERS[spec](tamper(pulled()))
    assert result.outcome == outcome
    told = [finding.what for finding in result.findings] + [result.why or ""]
    assert any(words in what for what in told), told


def test_what_a_late_read_took_is_told_with_whom_it_belonged_to() -> None:
    """r3 presents r1's reference when the page is r2's, and no guard looks."""
    duet = Duet(REQUESTS | {"r3": REQUESTS["r1"]}, Lab(transfer="pull"), ())
    duet.submit("r1")
    duet.play()
    duet.lose = lambda message: message.type == "complete" and message.request == "r2"
    duet.submit("r2")
    duet.play()
    duet.present("r3", "r1")
    duet.play()
    found = [each for each in isolation.check(duet.history()).findings if "r3 attempt 1 reads" in each.what]
    assert [(each.grade, each.instance, each.page, each.gen, each.owner) for each in found] == [
        ("consumed", "prefill", 0, 2, "r2 attempt 1 gen 2")
    ] * 2
    assert "and r3 attempt 1 took the bytes (committed)" in found[0].what

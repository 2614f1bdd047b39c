"""Seeded bugs: each is put into a history that was right, and the checker whose business it is says so.

The table reads: what was done to the history, which specification has to notice, with which
outcome, and words that its finding or its reason must have. An equivalent change is not flagged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import histories
import msgspec
import pytest
from histories import kind
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkers import conservation, finality, integrity, isolation
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.result import Checker
from racelab.verdict import judge

CHECKERS: Mapping[str, Checker] = {
    module.SPEC: module.check for module in (isolation, integrity, finality, conservation)
}

Tamper = Callable[[History], History]


@cache
def clean() -> History:
    return histories.play(histories.CLEAN, histories.LEDGER)


@cache
def late() -> History:
    return histories.play(histories.LATE_WRITE, histories.LEDGER)


@cache
def quarantined() -> History:
    return histories.play(histories.LATE_INTO_QUARANTINE, histories.LEDGER)


@cache
def stale() -> History:
    return histories.play(histories.STALE_MESSAGE, histories.LEDGER)


BASES: list[Callable[[], History]] = [clean, late, quarantined, stale]


def change(where: Callable[[Event], bool], **fields: object) -> Tamper:
    return lambda history: histories.changed(history, where, **fields)


def remove(where: Callable[[Event], bool]) -> Tamper:
    return lambda history: histories.without(history, where)


def repeat(where: Callable[[Event], bool], **fields: object) -> Tamper:
    return lambda history: histories.with_extra(history, where, **fields)


def move(what: Callable[[Event], bool], behind: Callable[[Event], bool]) -> Tamper:
    return lambda history: histories.moved(history, what, behind)


def fingerprint_changed(where: Callable[[Event], bool]) -> Tamper:
    def tamper(history: History) -> History:
        event = next(event for event in history.events if where(event))
        rows = [list(row) for row in event.data["fingerprints"]]
        rows[-1][5] = "feedfeedfeedfeed"
        return histories.changed(history, where, data={"fingerprints": rows})

    return tamper


def landing_moved(history: History) -> History:
    """The first held write is let go once the gate has heard that its page was freed."""
    freed = kind("page-free", "decode", request="r1", page=0)
    moved = histories.moved(history, kind("released", what="w1"), freed)
    moved = histories.moved(moved, kind("landed", what="w1"), kind("released", what="w1"))
    end = next(event for event in moved.events if freed(event))
    return histories.changed(moved, kind("released", what="w1"), after={"decode": end.seq})


R1_PAGE = kind("page-private", "decode", request="r1", page=0)

BUGS: list[tuple[str, Callable[[], History], Tamper, str, str, str]] = [
    # owners
    ("a page's owner", clean, change(R1_PAGE, request="r2"), "isolation", "violated", "while the page belongs to r2"),
    ("a page's attempt", clean, change(R1_PAGE, attempt=2), "conservation", "violated", "granted on behalf of r1"),
    ("a grant's owner", clean, change(kind("granted", "decode"), request="r9"), "isolation", "violated",
     "never granted"),
    ("a write's owner", clean, change(kind("posted"), request="r2"), "isolation", "violated", "never granted"),
    ("a reader", clean, change(kind("read", request="r1"), request="r2"), "isolation", "violated", "takes page"),
    ("a release's owner", clean, change(kind("page-free", "decode"), request="r2"), "conservation", "violated",
     "is released by r2"),
    # generations
    ("a page's generation", clean, change(R1_PAGE, gen=7), "conservation", "violated", "which never began"),
    ("a write's generation", clean, change(kind("posted"), gen=2), "isolation", "violated", "never granted"),
    ("a grant's generation", clean, change(kind("granted", "decode"), gen=2), "conservation", "violated",
     "which never began"),
    ("a release's generation", clean, change(kind("page-free", "decode", request="r2"), gen=1), "conservation",
     "violated", "a second time"),
    ("evidence of another generation", clean, change(kind("grant-closed", "decode", request="r2"), gen=1),
     "conservation", "violated", "without stop evidence"),
    # fingerprints
    ("a committed fingerprint", clean, fingerprint_changed(kind("committed")), "integrity", "violated", "never seen"),
    ("a read fingerprint", clean, fingerprint_changed(kind("read")), "integrity", "violated", "never seen"),
    ("a posted fingerprint", clean, change(kind("posted"), data={"fingerprint": "feedfeedfeedfeed"}), "integrity",
     "violated", "its source had feedfeedfeedfeed"),
    # evidence
    ("evidence removed", clean, remove(kind("grant-closed", "decode", page=0, gen=1)), "conservation", "violated",
     "without stop evidence"),
    ("evidence of no worth", clean, change(kind("grant-closed", "decode"), data={"evidence": "timeout"}),
     "conservation", "violated", "'timeout' is no stop evidence"),
    ("evidence after the fact", clean, move(kind("grant-closed", "decode", page=0, gen=1),
                                           kind("page-free", "decode", page=0, gen=1)),
     "conservation", "violated", "evidence came only later"),
    ("a completion that failed", clean, change(kind("completed"), data={"status": "failed"}), "conservation",
     "violated", "proves nothing"),
    ("an acknowledgement that is none", clean, change(kind("grant-closed", "decode"),
                                                           data={"evidence": "acknowledged"}),
     "conservation", "violated", "acknowledges nothing"),
    # order across a causal edge
    ("a landing behind its page's end", late, landing_moved, "isolation", "violated", "after page 0 gen 1 ended"),
    ("a commit ahead of its bytes", clean, move(kind("completed", writes=["w1"]), kind("finished", request="r1")),
     "conservation", "violated", "w1"),
    # terminal events
    ("an end removed", late, remove(kind("timed-out")), "finality", "violated", "r1 attempt 1"),
    ("an end doubled", clean, repeat(kind("finished", request="r1")), "finality", "violated", "ended twice"),
    ("an end too late", late, change(kind("timed-out"), clock_ms=20_001), "finality", "violated", "more than 20,000"),
    ("a drain without an end", quarantined, remove(kind("page-quarantined", "decode", page=0)), "finality", "violated",
     "has been draining for"),
    # books
    ("a doubled free", clean, repeat(kind("page-free", "decode", page=0, gen=1)), "conservation", "violated",
     "a second time"),
    ("a doubled allocation", clean, repeat(kind("page-private", "decode", page=0, gen=1)), "conservation", "violated",
     "while it is PRIVATE"),
    ("a page that left quarantine", quarantined, repeat(kind("page-quarantined", "decode"), kind="page-free",
                                                        data={"from": "QUARANTINED", "why": "late"}),
     "conservation", "violated", "leaves quarantine"),
    ("a page that is missing at rest", clean, change(kind("quiesced", "decode"), data={"states": {"FREE": 5}}),
     "conservation", "violated", "of a pool of 6"),
    ("a grant that is left at rest", clean, change(kind("quiesced", "prefill"), data={"leftovers": {"grants": 1}}),
     "conservation", "violated", "has 1 grants left"),
    ("an instance that never came to rest", clean, remove(kind("quiesced", "prefill")), "conservation", "unknown",
     "prefill never reported itself at rest"),
    # addresses
    ("an address of the next page", clean, change(kind("posted"), data={"address": 0x7000_0000 + 5 * 16 * 1024}),
     "isolation", "violated", "outside of page"),
    ("an address of nobody", clean, change(kind("posted"), data={"address": 64}), "isolation", "unknown",
     "an address in no known page"),
    ("a source page of nobody", clean, change(kind("posted"), data={"source_page": 7}), "isolation", "violated",
     "reads source page 7"),
    # messages
    ("a refusal removed", stale, remove(kind("refused", refuses="committed")), "isolation", "violated",
     "is obeyed while r1 attempt 2 is live"),
    # gates
    ("a write that was not announced", clean, change(kind("counted", "wire"), data={
        "counts": {"in": 1, "in_kernel": 1, "unannounced": 1}}), "isolation", "unknown", "nobody had announced"),
]  # fmt: skip


@pytest.mark.parametrize(("base", "tamper", "spec", "outcome", "words"), [row[1:] for row in BUGS],
                         ids=[row[0] for row in BUGS])  # fmt: skip
def test_a_seeded_bug_is_caught_and_named(
    base: Callable[[], History], tamper: Tamper, spec: str, outcome: str, words: str
) -> None:
    assert CHECKERS[spec](base()).outcome == "held"
    result = CHECKERS[spec](tamper(base()))
    said = " | ".join([finding.what for finding in result.findings] + [result.why or ""])
    assert result.outcome == outcome, said
    assert words in said


INCONCLUSIVE: list[tuple[str, Tamper, str]] = [
    ("a look removed", remove(kind("look", why="before-release")), "did not look"),
    ("a look that saw other bytes", change(kind("look", why="after-landing", page=1),
                                           data={"fingerprint": "feedfeedfeedfeed"}), "sees other bytes"),
    ("counts that disagree", change(kind("counted", "wire"), data={
        "counts": {"in": 5, "in_kernel": 6, "unannounced": 0}}), "differ from the kernel's"),
    ("a write past the gate", change(kind("counted", "wire"), data={"counts": {"unannounced": 1}}), "unannounced"),
    ("bytes on another transport", change(kind("sockets"), data={"acked": 1}), "carried 1 bytes"),
    ("a landing removed", remove(kind("landed", what="w1")), "neither went on nor was lost"),
    ("another thing held", change(kind("held", "wire"), request="r2"), "disagree about write w1: request"),
    ("a refusal that is not there", change(kind("blocked"), data={"by": ["decode", 1]}), "no refusal"),
]  # fmt: skip


@pytest.mark.parametrize(("tamper", "words"), [row[1:] for row in INCONCLUSIVE], ids=[row[0] for row in INCONCLUSIVE])
def test_an_unsound_injection_is_inconclusive(tamper: Tamper, words: str) -> None:
    assert judge(late(), CHECKERS).verdict == "prevented"
    verdict = judge(tamper(late()), CHECKERS)
    assert verdict.verdict == "inconclusive"
    assert words in verdict.why


@pytest.mark.parametrize("base", [clean, late, stale], ids=["clean", "late", "stale"])
def test_every_changed_owner_generation_or_fingerprint_is_noticed(base: Callable[[], History]) -> None:
    """Each event in turn: one owner, attempt, generation or fingerprint is another one."""
    passing = judge(base(), CHECKERS).verdict
    unnoticed = [
        (event.kind, field)
        for index, event in enumerate(base().events)
        for field, change in alterations(event)
        if judge(with_event(base(), index, change), CHECKERS).verdict == passing
    ]
    assert set(unnoticed) <= TELL_NOTHING


TELL_NOTHING = {
    ("refused", "request"),  # of a refusal about no page: nobody else speaks of it
    ("refused", "attempt"),
    ("look", "fingerprint"),  # before the release: whatever was there, it was there before
    ("posted", "fingerprint"),  # of a write that nobody consumed
}


def alterations(event: Event) -> list[tuple[str, dict[str, object]]]:
    found: list[tuple[str, dict[str, object]]] = []
    if event.request is not None:
        found.append(("request", {"request": "r2" if event.request == "r1" else "r1"}))
    if event.attempt is not None:
        found.append(("attempt", {"attempt": event.attempt + 1}))
    if event.gen is not None:
        found.append(("gen", {"gen": event.gen + 1}))
    if "fingerprint" in event.data:
        found.append(("fingerprint", {"data": event.data | {"fingerprint": "feedfeedfeedfeed"}}))
    for number in range(len(event.data.get("fingerprints", ()))):
        rows = [list(row) for row in event.data["fingerprints"]]
        rows[number][5] = "feedfeedfeedfeed"
        found.append(("fingerprints", {"data": event.data | {"fingerprints": rows}}))
    return found


def with_event(history: History, index: int, change: dict[str, object]) -> History:
    events = list(history.events)
    events[index] = msgspec.structs.replace(events[index], **change)
    return History(history.header, events)


EQUIVALENT: list[tuple[str, Tamper]] = [
    ("another clock rate", lambda history: retimed(history, 7)),
    ("events of unrelated processes the other way round",
     move(kind("armed", "bus"), kind("step-done", n=6))),
    ("a refused duplicate of a completion", lambda history: duplicate_refused(history)),
    ("a queued request that got its pages", repeat(kind("submitted", request="r2"), kind="queued",
                                                   data={"needs": 2, "free": 1})),
    ("a grant closed twice", repeat(kind("grant-closed", "decode", page=2))),
]  # fmt: skip


def retimed(history: History, factor: int) -> History:
    start = history.events[0].hlc
    events = [msgspec.structs.replace(event, hlc=start + (event.hlc - start) * factor) for event in history.events]
    return History(history.header, events)


def duplicate_refused(history: History) -> History:
    received = kind("received", "decode", request="r2", type="written")
    again = histories.with_extra(history, received)
    return histories.with_extra(again, received, kind="refused", data={
        "guard": "control-carries-generation", "refuses": "committed", "why": "it was counted already"})  # fmt: skip


@pytest.mark.parametrize("tamper", [row[1] for row in EQUIVALENT], ids=[row[0] for row in EQUIVALENT])
def test_an_equivalent_history_is_not_flagged(tamper: Tamper) -> None:
    verdict = judge(tamper(late()), CHECKERS)
    assert (verdict.verdict, verdict.specs) == ("prevented", dict.fromkeys(CHECKERS, "held")), verdict.why


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_loss_is_ever_a_pass(data: st.DataObject) -> None:
    """Whatever is cut out of a history, the verdict never becomes a pass that it was not."""
    base = data.draw(st.sampled_from(BASES))()
    first = data.draw(st.integers(1, len(base.events) - 2))
    count = data.draw(st.integers(1, 3))
    history = History(base.header, base.events[:first] + base.events[first + count :])
    cut = base.events[first : first + count]
    first_of = {event.instance: event.seq for event in reversed(history.events)}
    last_of = {event.instance: event.seq for event in history.events}
    inner = [event for event in cut if first_of.get(event.instance, event.seq) < event.seq < last_of[event.instance]]
    verdict = judge(history, CHECKERS)
    if inner:
        assert verdict.verdict == "inconclusive"
        assert verdict.checks["events_lost"] >= len(inner)
    assert not any("its checker failed" in (result.why or "") for result in verdict.results.values())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_odd_histories_crash_nothing(data: st.DataObject) -> None:
    """Fields and order thrown about: an answer comes all the same."""
    base = data.draw(st.sampled_from(BASES))()
    events = [msgspec.structs.replace(event) for event in base.events]
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.integers(0, len(events) - 1))
        match data.draw(st.sampled_from(["drop", "double", "swap", "field"])):
            case "drop":
                del events[index]
            case "double":
                events.insert(index, events[index])
            case "swap":
                other = data.draw(st.integers(0, len(events) - 1))
                events[index], events[other] = events[other], events[index]
            case _:
                field = data.draw(st.sampled_from(["request", "attempt", "page", "gen"]))
                value = data.draw(st.sampled_from([None, "r9"] if field == "request" else [None, 0, 1, 2, 99]))
                events[index] = msgspec.structs.replace(events[index], **{field: value})
    verdict = judge(History(base.header, histories.renumbered(events)), CHECKERS)
    assert not any("its checker failed" in (result.why or "") for result in verdict.results.values())


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(2, 60), st.integers(1, 4)), min_size=1, max_size=6),
    st.sampled_from([(), histories.LEDGER]),
)
def test_clean_serving_of_any_size_is_never_flagged(sizes: list[tuple[int, int]], guards: tuple[str, ...]) -> None:
    requests = "".join(f"  q{n}: {{prompt-tokens: {p}, new-tokens: {t}}}\n" for n, (p, t) in enumerate(sizes))
    steps = "".join(f"  - submit: q{n}\n  - await: {{event: finished, request: q{n}}}\n" for n in range(len(sizes)))
    history = histories.play(f"scenario: any\nabout: any\nrequests:\n{requests}steps:\n{steps}", guards)
    verdict = judge(history, CHECKERS)
    assert (verdict.verdict, verdict.evidence) == ("not-reproduced", []), verdict.why

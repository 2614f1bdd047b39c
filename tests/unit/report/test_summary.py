from __future__ import annotations

import made_by_hand
import pytest

from racelab.report.ownership import Book
from racelab.report.summary import (
    also_tried,
    grouped,
    headline,
    label_words,
    replay_command,
    spec_rows,
    token_rows,
    wrong_answers,
)


def test_the_headline_of_a_race_names_writer_owner_pages_moment_and_wrong_answer() -> None:
    sentence = headline(made_by_hand.eager()[1])
    for words in ("4 writes of r1 attempt 1 gen 1", "pages 4 and 5", "r2 attempt 1 gen 2", " ms", "31 87 12 4"):
        assert words in sentence


@pytest.mark.parametrize("word", ["diverged", "inconclusive", "not-reproduced"])
def test_other_headlines_give_the_reason(word: str) -> None:
    assert "event(s) are lost" in headline({"verdict": word, "why": "3 event(s) are lost"})


def test_findings_that_differ_in_page_and_moment_only_are_told_once() -> None:
    verdict = made_by_hand.eager()[1]
    (finding,) = grouped(verdict)
    assert finding.number == len(verdict["evidence"]) == 4
    assert finding.pages == [4, 5]


def test_findings_of_different_writers_are_told_apart() -> None:
    verdict = made_by_hand.eager()[1]
    verdict["evidence"][0]["writer"] = "r9 attempt 1 gen 1"
    assert len(grouped(verdict)) == 2


def test_what_else_was_tried_is_told() -> None:
    lines = also_tried(
        {
            "verdicts": {"prevented": 199, "moved": 1},
            "equivalents": [{"what": "without drain-before-free", "verdict": "reproduced"}],
        }
    )
    assert lines == ["200 runs of this schedule: prevented 199, moved 1", "without drain-before-free: reproduced"]


def test_a_count_of_forced_runs_is_never_a_natural_rate() -> None:
    (line,) = also_tried({"verdicts": {"reproduced": 200}})
    assert "how often it happens by itself is another question" in line


def test_a_prevented_headline_says_what_happens_without_the_guard() -> None:
    verdict = made_by_hand.ledger()[1] | {"equivalents": [{"what": "without x", "verdict": "reproduced"}]}
    assert headline(verdict).endswith("nothing is violated; without x the same schedule is reproduced.")


def test_the_answer_of_the_request_whose_memory_it_was_stands_first() -> None:
    verdict = made_by_hand.eager()[1]
    verdict["tokens"].insert(0, {"request": "r1", "expected": [1], "got": [2]})
    assert [row.request for row in wrong_answers(verdict)] == ["r2", "r1"]


def test_a_finding_without_page_or_time_is_told_in_its_own_words() -> None:
    finding = {"spec": "finality", "grade": "stuck", "instance": "decode", "what": "r3 waits for pages for ever."}
    (told,) = grouped({"evidence": [finding]})
    assert told.sentence() == "r3 waits for pages for ever"


def test_specifications_say_what_was_looked_at_or_why_not() -> None:
    rows = spec_rows(
        {
            "specs": {"isolation": "held", "integrity": "unknown"},
            "coverage": {"isolation": {"landings": 8}},
            "unknown": {"integrity": "no reads were reported"},
        }
    )
    told = {row.name: (row.outcome, row.basis) for row in rows}
    assert told["isolation"] == ("held", "coverage: 8 landings")
    assert told["integrity"] == ("unknown", "no reads were reported")
    assert told["finality"][0] == "unknown"


@pytest.mark.parametrize(
    ("got", "different"), [([1, 2, 3], set()), ([1, 9, 3], {1}), ([1, 2], {2}), ([1, 2, 3, 4], {3})]
)
def test_tokens_differ_by_place(got: list[int], different: set[int]) -> None:
    (row,) = token_rows({"tokens": [{"request": "r2", "expected": [1, 2, 3], "got": got}]})
    assert row.different == different
    assert row.differs == bool(different)


@pytest.mark.parametrize("label", ["default-timers", "shortened: request-timeout-ms 10000 -> 500", "synthetic: why"])
def test_a_label_says_what_it_means(label: str) -> None:
    words = label_words(label)
    assert words.startswith(label)
    assert len(words) > len(label)


def test_the_replay_command_repeats_what_was_asked() -> None:
    verdict = {"scenario": "a b", "policy": "ledger", "without": ["x"], "seed": 3, "cluster": "local"}
    assert replay_command(verdict) == "racelab run 'a b' --policy ledger --without x --seed 3"
    assert replay_command(verdict | {"replay": "make it so"}) == "make it so"


def test_the_book_knows_whose_page_a_late_write_meets() -> None:
    history, _ = made_by_hand.eager()
    book = Book()
    met = []
    for event in history.events:
        book.see(event)
        if event.kind == "landed":
            met.append(book.meets(event))
    assert met == ["r2 owns the page now (gen 2)"] * 4


def test_the_book_keeps_draining_and_free_apart() -> None:
    tape = made_by_hand.Tape()
    tape.at("decode", "granted", "r1", page=1, gen=1, to="prefill", bytes=1)
    book = Book()
    write = tape.post("r1", 1, 1, 0, 0, "gate")
    told = []
    for kind, state in (("page-private", "FREE"), ("page-draining", "PRIVATE"), ("page-free", "DRAINING")):
        tape.at("decode", kind, "r1", page=1, gen=1, from_=state, why="x")
    for event in tape.events:
        book.see(event)
        told.append(book.meets(write))
    assert told[-3:] == [None, "the page is DRAINING", "the page is FREE"]


def test_what_was_merely_exposed_is_not_what_was_violated() -> None:
    verdict = made_by_hand.eager()[1]
    exposed = verdict["evidence"][0] | {"grade": "exposed", "what": "page 9 gen 1 ended while r1 could reach it"}
    said = headline(verdict | {"verdict": "moved", "evidence": [exposed, *verdict["evidence"]]})
    assert "page 9" not in said
    assert "4 writes of r1" in said


def test_the_book_looks_at_the_page_of_the_instance_that_a_write_is_for() -> None:
    tape = made_by_hand.Tape()
    tape.at("decode", "granted", "r1", page=1, gen=1, to="prefill", bytes=1)
    tape.at("decode", "page-free", "r1", page=1, gen=1, from_="PRIVATE", why="x")
    tape.at("decode-2", "page-private", "r2", page=1, gen=1, from_="FREE")
    write = tape.post("r2", 1, 1, 0, 0, "gate")
    write.data["to"] = "decode-2"
    book = Book()
    for event in tape.events:
        book.see(event)
    assert book.meets(write) is None
    del write.data["to"]
    elsewhere = Book()
    for event in tape.events:
        elsewhere.see(event)
    assert elsewhere.meets(write) == "the page is FREE"

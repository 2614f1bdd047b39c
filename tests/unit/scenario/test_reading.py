"""Scenario files: what loads, what is refused and where, and that a dump loads equal."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from racelab import scenario
from racelab.errors import DocumentError
from racelab.scenario import Lab, Request, Scenario
from racelab.scenario.steps import (
    VERBS,
    Armed,
    Await,
    Delay,
    Duplicate,
    Expect,
    Hold,
    MessageMatch,
    Pass,
    Release,
    Reset,
    Step,
    Submit,
    WriteMatch,
    read_aloud,
)
from racelab.shipped import shipped

GOOD = """\
scenario: small
about: One held write.
requests:
  r1: {}
steps:
  - hold: {id: w1, write: {request: r1, layer: 0}, count: 2}
  - submit: r1
  - await: {event: held, hold: w1}
  - release: w1
"""


def problems(text: str) -> list[tuple[int | None, str]]:
    with pytest.raises(DocumentError) as caught:
        scenario.loads(text, "s.yaml")
    return [(problem.line, problem.what) for problem in caught.value.problems]


def test_a_scenario_reads_as_it_is_written() -> None:
    loaded = scenario.loads(GOOD)
    assert loaded.requests == {"r1": Request()}
    assert loaded.steps == [
        Hold(id="w1", write=WriteMatch(request="r1", layer=0), count=2),
        Submit(request="r1"),
        Await(event="held", hold="w1"),
        Release(hold="w1"),
    ]
    assert [read_aloud(step) for step in loaded.steps] == [
        "hold w1: 2 write(s) with request r1, layer 0",
        "submit r1",
        "await held: everything that w1 asked for",
        "release w1",
    ]


@pytest.mark.parametrize("path", sorted(shipped("scenarios").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_scenarios_load_and_dump_equal(path: Path) -> None:
    loaded = scenario.load(path)
    assert loaded.scenario == path.stem
    assert scenario.loads(scenario.dump(loaded)) == loaded


def test_what_a_gate_is_asked_for_reads_aloud() -> None:
    write, message = WriteMatch(request="r1", bytes=(0, 4096)), MessageMatch(type="written", request="r1")
    assert [read_aloud(step) for step in asked(write, message)] == [
        "hold s1: 4 write(s) with request r1, bytes 0-4096, as lose-completion",
        "pass p1: every write(s) with request r1, bytes 0-4096",
        "delay d1: every message(s) with type written, request r1, later by normal 5, 1 ms",
        "duplicate u1: 1 message(s) with type written, request r1",
        "release w1, the last one first",
        "reset the connections of w1",
    ]


def asked(write: WriteMatch, message: MessageMatch) -> list[Step]:
    return [
        Hold(id="s1", write=write, count=4, action="lose-completion"),
        Pass(id="p1", write=write),
        Delay(id="d1", message=message, ms={"normal": [5.0, 1.0]}),
        Duplicate(id="u1", message=message),
        Release(hold="w1", order="reversed"),
        Reset(hold="w1"),
    ]


def test_every_problem_is_listed_with_its_line() -> None:
    text = """\
scenario: broken
abuot: a typo
requests:
  r1: {prompt-token: 3}
steps:
  - sumbit: r1
  - submit: r2
  - release: w1
  - await: {event: held}
    release: w1
"""
    assert problems(text) == [
        (1, "missing key 'about'"),
        (2, "unknown key 'abuot'; did you mean 'about'?"),
        (4, "unknown key 'prompt-token'; did you mean 'prompt-tokens'?"),
        (6, "unknown step 'sumbit'; did you mean 'submit'?"),
        (7, "no request 'r2' under requests; known here: r1"),
        (8, "no hold 'w1' before this step"),
        (9, f"a step is a mapping with one verb of {', '.join(VERBS)}, repeat"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ("{id: w1, write: {request: r1, layer: 0}, count: 2}", "{id: w1}", 6, "a hold takes one of"),
        ("count: 2", "count: -1", 6, "count must be at least 1"),
        ("count: 2", "count: many", 6, "expected int, got str"),
        ("write: {request: r1, layer: 0}", "write: {requets: r1}", 6, "did you mean 'request'?"),
        ("write: {request: r1, layer: 0}", "write: {request: r7}", 6, "no request 'r7'"),
        ("r1: {}", "r1: {prompt-tokens: 4000}", 4, "more than a pool has"),
        ("r1: {}", "r1: {prompt-tokens: 1}", 4, "a prompt of 2 tokens"),
        ("r1: {}", "r1: {}\n  probe: {}", 5, "is kept for the request that follows the drain"),
        ("r1: {}", "r1: {stop-at: 4}", 4, "stop-at is the index of one of the new tokens"),
        ("  - submit: r1", "  - submit: {request: r1, transfer-id: [7]}", 7, "transfer-id: expected"),
        ("  - submit: r1", "  - abort: {request: r1, at: client}", 7, "no instance 'client' in this lab"),
        ("r1: {}", "r1: {prefix: system}", 4, "'prefix' and 'prefix-tokens' go together"),
        ("r1: {}", "r1: {prefix-tokens: 3}", 4, "'prefix' and 'prefix-tokens' go together"),
        ("r1: {}", "r1: {prefix: system, prefix-tokens: 25}", 4, "at least 1 token of the prompt's own"),
        ("release: w1", "release: {hold: w1, corrupt: -1}", 9, "0 at least"),
        ("release: w1", "release: {hold: w1, tear: 0}", 9, "1 at least"),
        ("release: w1", "release: {hold: w1, tear: 9, corrupt: 9}", 9, "and not corrupt and tear"),
        (
            "  - submit: r1",
            "  - hold: {id: m, message: {type: written}}\n  - release: {hold: m, corrupt: 1}",
            8,
            "only a held write, read or notification can be torn or have a byte changed",
        ),
        ("about: One", "lab: {page-tokens: 16, chunk-tokens: 24}\nabout: One", 2, "multiple of page-tokens"),
        ("about: One", "spec: safety\nabout: One", 2, "safety"),
        ("about: One", "victim: r9\nabout: One", 2, "no request 'r9'"),
        ("about: One", "scenario: again\nabout: One", 2, "stands twice"),
        ("  - submit: r1", "  - submit: r1\n  - expect: {claim: reuses, request: r1}", 8, "'of' goes with"),
        ("  - submit: r1", "  - hold: {id: w1, write: {request: r1}}", 7, "armed twice"),
        ("  - submit: r1", "  - pass: {id: w1, write: {request: r1}}", 7, "armed twice"),
        ("  - submit: r1", "  - pass: {id: p, write: {request: r1}, count: -1}", 7, "count must be at least 1"),
        ("  - submit: r1", "  - delay: {id: d, write: {request: r1}}", 7, "missing key 'ms'"),
        ("  - submit: r1", "  - delay: {id: d, write: {request: r1}, ms: {normal: [5]}}", 7, "normal takes 2 number"),
        ("  - submit: r1", "  - delay: {id: d, write: {request: r1}, ms: {gauss: 5}}", 7, "one distribution of const"),
        ("  - submit: r1", "  - delay: {id: d, write: {request: r1}, ms: {uniform: [5, 1]}}", 7, "least delay comes"),
        ("  - submit: r1", "  - duplicate: {id: u, write: {request: r1}}", 7, "only a message can be duplicated"),
        (
            "  - submit: r1",
            "  - hold: {id: m, message: {type: written}, action: lose-completion}",
            7,
            "only a write can be a lose-completion",
        ),
        (
            "  - submit: r1",
            "  - hold: {id: m, message: {type: written}}\n  - reset: m",
            8,
            "only the connections of held writes can be reset",
        ),
        (
            "  - submit: r1",
            "  - delay: {id: d, write: {request: r1}, ms: {constant: 5}}\n  - drop: d",
            8,
            "what it stops goes on by itself",
        ),
        (
            "  - submit: r1",
            "  - hold: {id: s, write: {request: r1}, action: lose-completion}\n  - release: {hold: s, tear: 5}",
            8,
            "and not with 'tear'",
        ),
        ("release: w1", "release: {hold: w1, order: backwards}", 9, "'backwards' is not one of reversed"),
        ("  - submit: r1", "  - hold: {gate: warp}", 7, "known here: id, write, message, work, count"),
        ("  - submit: r1", "  - hold: {gate: warp}", 7, "payload, read"),
        (
            "event: held, hold: w1",
            "event: hold, hold: w1",
            8,
            "no event has the kind 'hold'; did you mean 'told' or 'held'?",
        ),
        ("event: held, hold: w1", "event: held", 8, "await held names its hold"),
        ("event: held, hold: w1", "event: held, hold: w1, count: 2, request: r1", 8, "leave request and count out"),
        ("event: held, hold: w1", "event: rest, hold: w1", 8, "await rest waits for all that is on its way"),
        ("event: held, hold: w1", "event: finished, hold: w1", 8, "an event 'finished' is of no hold"),
        ("  - submit: r1", "  - abort: r1\n  - submit: r1", 7, "r1 is not submitted before this step"),
        ("event: held, hold: w1", "event: finished, request: r2", 8, "no request 'r2' under requests"),
        ("about: One", "lab: {control-qos: 2}\nabout: One", 2, "control-qos: 2 is not one of 0, 1"),
        ("about: One", "expected: {eager: reproduced, ledger: preventd}\nabout: One", 2, "did you mean 'prevented'?"),
        ("about: One", "expected: prevented\nabout: One", 2, "expected: expected object, got str ('prevented')"),
        ("about: One", "sources:\n  - a\n  - [b]\nabout: One", 4, "sources: expected str, got array"),
        ("write: {request: r1, layer: 0}", "write: {bytes: [9, 9]}", 6, "bytes is a range"),
        ("  - submit: r1", "  - hold: {id: n, notify: {request: r1}}", 7, "needs 'lab: {news: notify}'"),
        ("write: {request: r1, layer: 0}", "notify: r1", 6, "expected a mapping"),
        ("write: {request: r1, layer: 0}", "batch: {request: r1, layer: 0}", 6, "it has no layer of its own"),
    ],
)
def test_one_mistake_is_one_message_at_its_line(old: str, new: str, line: int, what: str) -> None:
    assert old in GOOD
    found = problems(GOOD.replace(old, new, 1))
    assert any(where == line and what in said for where, said in found), found


def test_problems_of_every_kind_are_one_list_and_lead_to_no_others() -> None:
    """Types, choices, unknown keys, sizes and names, and no 'no request' of one that is there and misspelt within."""
    text = """\
scenario: broken
about: All at once.
spec: speed
lab: {ranks: 3, page-token: 8, decode-pages: some}
requests:
  r1: {prompt-tokens: -5, new-token: 3, timeout-ms: 0}
  r2: {prompt-tokens: many}
steps:
  - hold: {id: w1, wirte: {request: r1}}
  - submit: r1
  - submit: r3
  - await: {event: finisht, request: r1}
  - release: w1
victim: r9
"""
    assert problems(text) == [
        (3, "spec: 'speed' is not one of isolation, integrity, finality, conservation"),
        (4, "unknown key 'page-token'; did you mean 'page-tokens'?"),
        (4, "decode-pages: expected int, got str ('some')"),
        (4, "ranks: one of 1, 2, 4, 8, which divide the heads evenly"),
        (6, "unknown key 'new-token'; did you mean 'new-tokens'?"),
        (6, "a request needs a prompt of 2 tokens and 1 new token at least, not prompt-tokens -5"),
        (6, "timeout-ms must be at least 1"),
        (7, "prompt-tokens: expected int, got str ('many')"),
        (9, "unknown key 'wirte'; did you mean 'write'?"),
        (11, "no request 'r3' under requests; known here: r1, r2"),
        (12, "no event has the kind 'finisht'; did you mean 'finished'?"),
        (14, "no request 'r9' under requests"),
    ]


def test_what_depends_on_a_step_that_cannot_be_read_is_no_second_problem() -> None:
    text = GOOD.replace("- hold:", "- hodl:").replace("- submit:", "- sumbit:").replace("hold: w1}", "hold: w9}")
    assert problems(text) == [
        (6, "unknown step 'hodl'; did you mean 'hold'?"),
        (7, "unknown step 'sumbit'; did you mean 'submit'?"),
        (8, "no hold 'w9' before this step"),
    ]


def test_lab_and_requests_are_looked_at_where_there_are_no_steps() -> None:
    found = problems("scenario: s\nabout: x\nlab: {ranks: 3}\nrequests:\n  r1: {prompt-tokens: 0}\n")
    assert [line for line, _ in found] == [1, 3, 5], found


@pytest.mark.parametrize(
    "text", ["", "[]", "just words", "scenario: [unclosed", "a: b: c", "\tx: 1", "? [1]\n: 2", "a: !x y"]
)
def test_what_is_no_scenario_at_all_is_refused(text: str) -> None:
    assert problems(text)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"nowhere\.yaml: cannot be read") as caught:
        scenario.load(tmp_path / "nowhere.yaml")
    assert ":1:" not in str(caught.value)


def test_what_is_no_yaml_says_where_and_what_to_do() -> None:
    with pytest.raises(DocumentError) as caught:
        scenario.loads("scenario: [unclosed\nabout: x\n", "s.yaml")
    assert str(caught.value).startswith("s.yaml:2: not YAML:")
    assert caught.value.next


names = st.sampled_from(["r1", "r2"])
ranges = st.none() | st.just((0, 4096))
writes = st.builds(
    WriteMatch, request=names, attempt=st.none() | st.integers(1, 3), layer=st.none() | st.integers(0, 1), bytes=ranges
)
messages = st.builds(MessageMatch, type=st.sampled_from(["written", "reserve"]), request=names)
distributions = st.sampled_from([{"normal": [5.0, 1.0]}, {"constant": 3.0}, {"uniform": [0.0, 2.5]}])
holds = st.builds(Hold, id=st.sampled_from(["a"]), write=writes, count=st.integers(1, 9)) | st.builds(
    Hold, id=st.sampled_from(["b"]), message=messages, mechanism=st.just("broker-backlog")
)
holds |= st.builds(Pass, id=st.just("c"), write=writes, count=st.integers(0, 3))
holds |= st.builds(Delay, id=st.just("d"), message=messages, ms=distributions)
holds |= st.builds(Duplicate, id=st.just("e"), message=messages, count=st.integers(1, 2))
steps = st.one_of(
    st.builds(Submit, request=names),
    st.builds(
        Await, event=st.just("finished"), request=names, attempt=st.none() | st.integers(1, 2), new=st.booleans()
    ),
    st.builds(Expect, claim=st.just("reuses"), request=names, of=names),
)


@settings(deadline=None)
@given(
    lab=st.builds(Lab, decode_pages=st.integers(2, 9), request_timeout_ms=st.integers(1, 99_999)),
    first=holds,
    rest=st.lists(steps, min_size=1, max_size=6),
    about=st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1),
)
def test_any_scenario_dumps_and_loads_equal(lab: Lab, first: Armed, rest: list[Step], about: str) -> None:
    made = Scenario(
        scenario="made",
        about=about,
        lab=lab,
        requests={"r1": Request(), "r2": Request(salt="s", prefix="p", prefix_tokens=7)},
        steps=[first, Submit(request="r1"), Submit(request="r2"), *rest],
    )
    assert scenario.loads(scenario.dump(made)) == made
    assert msgspec.json.decode(msgspec.json.encode(made), type=Scenario) == made


@pytest.mark.parametrize("value", ["7", "-1", "[1]", "{a: 1}", "null", "true", "1.5", "{}", "[]"])
@pytest.mark.parametrize("key", ["spec", "guard", "race", "victim", "origin", "sources", "lab", "expected"])
def test_no_value_of_any_key_crashes_the_reader(key: str, value: str) -> None:
    with contextlib.suppress(DocumentError):
        scenario.loads(f"{key}: {value}\n{GOOD}")


@settings(deadline=None)
@given(st.text(max_size=200))
def test_no_text_crashes_the_reader(text: str) -> None:
    with contextlib.suppress(DocumentError):
        scenario.loads(text)


PULLED = """
scenario: pulled
about: reads are held
lab: {transfer: pull}
requests:
  r1: {}
  r2: {}
steps:
- hold:
    id: x1
    count: 4
    read: {request: r1}
- submit: r1
- hold:
    id: m1
    count: 0
    message: {type: renew}
- submit: {request: r2, reference-of: r1}
- expect: {claim: reuses-source, request: r2, of: r1}
- release: x1
"""


def test_reads_and_references_are_read_and_written_back() -> None:
    made = scenario.loads(PULLED)
    hold = made.holds()["x1"]
    assert hold.reads
    assert hold.write is not None
    assert (hold.write.op, hold.write.request) == ("read", "r1")
    assert [read_aloud(step) for step in made.steps] == [
        "hold x1: 4 read(s) with request r1",
        "submit r1",
        "hold m1: every message(s) with type renew",
        "submit r2 with the reference of r1",
        "expect that r2 has a source page that r1 had",
        "release x1",
    ]
    assert scenario.loads(scenario.dump(made)) == made


@pytest.mark.parametrize(
    ("was", "now", "problem"),
    [
        ("{transfer: pull}", "{}", "nothing is read where prefill pushes"),
        ("{transfer: pull}", "{transfer: pull, router: true}", "goes by its client, or router, in any case"),
        ("{transfer: pull}", "{transfer: pull, metadata-slots: 2}", "nothing where decode pulls"),
        ("reference-of: r1", "reference-of: r9", "no request 'r9'"),
        ("- submit: r1", "- submit: {request: r1, transfer-id: 7}", "a pull goes by its reference"),
        ("reference-of: r1", "reference-of: r1, transfer-id: 7", "a pull goes by its reference"),
        ("- release: x1", "- await: {event: held, hold: m1}", "there is no number of things to wait for"),
        ("count: 4", "count: -1", "count must be at least 1"),
    ],
)
def test_what_cannot_be_asked_of_a_pull_is_said(was: str, now: str, problem: str) -> None:
    with pytest.raises(DocumentError, match=problem):
        scenario.loads(PULLED.replace(was, now))


def test_a_notification_is_the_message_of_completed_writes() -> None:
    text = GOOD.replace("write: {request: r1, layer: 0}", "notify: {request: r1, chunk: 1}")
    read = scenario.loads("lab: {news: notify}\n" + text)
    held = read.steps[0]
    assert isinstance(held, Hold)
    assert held.message == MessageMatch(type="written", request="r1", chunk=1)
    assert read.notifies(held)
    assert scenario.loads(scenario.dump(read)) == read


def test_a_whole_batch_is_read_and_written_back() -> None:
    read = scenario.loads(GOOD.replace("write: {request: r1, layer: 0}", "batch: {request: r1, chunk: 0}"))
    held = read.steps[0]
    assert isinstance(held, Hold)
    assert held.batches
    assert held.write == WriteMatch(request="r1", chunk=0, batch=True)
    assert "batch: {request: r1, chunk: 0}" in scenario.dump(read)
    assert scenario.loads(scenario.dump(read)) == read

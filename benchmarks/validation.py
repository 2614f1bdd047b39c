"""How fast histories are replayed through the specification, both ways, and how large the model is.

    python benchmarks/validation.py [--json] [--no-tlc]

The histories are eight runs of normal serving, the scenario of that name: prefill and decode of the
reference engine in one process, as `tests/duet.py` has them, each run with other prompts. The rows
of the model are its shipped configurations, and the executable specification's search beside TLC on
the same one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import msgspec
from duet import Duet

from racelab import scenario
from racelab.evidence.history import History
from racelab.model import boundary, tla, tlc, tlc_replay
from racelab.model.replay import Replay
from racelab.model.search import search
from racelab.model.spec.state import ABORT, TIME_OUT, Config, Shape
from racelab.shipped import shipped

RUNS = 8
EVENTS_MIN = 22_104
SECONDS_MAX = {"specification": 3.0, "TLC": 60.0}
MODEL = shipped("scenarios", "models", "PdLedger.tla")
SAFE = ("", ".faults", ".retries", ".chunks", ".finality")

Row = dict[str, Any]


def serving(run: int) -> History:
    """Normal serving, four requests at a time; the run's number salts its prompts."""
    made = scenario.load(shipped("scenarios", "normal-serving.yaml"))
    requests = {
        name: msgspec.structs.replace(
            request, salt=f"{run}/{name}", prefix=request.prefix and f"{run}/{request.prefix}"
        )
        for name, request in made.requests.items()
    }
    duet = Duet(requests, made.lab)
    rounds: dict[str, list[str]] = {}
    for name in requests:
        rounds.setdefault(name.rsplit("-", 1)[1], []).append(name)
    for names in rounds.values():
        duet.submit(*names)
        duet.play()
    return duet.history()


def validating(with_tlc: bool) -> list[Row]:
    """Both replays of all runs."""
    histories = [serving(run) for run in range(RUNS)]
    events = sum(boundary.is_boundary(event.kind) for history in histories for event in history.events)
    begin = time.perf_counter()
    replays = [Replay(history) for history in histories]
    refused = [replay.run() for replay in replays]
    rows = [_replayed("specification", events, sum(item is not None for item in refused), time.perf_counter() - begin)]
    if with_tlc:
        begin = time.perf_counter()
        answers = tlc_replay.replay(replays)
        wrong = sum(answer.refused_at is not None for answer in answers)
        rows.append(_replayed("TLC", events, wrong, time.perf_counter() - begin))
    return rows


def _replayed(by: str, events: int, refused: int, seconds: float) -> Row:
    return {
        "what": f"validation by {by}",
        "runs": RUNS,
        "events": events,
        "refused": refused,
        "seconds": round(seconds, 2),
        "events_per_s": round(events / seconds),
        "seconds_max": SECONDS_MAX[by],
        "good": not refused and events >= EVENTS_MIN and seconds * EVENTS_MIN / events <= SECONDS_MAX[by],
    }


def checking() -> list[Row]:
    """The shipped configurations by TLC, and one by both."""
    rows = []
    for name in (*SAFE, *(config.name[len("PdLedger") : -len(".cfg")] for config in _without())):
        checked = tlc.check_model(MODEL, MODEL.with_name(f"PdLedger{name}.cfg"))
        right = checked.result == ("violation" if ".without-" in name else "ok")
        rows.append(_checked(f"PdLedger{name}.cfg, TLC", checked.states, checked.seconds, checked.property, right))
    config = Config(1, 2, {"r1": Shape(1, 1), "r2": Shape(1, 1)}, faults=frozenset({TIME_OUT, ABORT}))
    searched = search(config)
    with tempfile.TemporaryDirectory() as folder:
        theirs = tlc.check_model(tla.write(Path(folder), "Small", config, lines=["INVARIANT Isolation"]))
    same = searched.states == theirs.states
    rows.append(_checked("two requests for one page, Python", searched.states, searched.seconds, None, same))
    rows.append(_checked("two requests for one page, TLC", theirs.states, theirs.seconds, None, same))
    return rows


def _without() -> list[Path]:
    return sorted(MODEL.parent.glob("PdLedger.without-*.cfg"))


def _checked(what: str, states: int, seconds: float, violated: str | None, good: bool) -> Row:
    return {"what": what, "states": states, "seconds": round(seconds, 2), "violated": violated, "good": good}


def main() -> int:
    """Print the rows; 1 if one is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--no-tlc", action="store_true", help="leave out what needs Java")
    asked = parser.parse_args()
    rows = validating(not asked.no_tlc) + ([] if asked.no_tlc else checking())
    if asked.json:
        print(json.dumps({"cores": os.cpu_count(), "rows": rows}))
    else:
        for row in rows:
            said = "  ".join(
                f"{key} {value}" for key, value in row.items() if key not in ("what", "good") and value is not None
            )
            print(f"{row['what']:<52} {said}{'' if row['good'] else '  NOT GOOD'}")
    return int(not all(row["good"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())

"""How fast TLC's text is read, beside Python's own walk over the same bytes.

    python benchmarks/traces.py [--json] [--states N]...

The states have nine variables and 480 bytes. `recurring`: most values are those of the state
before, as in a real behaviour. `all-different`: no value is like any other, the worst case. `walk`
is a regular expression that finds the tokens and keeps nothing: what no parser in Python can beat.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from typing import Any

from racelab.traces import recognise

SIZES = (10_000, 40_000)
STATES = 10_000
SECONDS_MAX = 1.0
REPEATS = 3

HEAD = "Error: Invariant I is violated.\nError: The behavior up to this point is:\n"
STATE = """State {n}: <Next line 6, col 29 to line 6, col 70 of module M>
/\\ wire = {{[req |-> "r{v}", page |-> p1, held |-> FALSE]}}
/\\ clock = {v}
/\\ free = <<{v}>>
/\\ notes = <<{v}, {v}, "a">>
/\\ req = [ r1 |-> [page |-> p1, st |-> "timedout", fate |-> <<"timeout", {v}>>],
  r2 |-> [page |-> "none", st |-> "idle", fate |-> <<{v}>>] ]
/\\ act = [name |-> "timeout", req |-> "r{v}"]
/\\ page = (p1 :> [st |-> "FREE", tag |-> NoReq, owner |-> NoReq, refs |-> {v}])
/\\ cache = {{}}

"""
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\w+|[^\s\w]+')


def behaviour(states: int, *, recurring: bool) -> str:
    """The text of a behaviour."""
    return HEAD + "".join(
        STATE.format(n=number, v=number % 7 if recurring else number) for number in range(1, states + 1)
    )


def fastest(work: Callable[[], object]) -> float:
    """CPU seconds of the fastest of some runs."""
    seconds = []
    for _ in range(REPEATS):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def measure(states: int, *, recurring: bool) -> dict[str, Any]:
    """One size of one kind."""
    text = behaviour(states, recurring=recurring)
    read_s = fastest(lambda: recognise.read_text(text, "behaviour.txt"))
    walk_s = fastest(lambda: sum(1 for _ in TOKEN.finditer(text)))
    return {
        "what": "TLC text, " + ("recurring" if recurring else "all different"),
        "states": states,
        "megabytes": round(len(text) / 1e6, 1),
        "seconds": round(read_s, 3),
        "seconds_max": round(SECONDS_MAX * states / STATES, 1),
        "over_walk": round(read_s / walk_s, 1),
    }


def main() -> int:
    """Print the rows; 1 if one is over its bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--states", type=int, action="append")
    asked = parser.parse_args()
    rows = [measure(size, recurring=kind) for size in asked.states or SIZES for kind in (True, False)]
    if asked.json:
        print(json.dumps(rows))
    else:
        for row in rows:
            print(
                f"{row['what']:28} {row['states']:>7,} states {row['megabytes']:>5} MB  {row['seconds']:>6} s CPU "
                f"(at most {row['seconds_max']}), {row['over_walk']} x a bare walk"
            )
    return int(any(row["seconds"] > row["seconds_max"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())

"""How fast a history is judged from its file, beside decoding it and doing nothing with it.

    python benchmarks/judging.py [--json] [--events N]...

The histories are serving on paper, one request after another, about 46 events each. Each size is judged
by `read` and the four checkers, as `racelab check` does: as it is, where a glance finds it ordinary
(checkers/ordinary), and with one fingerprint changed in its middle, where the glance gives up and the full rules
judge the whole. `decode` is msgspec alone on the same bytes in the same run, so the ratio says what judging adds
on any machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import histories

from checkers import conservation, finality, integrity, isolation
from racelab.evidence import collector
from racelab.evidence.events import Event
from racelab.evidence.history import History, read
from racelab.evidence.result import SpecResult

SIZES = (10_000, 100_000, 1_000_000)
EVENTS_A_REQUEST = 46
EVENTS_PER_S_MIN = 500_000
CHECKERS = (isolation, integrity, finality, conservation)

Row = dict[str, Any]


def measure(events: int, folder: Path) -> Row:
    """One size: seconds of decoding alone, of judging either history, and of each part of judging by the full rules."""
    file, wrong = folder / f"{events}.jsonl", folder / f"{events}-wrong.jsonl"
    played = histories.play(histories.serving(events // EVENTS_A_REQUEST), histories.LEDGER)
    played.write(file)
    History(played.header, _one_changed(played.events)).write(wrong)
    del played
    with collector.paused():
        decoded, decode_s = timed(lambda: len(msgspec.json.Decoder(Event).decode_lines(_lines(file))))
        judged_s = sum(each(lambda checker, history: checker.check(history), file, "held").values())
        wrong_s = sum(each(lambda checker, history: checker.check(history), wrong, "violated").values())
        parts_s = each(lambda checker, history: checker.rules(history), file, "held")
    return {
        "what": "checkers from file, all four",
        "events": decoded,
        "events_per_s": round(decoded / judged_s),
        "events_per_s_min": EVENTS_PER_S_MIN,
        "events_per_s_if_violated": round(decoded / wrong_s),
        "ratio_to_decoding": round(judged_s / decode_s, 2),
        "us_per_event": {
            name: round(seconds / decoded * 1e6, 3)
            for name, seconds in {"decode": decode_s, "glance": judged_s, **parts_s}.items()
        },
    }


def _lines(file: Path) -> bytes:
    return file.read_bytes().partition(b"\n")[2]


def _one_changed(events: list[Event]) -> list[Event]:
    """The same, but for one fingerprint that a reader took half-way."""
    reads = [place for place, event in enumerate(events) if event.kind == "read"]
    place = reads[len(reads) // 2]
    rows = [list(row) for row in events[place].data["fingerprints"]]
    rows[0][-1] = "0" * 16
    changed = msgspec.structs.replace(events[place], data=events[place].data | {"fingerprints": rows})
    return [*events[:place], changed, *events[place + 1 :]]


def each(look: Callable[[Any, History], SpecResult], file: Path, integrity_is: str) -> dict[str, float]:
    """Seconds of each checker, the first one's with reading. Integrity has to come out so, and the others held."""
    history = read(file)
    seconds = {}
    for checker in CHECKERS:
        result, seconds[checker.SPEC] = timed(lambda checker=checker: look(checker, history))
        assert result.outcome == (integrity_is if result.spec == integrity.SPEC else "held"), (result.spec, result.why)
    return seconds


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What the work gives, and the processor's seconds that it took."""
    started = time.process_time()
    value = work()
    return value, time.process_time() - started


def show(rows: list[Row]) -> None:
    """A line a size."""
    for row in rows:
        parts = "  ".join(f"{name} {value:.2f}" for name, value in row["us_per_event"].items())
        print(
            f"{row['events']:>10,} events  {row['events_per_s']:>9,} events/s  "
            f"(violated {row['events_per_s_if_violated']:>9,})  "
            f"{row['ratio_to_decoding']:.1f}x decoding   us an event: {parts}"
        )


def main() -> None:
    """Measure every size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--events", type=int, action="append", help=f"a size; {', '.join(map(str, SIZES))} if left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(events, Path(folder)) for events in options.events or SIZES]
    if options.json:
        print(json.dumps({"cores": os.cpu_count(), "rows": rows}))
    else:
        show(rows)


if __name__ == "__main__":
    main()

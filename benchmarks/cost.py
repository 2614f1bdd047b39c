"""What it costs to leave ledger and checks on, on a decode step of 8 requests.

    python benchmarks/cost.py [--pairs N] [--size WIDTH]... [--json]

Both engines run in one process, the transfers are copies. Decode is measured at several model sizes (a wider
feed-forward part; the KV stays as it is), each in three ways:

    all          as shipped: ledger, preconditions, events, and fingerprints of what a token reads
    no hashing   the control: the same without fingerprints
    nothing      no fingerprints and no events; the allocator alone

`checks` is the time within one step that goes into looking and recording, measured in place: the median over
steps, and beside it the same looks again at once (`warm`): what lies between the two is the memory that the forward
has pushed out of the caches, and that attention reads next anyway.

`share` is that time as a part of the step: the mean over runs of the p50, with its 95% interval (Student's t).
`overhead` compares the p50 of the time per output token (TPOT) between `all` and `nothing`: the mean over paired
runs with its interval. A step gives each request one token, so its time is each one's time per
output token. The runs of a pair advance side by side, a step of each in turn, so both see the machine in the same
state; and in processor time, since other work may share the cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from duet import Duet

from racelab.engine import transformer
from racelab.engine.decode import Decode
from racelab.engine.guards import GUARDS, Guards, guarded
from racelab.engine.live import Live
from racelab.engine.transformer import Transformer
from racelab.evidence.events import Event
from racelab.evidence.recorder import Recorder
from racelab.scenario import Lab, Request

REQUESTS = 8
SIZES = {128: 200, 4096: 100, 32_768: 40, 131_072: 24}
"""Width of the feed-forward part -> tokens a request."""
CHECKS_US_MAX = 50
OVERHEAD_PERCENT = 0.18
"""Of the published design, at 0.33 ms a decode step."""


class Wide(Transformer):
    """The engine's model with a feed-forward part of another width: more weights to read, the same KV."""

    def __init__(self, layers: int, feed_forward: int) -> None:
        super().__init__(layers)
        generator = torch.Generator().manual_seed(1)
        for layer in self.layers:
            layer.up = torch.randn(transformer.WIDTH, feed_forward, generator=generator) / feed_forward
            layer.down = torch.randn(feed_forward, transformer.WIDTH, generator=generator) / feed_forward

    @property
    def weight_bytes(self) -> int:
        """Of everything that a token reads."""
        matrices = [matrix for layer in self.layers for matrix in vars(layer).values()]
        return sum(matrix.numel() * matrix.element_size() for matrix in (*matrices, self.unembedding))


class Watched(Decode):
    """Decode with a watch on each step of all requests, and on what looks and records within it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.steps_s: list[float] = []
        self.checks_s: list[float] = []
        self._checking_s = 0.0

    def _step(self) -> None:
        full, self._checking_s = self.leftovers()["running"] == REQUESTS, 0.0
        started = time.thread_time()
        super()._step()
        if full:
            self.steps_s.append(time.thread_time() - started)
            self.checks_s.append(self._checking_s)

    def _look(self, running: list[Live]) -> list[bool]:
        started = time.perf_counter()  # the cheaper clock: who is interrupted here does not count in a median
        looks = super()._look(running)
        self._checking_s += time.perf_counter() - started
        return looks

    def _note_read(self, request: Live, index: int, *, last: bool = False) -> None:
        started = time.perf_counter()
        super()._note_read(request, index, last=last)
        self._checking_s += time.perf_counter() - started


class Twice(Watched):
    """Looks twice, and the second time counts."""

    def _look(self, running: list[Live]) -> list[bool]:
        super()._look(running)
        self._checking_s = 0.0
        return super()._look(running)


class NoHashing(Watched):
    """Nothing is fingerprinted; events are recorded."""

    def _fingerprints(self, request: Live) -> list[Any]:
        return []

    def _looks_at_all(self, request: Live) -> bool:
        return not request.pieces or len(request.tokens) == request.new_tokens - 1


class Nothing(NoHashing):
    """Nothing is fingerprinted and nothing recorded."""

    def __init__(self, shape: Lab, recorder: Recorder, _: Guards, *rest: Any) -> None:
        mute = _Mute(recorder.instance)
        super().__init__(shape, mute, guarded(GUARDS, mute), *rest)

    def _look(self, running: list[Live]) -> list[bool]:
        return [False] * len(running)


class _Mute(Recorder):
    _EVENT = Event(kind="step", instance="decode", seq=0, mono_ns=0, hlc=0)

    def record(self, *args: Any, **data: Any) -> Event:
        return self._EVENT


WAYS: dict[str, type[Watched]] = {"all": Watched, "no hashing": NoHashing, "nothing": Nothing}


def serve(model: Transformer, builds: list[type[Watched]], tokens: int) -> list[Watched]:
    """8 requests at once on each, from their arrival to their last token; a step of each in turn."""
    requests = {f"r{index}": Request(prompt_tokens=25, new_tokens=tokens) for index in range(REQUESTS)}
    pages = REQUESTS * -(-(25 + tokens) // 16)
    duets = [Duet(requests, Lab(decode_pages=pages, prefill_pages=pages), build=build, model=model) for build in builds]
    for duet in duets:
        duet.submit(*requests)
    while sum(step(duet) for duet in duets):
        pass
    return [watched(duet) for duet in duets]


def watched(duet: Duet) -> Watched:
    """Its decode."""
    assert isinstance(duet.decode, Watched)
    return duet.decode


def step(duet: Duet) -> bool:
    """Go on until decode has made a step; False if there is nothing to do."""
    made = len(watched(duet).steps_s)
    while duet.turn():
        if len(watched(duet).steps_s) > made:
            return True
    return False


def measure(feed_forward: int, tokens: int, pairs: int) -> dict[str, Any]:
    """One model size."""
    model = Wide(Lab().layers, feed_forward)
    warm = serve(model, [Twice], tokens)[0]
    runs: dict[str, list[Watched]] = {way: [] for way in WAYS}
    for pair in range(pairs):
        ways = list(WAYS)[:: 1 if pair % 2 else -1]  # in turns: who comes first may be slower
        for way, run in zip(ways, serve(model, [WAYS[way] for way in ways], tokens), strict=True):
            runs[way].append(run)
    return {
        "feed_forward": feed_forward,
        "weight_mb": round(model.weight_bytes / 1e6, 1),
        "tokens": tokens,
        "tpot_ms": {way: round(statistics.mean(map(tpot_s, each)) * 1e3, 4) for way, each in runs.items()},
        "checks_us": round(statistics.median(checks for run in runs["all"] for checks in run.checks_s) * 1e6, 1),
        "checks_warm_us": round(statistics.median(warm.checks_s) * 1e6, 1),
        "share_percent": _interval([100 * _p50(run.checks_s, run.steps_s) for run in runs["all"]]),
        "overhead_percent": _overhead(runs["all"], runs["nothing"]),
        "overhead_without_hashing_percent": _overhead(runs["no hashing"], runs["nothing"]),
    }


def tpot_s(decode: Watched) -> float:
    """The p50 of the time per output token."""
    return statistics.median(decode.steps_s)


def _overhead(runs: list[Watched], bare: list[Watched]) -> dict[str, float]:
    """How much longer a token takes, in percent; of a pair the p50 over steps, each beside the other's of that time."""
    pairs = zip(runs, bare, strict=True)
    return _interval([100 * (_p50(run.steps_s, other.steps_s) - 1) for run, other in pairs])


def _p50(parts: list[float], wholes: list[float]) -> float:
    return statistics.median(part / whole for part, whole in zip(parts, wholes, strict=True))


def _interval(values: list[float]) -> dict[str, float]:
    """The mean over runs and its 95% interval."""
    mean, error = statistics.mean(values), stats.sem(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=mean, scale=error)
    return {"mean": round(mean, 3), "low": round(float(low), 3), "high": round(float(high), 3)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--size", type=int, action="append", choices=SIZES, help="a width; all if left out")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(size, SIZES[size], options.pairs) for size in options.size or SIZES]
    if options.json:
        print(json.dumps({"cores": os.cpu_count(), "rows": rows, "checks_us_max": CHECKS_US_MAX}))
        return
    _print(rows)
    for what, name in (
        ("what looks and records", "share_percent"),
        ("the difference between paired runs", "overhead_percent"),
    ):
        for words, value in (("takes, as a mean,", "mean"), ("with all of its interval takes", "high")):
            print(f"{what} {words} less than {OVERHEAD_PERCENT}% of the TPOT {_from(rows, name, value)}")


def _from(rows: list[dict[str, Any]], name: str, value: str) -> str:
    """The size from which on a value is small enough."""
    least = None
    for row in reversed(rows):
        if row[name][value] >= OVERHEAD_PERCENT:
            break
        least = row
    return f"from {least['weight_mb']} MB of weights on" if least else "at none of these sizes"


def _print(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        parts = [
            f"{row['weight_mb']:7.1f} MB",
            f"tpot {row['tpot_ms']['all']:8.3f} ms",
        ]
        parts.append(f"checks {row['checks_us']:6.1f} us (max {CHECKS_US_MAX}, warm {row['checks_warm_us']:.1f})")
        for name in ("share", "overhead", "overhead_without_hashing"):
            value = row[f"{name}_percent"]
            parts.append(f"{name.replace('_', ' ')} {value['mean']:+.3f}% [{value['low']:+.3f}, {value['high']:+.3f}]")
        print("  ".join(parts))


if __name__ == "__main__":
    sys.exit(main())

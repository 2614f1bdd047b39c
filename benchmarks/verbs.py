"""What the verbs gate costs a write that nobody wants, and how long a released one takes to land.

Against the software device alone, in the same run and alternating, so that a busy machine touches all alike:
`passive` has the gate in front with nothing armed, `armed` with a watch on memory that no write touches.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from injectors.verbs.build import build
from injectors.verbs.layout import Kind
from injectors.verbs.self_test import Driven

SIZES = (4 << 10, 64 << 10, 1 << 20)
WRITES = {4 << 10: 2000, 64 << 10: 500, 1 << 20: 50}
ROUNDS = 15
RELEASES = 200


def costs() -> None:
    """The median ratio of each case against the device alone."""
    built = build()
    direct = Driven(built, environment={"LD_PRELOAD": str(built.device)})
    passive, armed = Driven(built), Driven(built)
    armed.watch(1, (1 << 20) - 64, 1)
    try:
        print(f"{'size':>8} {'direct us':>10} {'passive':>8} {'armed':>8}")
        for size in SIZES:
            ask = f"time {WRITES[size]} {min(size, (1 << 20) - 64)}"
            rows = [[int(driven.ask(ask)) for driven in (direct, passive, armed)] for _ in range(ROUNDS)]
            ratios = [statistics.median(row[case] / row[0] for row in rows) for case in (1, 2)]
            alone = statistics.median(row[0] for row in rows) / 1000
            print(f"{size:>8} {alone:>10.2f} {ratios[0]:>8.3f} {ratios[1]:>8.3f}")
    finally:
        for driven in (direct, passive, armed):
            driven.close()


def releases() -> None:
    """From the command to the completion of a held write of 64 KiB, as the harness sees it."""
    driven = Driven(build())
    took = []
    try:
        for number in range(1, RELEASES + 1):
            driven.watch(number, 0, 64 << 10)
            driven.ask(f"post 0 0 {64 << 10} 7 s")
            started = time.perf_counter()
            driven.process.command(Kind.RELEASE, watch=number)
            took.append(time.perf_counter() - started)
            driven.ask("poll 1")
    finally:
        driven.close()
    print(f"release to landed, 64 KiB: median {statistics.median(took) * 1e6:.0f} us of {RELEASES}")


if __name__ == "__main__":
    costs()
    releases()

"""How fast pages are fingerprinted, beside xxh3 on the same pages, as ratios of one run.

    python benchmarks/fingerprints.py [--pages N] [--json]

Pages of 64 KiB, one thread. `xxh3` is the library alone over slices of one buffer. `fingerprint` is what the
engines call. `with chunks` is what a new page costs: the copy, its 4 KiB chunks and the confirmation.
`page_hash` is the fingerprint for CPU and GPU. On a GPU the rate is compared with a copy on that GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy
import torch
import xxhash

from racelab.evidence import page_hash_triton
from racelab.evidence.fingerprint import Dissected, fingerprint
from racelab.evidence.page_hash import page_hashes

PAGE_BYTES = 64 << 10
BARS = {"fingerprint": 0.8, "gpu": 0.7}
ROUNDS = 15


def measure(pages: int) -> dict[str, Any]:
    """Rates in GB/s and as a part of xxh3's own."""
    torch.set_num_threads(1)
    memory = numpy.frombuffer(os.urandom(pages * PAGE_BYTES), dtype=numpy.uint8).reshape(pages, PAGE_BYTES)
    view = memoryview(memory.tobytes())
    slices = [view[at : at + PAGE_BYTES] for at in range(0, len(view), PAGE_BYTES)]
    words = torch.from_numpy(memory.copy()).view(torch.int64)

    def with_chunks() -> None:
        seen = Dissected()
        for page in memory:
            seen.note(fingerprint(page), page)

    rates = _rates(
        pages * PAGE_BYTES,
        {
            "xxh3": lambda: [xxhash.xxh3_64_intdigest(piece) for piece in slices],
            "fingerprint": lambda: [fingerprint(page) for page in memory],
            "with chunks": with_chunks,
            "page_hash": lambda: page_hashes(words),
        },
    )
    ratios = {name: rate / rates["xxh3"] for name, rate in rates.items()}
    return {"pages": pages, "page_bytes": PAGE_BYTES, "gb_per_s": rates, "of_xxh3": ratios, "gpu": _on_a_gpu(words)}


def _rates(size_bytes: int, ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The best of interleaved rounds, in GB/s."""
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            best[name] = min(best[name], time.perf_counter() - started)
    return {name: size_bytes / seconds / 1e9 for name, seconds in best.items()}


def _on_a_gpu(words: torch.Tensor) -> dict[str, Any]:
    """The kernel's rate as a part of a copy's (bytes read and written), or why there is none."""
    why = page_hash_triton.available()
    if why is not None or not torch.cuda.is_available():
        return {"skipped": why or "there is no GPU"}
    device = words.cuda().repeat(max(1, (1 << 30) // words.numel() // 8), 1)
    target = torch.empty_like(device)
    ways = {"copy": lambda: target.copy_(device), "page_hash": lambda: page_hash_triton.page_hashes(device)}
    seconds: dict[str, float] = {}
    for name, way in ways.items():
        way()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(ROUNDS):
            way()
        end.record()
        torch.cuda.synchronize()
        seconds[name] = start.elapsed_time(end) / 1000 / ROUNDS
    size_bytes = device.numel() * 8
    rates = {"copy": 2 * size_bytes / seconds["copy"] / 1e9, "page_hash": size_bytes / seconds["page_hash"] / 1e9}
    return {"gb_per_s": rates, "of_copy": rates["page_hash"] / rates["copy"]}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    measured = measure(options.pages)
    if options.json:
        print(json.dumps(measured))
        return
    for name, rate in measured["gb_per_s"].items():
        bar = f"  (bar {BARS[name]})" if name in BARS else ""
        print(f"{name:12} {rate:7.1f} GB/s  {measured['of_xxh3'][name]:5.2f} of xxh3{bar}")
    gpu = measured["gpu"]
    said = gpu.get("skipped") or f"{gpu['of_copy']:.2f} of copy bandwidth (bar {BARS['gpu']})"
    print(f"gpu          {said}")


if __name__ == "__main__":
    sys.exit(main())

"""What the two gates cost, as ratios against going direct in the same run.

    python benchmarks/gate.py [--json] [--rounds N]

Direct, relayed and unmatched writes take turns, so that whatever else the machine does falls on
all of them. `relay` goes through the wire gate; `unmatched` has rules armed that its writes do not
fit, so it pays for the choice of its lane and goes direct. What others do can only slow a turn down, so each
way counts by the lower quartile of its turns; the times beside the ratios are medians. The bars are those of two cores
that nobody else uses: a relay needs a third process to run, and waits for it where there are only two busy cores.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import aiomqtt
import numpy as np

from racelab.channel.hub import Hub
from racelab.channel.link import Link
from racelab.evidence.recorder import Recorder
from racelab.gates import TOKEN_VARIABLE
from racelab.transport.lanes import Announcer, Lanes, WriteIdentity
from racelab.transport.messages import Message, encode

SIZES = {"4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}
TURNS = {"4 KiB": (5, 8), "64 KiB": (5, 8), "1 MiB": (2, 4), "64 MiB": (1, 1)}
"""Writes of one turn, and turns for each of `--rounds`."""

MEMORY_BYTES = 64 << 20
PAGE_BYTES = 64 << 10
START_BOUND_S = 30.0
CHOICES = 20_000
MESSAGES = 40
"""Control messages of one turn."""

Row = dict[str, Any]


def engine() -> Any:
    """A Mooncake engine of this process, and its memory."""
    os.environ.setdefault("MC_TCP_LANES_PER_PEER", "16")
    os.environ.setdefault("GLOG_minloglevel", "2")
    from mooncake.engine import TransferEngine

    one = TransferEngine()
    assert one.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    memory = np.full(MEMORY_BYTES, 0xA1, dtype=np.uint8)
    assert one.register_memory(memory.ctypes.data, memory.nbytes) == 0
    return one, memory


def be_target(hub: str) -> None:
    """The child process: memory to write into."""
    one, memory = engine()
    segment = f"127.0.0.1:{one.get_rpc_port()}"
    Link(hub, os.environ[TOKEN_VARIABLE], Recorder("target"), segment=segment, base=memory.ctypes.data).serve({})
    os._exit(0)


@contextmanager
def lab() -> Iterator[Hub]:
    """A hub with `target`, `wire`, `broker` and `bus` connected to it."""
    hub = Hub(Recorder("conductor"))
    children = []

    def start(name: str, *arguments: str) -> None:
        environment = os.environ | {TOKEN_VARIABLE: hub.token, "GLOG_minloglevel": "2"}
        children.append(subprocess.Popen([sys.executable, *arguments], env=environment, stdin=subprocess.DEVNULL))
        hub.wait_for(name, bound_s=START_BOUND_S)

    joined = ["--hub", hub.address]
    try:
        start("target", __file__, "--target", hub.address)
        start("wire", "-m", "injectors.wire", *joined, "--instance", "wire", "--target", fact(hub, "target", "segment"))
        start("broker", "-m", "racelab.lab.broker", *joined)
        start("bus", "-m", "injectors.bus", *joined, "--instance", "bus", "--broker", fact(hub, "broker", "mqtt"))
        yield hub
    finally:
        hub.part_with(*hub.peers)
        hub.close()
        for child in children:
            child.wait(10)


def fact(hub: Hub, name: str, key: str) -> Any:
    """What a process of the lab said of itself."""
    return hub.peers[name].facts[key]


def take_turns(ways: dict[str, Callable[[], None]], rounds: int) -> tuple[float, dict[str, float]]:
    """Median seconds of a turn of the first way, and of each way the ratio to it, of lower quartiles.

    The turns of a round follow each other at once, in every order alike: what comes after a relayed write finds
    colder caches.
    """
    times: dict[str, list[float]] = {name: [] for name in ways}
    names = list(ways)
    orders = itertools.cycle(itertools.permutations(names))
    for _, order in zip(range(rounds), orders, strict=False):
        for name in order:
            started = time.perf_counter()
            ways[name]()
            times[name].append(time.perf_counter() - started)
    first = times[names[0]]
    least = {name: statistics.quantiles(times[name], n=4)[0] for name in names}
    return statistics.median(first), {name: least[name] / least[names[0]] for name in names}


def writes(hub: Hub, one: Any, memory: Any, rounds: int) -> Iterator[Row]:
    """Direct, relayed and unmatched writes of every size."""
    source, base = memory.ctypes.data, fact(hub, "target", "base")
    direct, relay = fact(hub, "target", "segment"), fact(hub, "wire", "segment")
    lanes = Lanes()
    for page in range(4):
        match = {"request": "r1", "page": page}
        lanes.arm(f"h{page}", match, 1)
        hub.call("wire", "arm", hold=f"h{page}", match=match, count=1)

    yield row("choice of a lane, 4 rules armed", "us of CPU", choice_us(lanes, base))
    for label, size in SIZES.items():
        identity = an_identity("w", 0, base, size, request="r2")
        operations, turns = TURNS[label]

        def write(segment: str, size: int = size, operations: int = operations) -> None:
            for _ in range(operations):
                assert one.transfer_sync_write(segment, source, base, size) == 0

        def unmatched(size: int = size, operations: int = operations, identity: WriteIdentity = identity) -> None:
            for _ in range(operations):
                segment = relay if lanes.choose(identity) else direct
                assert one.transfer_sync_write(segment, source, base, size) == 0

        ways = {"direct": lambda: write(direct), "relay": lambda: write(relay), "unmatched": unmatched}
        take_turns(ways, 3)
        turn_s, ratio = take_turns(ways, round(rounds * turns))
        each_us = turn_s / operations * 1e6
        if size >= 1 << 20:
            yield row(f"write {label}, relay", "of direct throughput", 1 / ratio["relay"], ">=", 0.45, each_us)
        else:
            yield row(f"write {label}, relay", "x direct", ratio["relay"], "<=", 1.8 if size <= 4096 else None, each_us)
        yield row(f"write {label}, unmatched", "x direct", ratio["unmatched"], "<=", 1.05, each_us)


def choice_us(lanes: Lanes, base: int) -> float:
    """What a write that no rule wants pays beyond going direct, by the thread's own clock: others do not show in it."""
    identity = an_identity("w", 0, base, PAGE_BYTES, request="r2")
    started = time.thread_time()
    for _ in range(CHOICES):
        lanes.choose(identity)
    return (time.thread_time() - started) / CHOICES * 1e6


def an_identity(name: str, page: int, address: int, size: int, request: str = "r1") -> WriteIdentity:
    return WriteIdentity(
        write=name, request=request, attempt=1, chunk=0, layer=0, page=page, gen=1, address=address, bytes=size
    )


def releases(hub: Hub, one: Any, memory: Any, count: int) -> Iterator[Row]:
    """Announce, hold, release: from the conductor's command to the target's status."""
    base, segment = fact(hub, "target", "base"), fact(hub, "wire", "segment")
    announcer = Announcer(fact(hub, "wire", "announce"))
    hub.call("wire", "reset", incarnation=1)
    seen: dict[str, int] = {}
    hub.on_event = lambda event: seen.__setitem__(event.kind, event.mono_ns)
    announced, landed = [], []
    for number in range(count):
        hub.call("wire", "arm", hold="h", match={"request": "r1"}, count=1)
        started = time.monotonic_ns()
        announcer.announce([an_identity(f"w{number}", 0, base, PAGE_BYTES)], seq=1, hlc=1, sender="bench")
        announced.append(time.monotonic_ns() - started)
        handle = one.transfer_submit_write(segment, memory.ctypes.data, base, PAGE_BYTES)
        await_event(hub, seen, "held")
        started = time.monotonic_ns()
        hub.call("wire", "release", hold="h")
        landed.append(await_event(hub, seen, "landed") - started)
        while one.transfer_check_status(handle) == 0:
            pass
        seen.clear()
    announcer.close()
    yield row("release to landed, 64 KiB", "us", statistics.median(landed) / 1e3, "<", 200.0)
    yield row("announcement of one write", "us", statistics.median(announced) / 1e3)


def await_event(hub: Hub, seen: dict[str, int], kind: str) -> int:
    while kind not in seen:
        assert hub.pump(10), f"waited 10 s for {kind}"
    return seen[kind]


async def messages(hub: Hub, rounds: int) -> list[Row]:
    """A control message from publisher to subscriber, both at the broker or both behind the gate."""
    hub.call("bus", "arm", hold="h", match={"type": "abort", "request": "r1"}, count=1)
    payload = encode(
        Message(
            id="m", type="written", sender="a", to="b", request="r2", attempt=1, seq=1, hlc=1, body={"x": "y" * 800}
        )
    )
    took: dict[str, list[float]] = {"broker": [], "bus": []}
    async with AsyncExitStack() as stack:
        ends = {name: await connect(stack, fact(hub, name, "mqtt"), name) for name in took}
        for number in range(rounds + 1):
            for name in took if number % 2 else reversed(took):
                publisher, arrived = ends[name]
                started = time.perf_counter()
                for _ in range(MESSAGES):
                    await publisher.publish(name, payload)
                    await asyncio.wait_for(anext(arrived), 10)
                if number:  # the first is for warmth
                    took[name].append((time.perf_counter() - started) / MESSAGES)
    direct, gated = (statistics.median(took[name]) for name in ("broker", "bus"))
    return [row("control message, 1 KiB, QoS 0", "x direct", gated / direct, "<=", 2.5, direct * 1e6)]


async def connect(stack: AsyncExitStack, address: str, name: str) -> tuple[aiomqtt.Client, Any]:
    host, _, port = address.rpartition(":")
    nodelay = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    clients = [
        await stack.enter_async_context(aiomqtt.Client(host, int(port), identifier=name + end, socket_options=nodelay))
        for end in ("-publisher", "-subscriber")
    ]
    await clients[1].subscribe(name)
    return clients[0], aiter(clients[1].messages)


def row(
    what: str, unit: str, value: float, sign: str = "", bar: float | None = None, direct_us: float | None = None
) -> Row:
    """One line of the table."""
    met = None
    if bar is not None:
        met = {"<=": value <= bar, "<": value < bar, ">=": value >= bar}[sign]
    return {"what": what, "value": value, "unit": unit, "sign": sign, "bar": bar, "met": met, "direct_us": direct_us}


def show(rows: list[Row]) -> None:
    print(f"{'':32}{'measured':>10}  {'':22}{'bar':>8}  {'':6}{'direct':>12}")
    for each in rows:
        bar = "" if each["bar"] is None else f"{each['sign']} {each['bar']:g}"
        met = {None: "", True: "met", False: "MISSED"}[each["met"]]
        direct = "" if each["direct_us"] is None else f"{each['direct_us']:,.0f} us"
        print(f"{each['what']:32}{each['value']:>10.2f}  {each['unit']:22}{bar:>8}  {met:6}{direct:>12}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--rounds", type=int, default=30, help="turns of each kind")
    parser.add_argument("--target", metavar="HUB", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.target:
        be_target(options.target)
    with lab() as hub:
        one, memory = engine()
        rows = list(writes(hub, one, memory, options.rounds))
        rows += releases(hub, one, memory, 10 * options.rounds)
        rows += asyncio.run(messages(hub, options.rounds))
    if options.json:
        print(json.dumps({"cores": os.cpu_count(), "rows": rows}))
    else:
        show(rows)
    sys.stdout.flush()
    os._exit(0)  # Mooncake's threads outlive an ordinary end


if __name__ == "__main__":
    main()

"""Timers that fire by themselves: in their order, at the time at which they were due."""

from __future__ import annotations

import asyncio

import pytest

from racelab.engine.clock import RealClock


def test_timers_fire_in_order_and_see_the_time_at_which_they_were_due() -> None:
    seen: list[tuple[str, int]] = []
    told: list[int] = []

    async def run() -> list[int]:
        done = asyncio.Event()
        clock = RealClock(asyncio.get_running_loop(), lambda: told.append(len(seen)))
        started_ms = clock.now_ms

        def last() -> None:
            seen.append(("last", clock.now_ms))
            done.set()

        def first() -> None:
            seen.append(("first", clock.now_ms))
            clock.after(30, last)

        due = [clock.after(30, lambda: seen.append(("second", clock.now_ms))).due_ms, clock.after(10, first).due_ms]
        clock.after(20, lambda: seen.append(("never", 0))).cancel()
        assert clock.pending() == 2
        assert sorted(clock.due_by(started_ms + 100)) == sorted(due)
        await asyncio.wait_for(done.wait(), 10)
        assert clock.pending() == 0
        assert clock.next_due_ms() is None
        assert clock.fired == 3
        return due

    second, first = asyncio.run(run())
    wanted = [("first", first), ("second", second), ("last", first + 30)]
    assert seen == sorted(wanted, key=lambda one: one[1])
    assert told[-1] == 3


def test_it_is_not_advanced_and_forgets_its_timers() -> None:
    async def run() -> None:
        clock = RealClock(asyncio.get_running_loop(), lambda: None)
        clock.after(60_000, lambda: None)
        with pytest.raises(RuntimeError, match="a real clock is not advanced"):
            clock.advance(1)
        clock.close()
        assert clock.pending() == 0

    asyncio.run(run())

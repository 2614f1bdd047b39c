"""The virtual clock fires in order, once, and not when cancelled."""

from __future__ import annotations

from racelab.engine.clock import VirtualClock


def test_timers_fire_in_the_order_in_which_they_fall_due() -> None:
    clock, fired = VirtualClock(), []
    clock.after(20, lambda: fired.append(("late", clock.now_ms)))
    clock.after(10, lambda: fired.append(("early", clock.now_ms)))
    clock.after(10, lambda: fired.append(("early too", clock.now_ms)))
    assert clock.advance(20) == 3
    assert fired == [("early", 10), ("early too", 10), ("late", 20)]


def test_nothing_fires_before_its_time_or_after_a_cancel() -> None:
    clock, fired = VirtualClock(), []
    timer = clock.after(10, lambda: fired.append("x"))
    assert clock.advance(9) == 0
    assert clock.pending() == 1
    timer.cancel()
    assert clock.pending() == 0
    assert clock.advance(100) == 0
    assert fired == []
    assert clock.now_ms == 109


def test_a_timer_set_while_time_passes_fires_in_the_same_advance() -> None:
    clock, fired = VirtualClock(), []
    clock.after(10, lambda: clock.after(5, lambda: fired.append(clock.now_ms)))
    clock.advance(20)
    assert fired == [15]


def test_a_timer_for_a_time_that_has_passed_is_due_now() -> None:
    clock, fired = VirtualClock(), []
    clock.advance(50)
    clock.at(20, lambda: fired.append(clock.now_ms))
    clock.at(60, lambda: fired.append(clock.now_ms))
    clock.advance(10)
    assert fired == [50, 60]

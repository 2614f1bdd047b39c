"""The recorder numbers without gaps, never blocks, and owns up to what it lost."""

from __future__ import annotations

import threading

from racelab.evidence.clock import HybridClock
from racelab.evidence.recorder import Recorder


def test_what_was_learned_goes_on_the_next_event_only() -> None:
    recorder = Recorder("decode")
    recorder.learned("prefill", 4, recorder.clock.tick())
    recorder.learned("prefill", 9, recorder.clock.tick())
    recorder.learned("wire", 2, recorder.clock.tick())
    assert recorder.record("scan", pages=[], foreign=[]).after == {"prefill": 9, "wire": 2}
    assert recorder.record("scan", pages=[], foreign=[]).after == {}


def test_what_is_learned_later_does_not_change_earlier_events() -> None:
    recorder = Recorder("conductor")
    earlier = recorder.record("phase", phase="drain")
    recorder.learned("decode", 9, recorder.clock.tick())
    assert earlier.after == {}


def test_a_full_buffer_loses_the_newest_and_says_so() -> None:
    recorder = Recorder("decode", buffer_events=3)
    for number in range(5):
        recorder.record("phase", phase=str(number))
    kept = recorder.drain()
    assert [event.seq for event in kept] == [1, 2, 3, 6]
    assert (kept[-1].kind, kept[-1].data) == ("lost", {"count": 2})


def test_threads_share_one_numbering() -> None:
    recorder = Recorder("wire")
    threads = [
        threading.Thread(target=lambda: [recorder.record("phase", phase="x") for _ in range(200)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = recorder.drain()
    assert [event.seq for event in events] == list(range(1, 801))
    assert [event.hlc for event in events] == sorted({event.hlc for event in events})


def test_the_hybrid_clock_moves_past_what_it_hears() -> None:
    clock = HybridClock()
    ahead = clock.tick() + (60_000_000 << 16)
    clock.observe(ahead)
    assert clock.tick() > ahead
    clock.observe(0)
    assert clock.tick() > ahead


def test_what_was_heard_of_a_process_that_was_replaced_is_no_edge() -> None:
    recorder = Recorder("conductor")
    recorder.learned("decode", 700, 0)
    recorder.forget("decode")
    recorder.learned("decode", 3, 0)
    assert recorder.record("phase", phase="drain").after == {"decode": 3}

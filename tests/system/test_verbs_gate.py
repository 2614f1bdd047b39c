"""The verbs gate and the software device, on a driver that posts to itself over two queue pairs on two rails."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import pytest

from injectors.verbs.build import Built, build
from injectors.verbs.layout import ACTIONS, PAYLOADS, Kind
from injectors.verbs.self_test import Driven, self_test
from racelab.errors import LabError, MissingPartError

SUCCESS, PROTECTION, FLUSHED, ACCESS, RETRIES = 0, 4, 5, 10, 12


@pytest.fixture(scope="module")
def built() -> Built:
    try:
        return build()
    except MissingPartError as error:
        pytest.skip(str(error))


@pytest.fixture
def driven(built: Built) -> Iterator[Driven]:
    one = Driven(built)
    yield one
    one.close()


def post(driven: Driven, line: str) -> None:
    assert driven.ask(f"post {line}") == "0"


def watch(driven: Driven, number: int, at: int, size: int, action: str = "hold", payload: str = "at-hold") -> None:
    driven.watch(number, at, size, ACTIONS[action], PAYLOADS[payload])


def of(driven: Driven, number: int) -> list[tuple[str, int]]:
    """The moves of one watch's requests, with their status."""
    return [(move, status) for move, watched, status in driven.moves() if watched == number]


def test_it_proves_itself_in_a_fresh_process(built: Built) -> None:
    self_test(built)


# -- the device


def test_a_write_lands_and_a_read_reads(driven: Driven) -> None:
    post(driven, "0 0 64 7 s")
    post(driven, "0 0 64 0 sr")
    assert driven.ask("poll 2") == f"1:{SUCCESS} 2:{SUCCESS}"
    assert driven.ask("peek 0 64") == "7"


def test_a_write_with_a_key_that_is_not_valid_fails_and_ends_both_ends(driven: Driven) -> None:
    post(driven, "0 0 64 7 sx")
    post(driven, "0 0 64 8 s")
    assert driven.ask("poll 2") == f"1:{ACCESS} 2:{FLUSHED}"
    assert driven.ask("peek 0 64") == "0"
    post(driven, "1 0 64 9 s")
    assert driven.ask("poll 1") == f"3:{SUCCESS}"


def test_a_write_out_of_bounds_fails(driven: Driven) -> None:
    post(driven, f"0 {(1 << 20) - 32} 32 7 s")
    assert driven.ask("poll 1") == f"1:{SUCCESS}"
    post(driven, f"0 {(1 << 20) - 32} 64 7 si")
    assert driven.ask("poll 1") == f"2:{ACCESS}"


def test_a_write_to_memory_that_was_deregistered_fails(driven: Driven) -> None:
    watch(driven, 1, 0, 64)
    post(driven, "0 0 64 7 s")
    assert driven.ask("dereg") == "0"
    driven.process.command(Kind.RELEASE, watch=1)
    assert driven.ask("poll 1") == f"1:{ACCESS}"
    assert driven.ask("peek 0 64") == "0"


@pytest.mark.parametrize("end", ["peer-reset", "peer-error"])
def test_nothing_lands_through_a_dead_queue_pair(driven: Driven, end: str) -> None:
    watch(driven, 1, 0, 64)
    post(driven, "0 0 64 7 s")
    assert driven.ask(f"state 0 {end}") == "0"
    driven.process.command(Kind.RELEASE, watch=1)
    assert driven.ask("poll 1") == f"1:{RETRIES}"
    assert driven.ask("peek 0 64") == "0"


def test_a_queue_pair_in_error_flushes_and_one_in_reset_takes_nothing(driven: Driven) -> None:
    assert driven.ask("state 0 error") == "0"
    post(driven, "0 0 64 7 u")
    assert driven.ask("poll 1") == f"1:{FLUSHED}"
    assert driven.ask("state 0 reset") == "0"
    assert driven.ask("post 0 0 64 7 s") != "0"


def test_a_completion_channel_wakes_up(driven: Driven) -> None:
    assert driven.ask("event") == "1"


def test_the_devices_counts_equal_the_gates_per_rail(driven: Driven) -> None:
    post(driven, "0 0 64 7 s")
    post(driven, "1 64 32 7 u")
    assert driven.ask("poll 1") == f"1:{SUCCESS}"
    ours, device = driven.counts()
    assert ours == device == (2, 96)
    assert {port.rail: port.landed_bytes for port in driven.fabric.ports()} == {0: 64, 1: 32}


def test_many_threads_complete_everything_in_both_directions(driven: Driven) -> None:
    watch(driven, 1, 900_000, 64)  # something is watched, so that every post and poll takes the slow way
    assert driven.ask("threads 8") == "1600"
    ours, device = driven.counts()
    assert ours == device == (1600, 1600 * 256)


# -- the gate


def test_a_hold_stalls_its_queue_pair_and_no_other(driven: Driven) -> None:
    watch(driven, 1, 0, 64)
    for line in ("0 0 64 7 s", "0 64 64 8 s", "0 128 64 9 u", "1 192 64 10 s"):
        post(driven, line)
    assert driven.ask("poll 1") == f"4:{SUCCESS}"
    assert driven.ask("peek 0 192") == "0"
    driven.process.command(Kind.RELEASE, watch=1)
    assert driven.ask("poll 2") == f"1:{SUCCESS} 2:{SUCCESS}"
    assert driven.ask("peek 0 256") == "7 8 9 10"
    assert [move for move, _, _ in driven.moves()] == ["queued"] * 3 + ["doorbell"] * 3 + ["completed"] * 3


def test_each_byte_of_a_watch_stops_once(driven: Driven) -> None:
    watch(driven, 1, 0, 64)
    post(driven, "0 0 64 7 s")
    post(driven, "1 0 64 8 s")
    assert driven.ask("poll 1") == f"2:{SUCCESS}"
    driven.process.command(Kind.RELEASE, watch=1)
    assert driven.ask("poll 1") == f"1:{SUCCESS}"
    assert driven.ask("peek 0 64") == "7"


@pytest.mark.parametrize(("payload", "lands"), [("at-hold", "7"), ("at-release", "99"), ("reread", "99")])
def test_what_a_late_write_carries(driven: Driven, payload: str, lands: str) -> None:
    watch(driven, 1, 0, 64, payload=payload)
    post(driven, "0 0 64 7 s")
    assert driven.ask("fill 99") == "0"
    driven.process.command(Kind.RELEASE, watch=1)
    assert driven.ask("poll 1") == f"1:{SUCCESS}"
    assert driven.ask("peek 0 64") == lands


@pytest.mark.parametrize("payload", ["at-release", "reread"])
def test_inline_data_is_kept_whatever_the_payload(driven: Driven, payload: str) -> None:
    watch(driven, 1, 0, 32, payload=payload)
    post(driven, "0 0 32 7 si")
    assert driven.ask("fill 99") == "0"
    driven.process.command(Kind.RELEASE, watch=1)
    assert driven.ask("poll 1") == f"1:{SUCCESS}"
    assert driven.ask("peek 0 32") == "7"


def test_an_unsignalled_write_is_followed_and_its_completion_not_shown(driven: Driven) -> None:
    watch(driven, 1, 0, 64)
    post(driven, "0 0 64 7 u")
    driven.process.command(Kind.RELEASE, watch=1)
    post(driven, "0 64 64 8 s")
    assert driven.ask("poll 1") == f"2:{SUCCESS}"
    assert of(driven, 1) == [("queued", 0), ("doorbell", 0), ("completed", SUCCESS)]


def test_a_held_read_reads_what_is_there_when_it_goes_on(driven: Driven) -> None:
    post(driven, "0 0 64 7 s")
    watch(driven, 1, 0, 64)
    post(driven, "1 0 64 0 sr")
    assert driven.ask("poll 1") == f"1:{SUCCESS}"
    driven.process.command(Kind.RELEASE, watch=1)
    assert driven.ask("poll 1") == f"2:{SUCCESS}"


def test_a_dropped_write_exceeds_its_retries_and_takes_its_queue_pair_along(driven: Driven) -> None:
    watch(driven, 1, 0, 64)
    post(driven, "0 0 64 7 s")
    post(driven, "0 64 64 8 s")
    driven.process.command(Kind.DROP, watch=1)
    assert driven.ask("poll 2") == f"1:{RETRIES} 2:{FLUSHED}"
    assert driven.ask("peek 0 128") == "0"


def test_retries_exceeded_at_once(driven: Driven) -> None:
    watch(driven, 1, 0, 64, action="fail")
    post(driven, "0 0 64 7 s")
    assert driven.ask("poll 1") == f"1:{RETRIES}"
    assert of(driven, 1)[-1] == ("lost", RETRIES)
    assert driven.ask("peek 0 64") == "0"


def test_a_ghost_fails_now_and_lands_later(driven: Driven) -> None:
    watch(driven, 1, 0, 64, action="ghost")
    post(driven, "0 0 64 7 s")
    assert driven.ask("poll 1") == f"1:{RETRIES}"
    post(driven, "1 0 64 8 s")
    assert driven.ask("poll 1") == f"2:{SUCCESS}"
    assert driven.ask("fill 99") == "0"
    assert driven.ask("destroy 0") == "0"
    driven.process.command(Kind.RELEASE, watch=1)
    assert of(driven, 1)[-1] == ("late", SUCCESS)
    assert driven.ask("peek 0 64") == "7"


@pytest.mark.parametrize("fence", ["state 0 peer-reset", "state 0 peer-error", "dereg"])
def test_a_ghost_is_fenced_by_the_responder(driven: Driven, fence: str) -> None:
    watch(driven, 1, 0, 64, action="ghost")
    post(driven, "0 0 64 7 s")
    assert driven.ask("poll 1") == f"1:{RETRIES}"
    assert driven.ask(fence) == "0"
    driven.process.command(Kind.RELEASE, watch=1)
    move, status = of(driven, 1)[-1]
    assert move == "late"
    assert status != SUCCESS
    assert driven.ask("peek 0 64") == "0"


def test_a_lost_completion_holds_back_those_behind_it(driven: Driven) -> None:
    watch(driven, 1, 0, 64, action="lose-completion")
    for line in ("0 0 64 7 s", "0 64 64 8 s", "1 128 64 9 s"):
        post(driven, line)
    assert driven.ask("poll 1") == f"3:{SUCCESS}"
    assert driven.ask("peek 0 192") == "7 8 9"
    driven.process.command(Kind.RELEASE, watch=1)
    assert driven.ask("poll 2") == f"1:{SUCCESS} 2:{SUCCESS}"


def test_several_lost_completions_of_a_queue_pair_are_shown_each_by_its_own_release(driven: Driven) -> None:
    for number in (1, 2, 3):
        watch(driven, number, number * 64, 64, action="lose-completion")
        post(driven, f"0 {number * 64} 64 {number} s")
    post(driven, "0 256 64 9 s")
    assert driven.ask("poll 1") == ""
    assert driven.ask("peek 64 256") == "1 2 3 9"
    driven.process.command(Kind.RELEASE, watch=2)  # the order of a queue pair: it waits for the first
    assert driven.ask("poll 1") == ""
    driven.process.command(Kind.RELEASE, watch=1)
    assert driven.ask("poll 2") == f"1:{SUCCESS} 2:{SUCCESS}"
    driven.process.command(Kind.DROP, watch=3)
    assert driven.ask("poll 2") == f"3:{RETRIES} 4:{FLUSHED}"
    assert {watched: move for move, watched, _ in driven.moves() if watched} == {1: "told", 2: "told", 3: "lost"}
    assert driven.process.command(Kind.FORGET).number == 0


def test_a_lost_completion_takes_the_others_behind_it_along(driven: Driven) -> None:
    for number in (1, 2):
        watch(driven, number, number * 64, 64, action="lose-completion")
        post(driven, f"0 {number * 64} 64 {number} s")
    assert driven.ask("poll 1") == ""
    driven.process.command(Kind.DROP, watch=1)
    assert driven.ask("poll 2") == f"1:{RETRIES} 2:{FLUSHED}"
    assert {watched: move for move, watched, _ in driven.moves() if watched} == {1: "lost", 2: "lost"}


@pytest.mark.parametrize(("end", "told"), [("state 0 error", True), ("state 0 reset", False), ("destroy 0", False)])
def test_a_held_write_ends_with_its_queue_pair(driven: Driven, end: str, told: bool) -> None:
    watch(driven, 1, 0, 64)
    post(driven, "0 0 64 7 s")
    assert driven.ask(end) == "0"
    if told:
        assert driven.ask("poll 1") == f"1:{FLUSHED}"
    assert of(driven, 1)[-1][0] == ("flushed" if told else "lost")
    driven.process.command(Kind.RELEASE, watch=1)
    assert driven.ask("peek 0 64") == "0"
    assert driven.process.command(Kind.FORGET).number == 0


@pytest.mark.parametrize("end", ["state 0 reset", "destroy 0"])
def test_a_queue_pair_takes_its_completions_along(driven: Driven, end: str) -> None:
    watch(driven, 1, 0, 64)
    post(driven, "0 0 64 7 s")
    driven.process.command(Kind.RELEASE, watch=1)
    post(driven, "0 64 64 8 s")
    post(driven, "1 128 64 9 s")
    assert driven.ask("peek 0 192") == "7 8 9"
    assert driven.ask(end) == "0"
    assert driven.ask("poll 1") == f"3:{SUCCESS}"
    assert driven.ask("poll 1") == ""


def test_nothing_is_left_after_a_release(driven: Driven) -> None:
    for number in range(1, 1001):
        at = number % 64 * 64
        watch(driven, number, at, 64)
        post(driven, f"{number % 2} {at} 64 {number % 250} s")
        driven.process.command(Kind.RELEASE, watch=number)
        assert driven.ask("poll 1") == f"{number}:{SUCCESS}"
    assert driven.process.command(Kind.FORGET).number == 0
    ours, device = driven.counts()
    assert ours == device == (1000, 64_000)


def test_sixty_four_at_once_go_in_any_order_of_their_releases(driven: Driven) -> None:
    for number in range(1, 65):
        watch(driven, number, number * 64, 64)
        post(driven, f"{number % 2} {number * 64} 64 {number} s")
    for number in range(64, 0, -1):
        driven.process.command(Kind.RELEASE, watch=number)
    seen = re.findall(r"(\d+):0", driven.ask("poll 64"))
    assert len(seen) == 64
    even, odd = ([int(one) for one in seen if int(one) % 2 == parity] for parity in (0, 1))
    assert even == sorted(even), "the order of a queue pair"
    assert odd == sorted(odd), "the order of a queue pair"


def test_an_action_that_it_cannot_do_is_refused(driven: Driven) -> None:
    with pytest.raises(LabError, match="refuses WATCH"):
        driven.process.command(Kind.WATCH, watch=1, address=driven.target, size=64, state=99)
    with pytest.raises(LabError, match="refuses WATCH"):
        driven.process.command(Kind.WATCH, watch=1, address=driven.target, size=64, number=99)


@pytest.mark.parametrize("payload", ["at-release", "reread"])
def test_a_ghost_has_the_bytes_of_when_it_left(driven: Driven, payload: str) -> None:
    with pytest.raises(LabError, match="refuses WATCH"):
        watch(driven, 1, 0, 64, action="ghost", payload=payload)


@pytest.fixture
def other(built: Built, driven: Driven) -> Iterator[Driven]:
    """A driver in another process, to whose memory the first one's queue pair 0 writes."""
    one = Driven(built, fabric=driven.fabric)
    here, _, _, _ = driven.ask("who 0").split()
    _, there, key, address = one.ask("who 0").split()
    assert one.ask(f"meet 0 {here}") == "0"
    assert driven.ask(f"join 0 {there} {key} {address}") == "0"
    driven.target = int(address)
    yield one
    one.close()


def test_a_write_lands_in_another_process_and_its_cpu_has_no_part_in_it(driven: Driven, other: Driven) -> None:
    os.kill(other.child.pid, signal.SIGSTOP)
    try:
        post(driven, "0 0 64 7 s")
        assert driven.ask("poll 1") == f"1:{SUCCESS}"
    finally:
        os.kill(other.child.pid, signal.SIGCONT)
    assert other.ask("peek 0 64") == "7"


def test_a_held_write_does_not_land_once_its_responders_process_is_gone(driven: Driven, other: Driven) -> None:
    watch(driven, 1, 0, 64)
    post(driven, "0 0 64 7 s")
    other.child.kill()
    other.child.wait(10)
    driven.process.command(Kind.RELEASE, watch=1)
    assert driven.ask("poll 1") == f"1:{RETRIES}"


def test_one_rail_is_one_device(built: Built) -> None:
    one = Driven(built, rails=1)
    try:
        post(one, "0 0 64 7 s")
        assert one.ask("poll 1") == f"1:{SUCCESS}"
        assert [port.rail for port in one.fabric.ports()] == [0]
    finally:
        one.close()

"""What else the bus gate does to a message than to stop it, with each broker that is here."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

import aiomqtt
import pytest
from bus_rig import BOUND_S, BROKERS, TOPIC, Rig, client, fresh, message, next_payload, talk

from racelab import delays
from racelab.errors import LabError
from racelab.evidence.events import KINDS


@pytest.fixture(scope="module", params=BROKERS)
def shared(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with Rig.of(request.param) as rig:
        yield rig


@pytest.fixture
def rig(shared: Rig) -> Rig:
    return fresh(shared)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_duplicate_the_message_comes_and_later_its_copy(rig: Rig, qos: int) -> None:
    async def script(publisher: aiomqtt.Client, subscriber: aiomqtt.Client) -> None:
        rig.do("arm", hold="u", match={"type": "written"}, count=1, action="duplicate")
        await publisher.publish(TOPIC, message("m1", "written"), qos=qos)
        await publisher.publish(TOPIC, message("m2", "written"), qos=qos)
        assert [await next_payload(subscriber) for _ in range(2)] == [message(name, "written") for name in ("m1", "m2")]
        rig.await_events("held", 1)
        assert rig.do("release", hold="u") == ["m1 (copy)"]
        assert await next_payload(subscriber) == message("m1", "written")
        await publisher.publish(TOPIC, b"last", qos=qos)
        assert await next_payload(subscriber) == b"last"
        counts = rig.do("count")
        assert counts["out"] == counts["out_kernel"]

    talk(rig, qos, script)
    assert rig.story("held", "released", "delivered") == [
        (kind, "m1 (copy)") for kind in ("held", "released", "delivered")
    ]
    held, delivered = (next(event for event in rig.events if event.kind == kind) for kind in ("held", "delivered"))
    assert (held.data["of"], held.data["qos"], held.data["action"]) == ("m1", qos, "duplicate")
    assert delivered.data["overtaken"] == 0
    for event in rig.events:
        assert set(KINDS[event.kind].data) <= set(event.data)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_message_that_is_late_comes_twice_too(rig: Rig, qos: int) -> None:
    async def script(publisher: aiomqtt.Client, subscriber: aiomqtt.Client) -> None:
        rig.do("arm", hold="h", match={"type": "written"}, count=1)
        rig.do("arm", hold="u", match={"type": "written"}, count=1, action="duplicate")
        await publisher.publish(TOPIC, message("m1", "written"), qos=qos)
        rig.await_events("held", 1)
        assert rig.do("release", hold="h") == ["m1"]
        assert await next_payload(subscriber) == message("m1", "written")
        rig.await_events("held", 2)
        assert rig.do("release", hold="u") == ["m1 (copy)"]
        assert await next_payload(subscriber) == message("m1", "written")
        await publisher.publish(TOPIC, b"last", qos=qos)
        assert await next_payload(subscriber) == b"last"

    talk(rig, qos, script)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_copy_that_is_dropped_changes_nothing(rig: Rig, qos: int) -> None:
    async def script(publisher: aiomqtt.Client, subscriber: aiomqtt.Client) -> None:
        rig.do("arm", hold="u", match={"type": "written"}, count=1, action="duplicate")
        await publisher.publish(TOPIC, message("m1", "written"), qos=qos)
        assert await next_payload(subscriber) == message("m1", "written")
        assert rig.do("drop", hold="u") == ["m1 (copy)"]
        assert rig.do("count")["forged"] == 0
        for number in range(40):  # more than a broker lets stand unacknowledged
            await publisher.publish(TOPIC, message(f"n{number}"), qos=qos)
            assert await next_payload(subscriber) == message(f"n{number}")

    talk(rig, qos, script)


def test_at_qos_2_no_copy_is_made(rig: Rig) -> None:
    async def script(publisher: aiomqtt.Client, subscriber: aiomqtt.Client) -> None:
        rig.do("arm", hold="u", match={"type": "written"}, count=1, action="duplicate")
        await publisher.publish(TOPIC, message("m1", "written"), qos=2)
        assert await next_payload(subscriber) == message("m1", "written")
        assert rig.do("release", hold="u") == []

    talk(rig, 2, script)
    assert rig.story("held") == []


def test_a_control_lets_all_pass_and_counts_it(rig: Rig) -> None:
    async def script(publisher: aiomqtt.Client, subscriber: aiomqtt.Client) -> None:
        rig.do("arm", hold="p", match={"type": "abort"}, count=0, action="pass")
        for name in ("m1", "m2", "m3"):
            await publisher.publish(TOPIC, message(name))
            assert await next_payload(subscriber) == message(name)
        assert rig.do("release", hold="p") == []

    talk(rig, 0, script)
    rig.await_events("passed", 3)
    assert rig.story("passed", "held") == [("passed", name) for name in ("m1", "m2", "m3")]


@pytest.mark.parametrize("qos", [0, 1])
def test_held_messages_go_in_the_other_order_and_it_is_said_what_that_breaks(rig: Rig, qos: int) -> None:
    async def script(publisher: aiomqtt.Client, subscriber: aiomqtt.Client) -> None:
        rig.do("arm", hold="h", match={"type": "abort"}, count=3)
        for name in ("m1", "m2", "m3"):
            await publisher.publish(TOPIC, message(name), qos=qos)
        rig.await_events("held", 3)
        assert rig.do("release", hold="h", order="reversed") == ["m3", "m2", "m1"]
        assert [await next_payload(subscriber) for _ in range(3)] == [message(name) for name in ("m3", "m2", "m1")]

    talk(rig, qos, script)
    overtaken = {event.data["what"]: event.data["overtaken"] for event in rig.events if event.kind == "delivered"}
    assert overtaken == {"m3": 0, "m2": 1, "m1": 2}


def test_delayed_messages_come_by_themselves_no_sooner_than_drawn_and_in_order(rig: Rig) -> None:
    distribution: delays.Distribution = {"uniform": [1, 30]}
    names = [f"m{number}" for number in range(12)]

    async def script(publisher: aiomqtt.Client, subscriber: aiomqtt.Client) -> None:
        rig.do("arm", hold="d", match={"type": "abort"}, count=0, action="delay", ms=distribution, seed="3/d")
        for name in names:
            await publisher.publish(TOPIC, message(name))
        assert [await next_payload(subscriber) for _ in names] == [message(name) for name in names]

    talk(rig, 0, script)
    held = rig.await_events("held", len(names))
    assert [event.data["delay_ms"] for event in held] == list(islice(delays.draws(distribution, "3/d"), len(names)))
    released = {event.data["what"]: event.mono_ns for event in rig.await_events("released", len(names))}
    for event in held:
        assert (released[event.data["what"]] - event.mono_ns) / 1e6 >= event.data["delay_ms"]
    assert {event.data["overtaken"] for event in rig.events if event.kind == "delivered"} == {0}
    assert rig.do("release", hold="d") == []


def test_an_action_that_it_does_not_know_is_refused(rig: Rig) -> None:
    with pytest.raises(LabError, match="the bus gate knows no 'ghost'"):
        rig.do("arm", hold="h", match={"type": "abort"}, count=1, action="ghost")


# -- many


def test_64_messages_are_held_at_once_and_block_none(rig: Rig) -> None:
    async def script(publisher: aiomqtt.Client, subscriber: aiomqtt.Client) -> None:
        for number in range(64):
            rig.do("arm", hold=f"h{number}", match={"type": "abort", "request": f"r{number}"}, count=1)
            await publisher.publish(TOPIC, message(f"m{number}", request=f"r{number}"))
        rig.await_events("held", 64)
        await publisher.publish(TOPIC, message("free", "written"))
        assert await next_payload(subscriber) == message("free", "written")
        for number in reversed(range(64)):
            assert rig.do("release", hold=f"h{number}") == [f"m{number}"]
            assert await next_payload(subscriber) == message(f"m{number}", request=f"r{number}")
        assert rig.do("reset", incarnation=2) == {"held": [], "armed": 0}

    talk(rig, 0, script)


def test_1000_holds_one_after_the_other_leave_nothing(rig: Rig) -> None:
    async def script(publisher: aiomqtt.Client, subscriber: aiomqtt.Client) -> None:
        for number in range(1000):
            hold = f"h{number % 7}"
            rig.do("arm", hold=hold, match={"type": "abort"}, count=1)
            await publisher.publish(TOPIC, message(f"m{number}"), qos=1)
            rig.await_events("held", 1)
            rig.events.clear()
            if number % 5:
                assert rig.do("release", hold=hold) == [f"m{number}"]
                assert await next_payload(subscriber) == message(f"m{number}")
            else:
                assert rig.do("drop", hold=hold) == [f"m{number}"]
        assert rig.do("count")["forged"] == 200
        assert rig.do("reset", incarnation=2) == {"held": [], "armed": 0}

    talk(rig, 1, script)


# -- what a broker itself does when an acknowledgement is lost


@asynccontextmanager
async def lasting(port: int) -> AsyncIterator[aiomqtt.Client]:
    """A subscriber whose session outlives its connection."""
    options: list[Any] = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    arguments = {"identifier": "lasting", "clean_session": False, "timeout": BOUND_S, "socket_options": options}
    async with aiomqtt.Client("127.0.0.1", port, **arguments) as one:
        yield one


def test_a_lost_acknowledgement_makes_a_broker_send_again(rig: Rig) -> None:
    """The real cause of a duplicate: the PUBACK ends with its connection, and the broker repeats the message."""
    if rig.broker is None:
        pytest.skip("the embedded broker (amqtt 0.12) does not repeat to a session that comes back")
    got: list[bytes] = []

    async def until_it_is_cut(publisher: aiomqtt.Client) -> None:
        async with lasting(rig.port) as subscriber:
            await subscriber.subscribe(TOPIC, qos=1)
            rig.do("arm", hold="u", match={"type": "written"}, count=1, action="duplicate")
            await publisher.publish(TOPIC, message("m1", "written"), qos=1)
            got.append(await next_payload(subscriber))
            rig.await_events("held", 1)
            assert rig.do("reset_connections", hold="u") == ["m1 (copy)"]
            await next_payload(subscriber)

    async def run() -> None:
        async with client(rig.port, "decode") as publisher:
            with pytest.raises(aiomqtt.MqttError):
                await until_it_is_cut(publisher)
        async with lasting(rig.port) as subscriber:
            got.append(await next_payload(subscriber))
        async with client(rig.port, "lasting"):
            pass  # with a clean session: the broker forgets the lasting one

    asyncio.run(run())
    assert got == [message("m1", "written")] * 2
    assert [event.data.get("reset") for event in rig.events if event.kind == "dropped"] == [True]

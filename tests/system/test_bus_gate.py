"""The bus gate between aiomqtt clients and a broker: the embedded one, and mosquitto where it is installed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import aiomqtt
import pytest
from bus_rig import BOUND_S, BROKERS, TOPIC, Rig, fresh, message, next_payload, talk

from racelab.channel.hub import Hub
from racelab.errors import LabError, PeerDiedError
from racelab.evidence.events import KINDS
from racelab.evidence.recorder import Recorder
from racelab.gates import TOKEN_VARIABLE


@pytest.fixture(scope="module", params=BROKERS)
def shared(request: pytest.FixtureRequest) -> Iterator[Rig]:
    with Rig.of(request.param) as rig:
        yield rig


@pytest.fixture
def rig(shared: Rig) -> Rig:
    return fresh(shared)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_nobody_wants_passes(rig: Rig, qos: int) -> None:
    payloads = [message("m1"), b"", b"\x00\xff not json", message("m2"), b"x" * 300_000]

    async def script(publisher: aiomqtt.Client, subscriber: aiomqtt.Client) -> None:
        rig.do("arm", hold="h", match={"type": "reserve"}, count=1)
        for payload in payloads:
            await publisher.publish(TOPIC, payload, qos=qos)
        assert [await next_payload(subscriber) for _ in payloads] == payloads

    talk(rig, qos, script)
    assert [event.kind for event in rig.events] == ["armed"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_held_message_comes_later_and_once(rig: Rig, qos: int) -> None:
    async def script(publisher: aiomqtt.Client, subscriber: aiomqtt.Client) -> None:
        rig.do("arm", hold="a", match={"type": "abort", "request": "r1"}, count=1)
        rig.do("arm", hold="w", match={"type": "written", "chunk": 1}, count=2)
        sent = [
            message("m1"),
            message("m2", "written", chunk=1),
            message("m3", "written", chunk=0),
            message("m4", "written", chunk=1),
            message("m5"),
        ]
        for payload in sent:
            await publisher.publish(TOPIC, payload, qos=qos)
        assert [await next_payload(subscriber), await next_payload(subscriber)] == [sent[2], sent[4]]
        rig.await_events("held", 3)
        assert rig.do("release", hold="w") == ["m2", "m4"]
        assert [await next_payload(subscriber), await next_payload(subscriber)] == [sent[1], sent[3]]
        assert rig.do("release", hold="a") == ["m1"]
        assert rig.do("release", hold="a") == []
        assert await next_payload(subscriber) == sent[0]
        await publisher.publish(TOPIC, b"last", qos=qos)
        assert await next_payload(subscriber) == b"last"

    talk(rig, qos, script)
    assert rig.story("held", "released", "delivered") == [
        ("held", "m1"),
        ("held", "m2"),
        ("held", "m4"),
        ("released", "m2"),
        ("delivered", "m2"),
        ("released", "m4"),
        ("delivered", "m4"),
        ("released", "m1"),
        ("delivered", "m1"),
    ]
    held, *_ = rig.await_events("held", 3)
    assert (held.request, held.attempt, held.data) == (
        "r1",
        1,
        {"hold": "a", "what": "m1", "type": "abort", "chunk": None},
    )
    assert held.after["decode"] == 41, "the message is a causal edge"
    overtaken = {event.data["what"]: event.data["overtaken"] for event in rig.events if event.kind == "delivered"}
    assert overtaken == {"m1": 2, "m2": 2, "m4": 1}
    for event in rig.events:
        assert set(KINDS[event.kind].data) <= set(event.data)


@pytest.mark.parametrize("qos", [0, 1])
def test_a_dropped_message_is_lost_to_the_application(rig: Rig, qos: int) -> None:
    async def script(publisher: aiomqtt.Client, subscriber: aiomqtt.Client) -> None:
        rig.do("arm", hold="h", match={"type": "abort"}, count=1)
        await publisher.publish(TOPIC, message("m1"), qos=qos)
        rig.await_events("held", 1)
        assert rig.do("drop", hold="h") == ["m1"]
        await publisher.publish(TOPIC, message("m2"), qos=qos)
        assert await next_payload(subscriber) == message("m2")
        assert rig.do("count")["forged"] == qos

    talk(rig, qos, script)
    assert rig.story("held", "dropped", "delivered") == [("held", "m1"), ("dropped", "m1")]


def test_a_qos_2_message_cannot_be_dropped(rig: Rig) -> None:
    async def script(publisher: aiomqtt.Client, subscriber: aiomqtt.Client) -> None:
        rig.do("arm", hold="h", match={"type": "abort"}, count=1)
        await publisher.publish(TOPIC, message("m1"), qos=2)
        rig.await_events("held", 1)
        with pytest.raises(LabError, match="QoS 2"):
            rig.do("drop", hold="h")
        assert rig.do("release", hold="h") == ["m1"]
        assert await next_payload(subscriber) == message("m1")

    talk(rig, 2, script)


def test_a_type_that_racelab_does_not_know_can_be_held(rig: Rig) -> None:
    async def script(publisher: aiomqtt.Client, subscriber: aiomqtt.Client) -> None:
        rig.do("arm", hold="h", match={"type": "lease-renewal"}, count=1)
        await publisher.publish(TOPIC, message("m1", "lease-renewal"))
        rig.await_events("held", 1)
        assert rig.do("reset", incarnation=2) == {"held": ["m1"], "armed": 0}
        rig.do("release", hold="h")
        assert await next_payload(subscriber) == message("m1", "lease-renewal")

    talk(rig, 0, script)


def test_a_subscriber_that_has_gone_gets_nothing(rig: Rig) -> None:
    async def script(publisher: aiomqtt.Client, subscriber: aiomqtt.Client) -> None:
        rig.do("arm", hold="h", match={"type": "abort"}, count=1)
        await publisher.publish(TOPIC, message("m1"))
        rig.await_events("held", 1)

    talk(rig, 0, script)
    deadline = time.monotonic() + BOUND_S
    while rig.do("count")["sessions"]:
        assert time.monotonic() < deadline, f"waited {BOUND_S:.0f} s for both clients' ends"
    assert rig.do("release", hold="h") == ["m1"]
    assert rig.story("dropped", "delivered") == [("dropped", "m1")]
    assert rig.events[-1].data["why"] == "the subscriber has hung up"


def test_counts_equal_the_kernels(rig: Rig) -> None:
    async def script(publisher: aiomqtt.Client, subscriber: aiomqtt.Client) -> None:
        rig.do("reset", incarnation=3)
        rig.do("arm", hold="h", match={"type": "abort"}, count=1)
        for payload in (message("m1"), message("m2")):
            await publisher.publish(TOPIC, payload)
        assert await next_payload(subscriber) == message("m2")
        counts = rig.do("count")
        assert counts["in"] == counts["in_kernel"]
        assert counts["out"] == counts["out_kernel"]
        # QoS 0: in from the publisher and from the broker, out to the broker and, less one, to the subscriber
        packet = 2 + 2 + len(TOPIC) + len(message("m1"))
        assert counts["in"] == 4 * packet
        assert counts["out"] == 3 * packet
        rig.do("drop", hold="h")

    talk(rig, 0, script)


QOS_1_PUBLISH, DUPLICATE, PACKET_ID = 0x32, 0x08, b"\x00\x07"


def publish(payload: bytes, first: int = QOS_1_PUBLISH) -> bytes:
    """A QoS 1 PUBLISH, written out here so that the gate's own reading is not what it is compared with."""
    body = len(TOPIC).to_bytes(2, "big") + TOPIC.encode() + PACKET_ID + payload
    return bytes([first, 0x80 | len(body) & 0x7F, len(body) >> 7]) + body


def receive(end: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        got += end.recv(count - len(got))
    return got


@pytest.fixture
def bare() -> Iterator[tuple[Hub, socket.socket, socket.socket]]:
    """A gate of its own, a client and a broker that are bare sockets."""
    hub = Hub(Recorder("conductor"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(BOUND_S)
        arguments = ["--hub", hub.address, "--instance", "bus", "--broker", f"127.0.0.1:{listener.getsockname()[1]}"]
        gate = subprocess.Popen(
            [sys.executable, "-m", "injectors.bus", *arguments], env=os.environ | {TOKEN_VARIABLE: hub.token}
        )
        try:
            with listener.accept()[0] as look:  # the gate sees at start-up that a broker answers
                look.recv(100)
                look.sendall(b"\x20\x02\x00\x00")
            hub.wait_for("bus", bound_s=20)
            host, _, port = hub.peers["bus"].facts["mqtt"].rpartition(":")
            with socket.create_connection((host, int(port)), BOUND_S) as client, listener.accept()[0] as broker:
                broker.settimeout(BOUND_S)
                yield hub, client, broker
        finally:
            hub.part_with("bus")
            hub.close()
            assert gate.wait(BOUND_S) == 0


def test_an_untouched_flow_is_the_same_bytes_at_any_split(bare: tuple[Hub, socket.socket, socket.socket]) -> None:
    hub, client, broker = bare
    hub.call("bus", "arm", hold="h", match={"type": "reserve"}, count=1)
    down = b"\x20\x02\x00\x00" + b"\x90\x03\x00\x01\x01" + publish(message("m1")) * 3 + b"\xd0\x00"
    up = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00" + b"\x40\x02\x00\x07" * 3 + b"\xc0\x00"
    for source, sink, stream in ((client, broker, up), (broker, client, down)):
        for cut in (1, 7, len(stream)):
            for start in range(0, len(stream), cut):
                source.sendall(stream[start : start + cut])
            assert receive(sink, len(stream)) == stream


def test_a_held_message_that_is_sent_again_comes_once(bare: tuple[Hub, socket.socket, socket.socket]) -> None:
    hub, client, broker = bare
    hub.call("bus", "arm", hold="h", match={"type": "abort"}, count=1)
    first, after = publish(message("m1")), b"\xd0\x00"
    broker.sendall(first + publish(message("m1"), QOS_1_PUBLISH | DUPLICATE) + after)
    assert receive(client, len(after)) == after
    assert hub.call("bus", "release", hold="h") == ["m1"]
    broker.sendall(after)
    assert receive(client, len(first + after)) == first + after


def test_a_dropped_qos_1_message_is_acknowledged_between_two_packets_of_the_client(
    bare: tuple[Hub, socket.socket, socket.socket],
) -> None:
    hub, client, broker = bare
    hub.call("bus", "arm", hold="h", match={"type": "abort"}, count=1)
    broker.sendall(publish(message("m1")) + b"\xd0\x00")
    assert receive(client, 2) == b"\xd0\x00"
    whole = publish(b"from the client")
    client.sendall(b"\xc0\x00" + whole[:9])
    assert receive(broker, 2) == b"\xc0\x00"
    assert hub.call("bus", "drop", hold="h") == ["m1"]
    client.sendall(whole[9:])
    assert receive(broker, 4 + len(whole)) == b"\x40\x02" + PACKET_ID + whole


def test_a_dead_gate_is_noticed_at_once() -> None:
    rig = Rig()
    try:
        rig.children["bus"].send_signal(signal.SIGKILL)
        rig.children["bus"].wait(BOUND_S)
        with pytest.raises(PeerDiedError, match="bus died"):
            rig.do("count")
    finally:
        rig.close()


def refused(*arguments: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, "-m", "injectors.bus", "--hub", "127.0.0.1:1", "--instance", "bus", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
    )
    return done.returncode, done.stderr.splitlines()


def test_no_broker_is_one_line_and_exit_code_4() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert refused("--broker", f"127.0.0.1:{port}") == (
        4,
        [
            f"no MQTT broker at 127.0.0.1:{port}: Connection refused; "
            "start it, or leave the broker out to get the embedded one"
        ],
    )


def test_something_else_at_the_brokers_port_is_one_line_and_exit_code_4(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        arguments = ["--hub", "127.0.0.1:1", "--instance", "bus", "--broker", f"127.0.0.1:{port}"]
        with subprocess.Popen([sys.executable, "-m", "injectors.bus", *arguments]) as gate:
            with other.accept()[0] as connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            assert gate.wait(BOUND_S) == 4
    assert capfd.readouterr().err.splitlines() == [
        f"what listens at 127.0.0.1:{port} is no MQTT 3.1.1 broker; "
        "start it, or leave the broker out to get the embedded one"
    ]


def test_a_taken_port_is_one_line_and_exit_code_4() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert refused("--broker", "127.0.0.1:1", "--port", str(port)) == (
            4,
            [f"port {port} of 127.0.0.1 is taken; free it, or leave the port out to get a free one"],
        )

"""The hub and a link in one process: commands, events as causal edges, strangers, and deaths."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from racelab.channel.frames import Hello, encode
from racelab.channel.hub import Hub
from racelab.channel.link import Link
from racelab.errors import BoundError, LabError, PeerDiedError
from racelab.evidence.events import Event
from racelab.evidence.recorder import Recorder


@pytest.fixture
def hub() -> Iterator[Hub]:
    made = Hub(Recorder("conductor"))
    yield made
    made.close()


class Peer:
    """A process's end of the channel, on a thread."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.recorder = Recorder(name)
        self.link = Link(hub.address, hub.token, self.recorder, color="red")
        handlers = {"double": lambda x: 2 * x, "note": self._note, "fail": self._fail}
        self.thread = threading.Thread(target=self.link.serve, args=(handlers,))
        self.thread.start()
        hub.wait_for(name, bound_s=5)

    def _note(self, what: str) -> int:
        return self.recorder.record("ignored", id="m", type="t", why=what).seq

    def _fail(self) -> None:
        raise RuntimeError("no luck")

    def end(self) -> None:
        self.link._socket.shutdown(socket.SHUT_RDWR)
        self.thread.join(5)
        self.link.close()


@pytest.fixture
def peer(hub: Hub) -> Iterator[Peer]:
    made = Peer(hub, "decode")
    yield made
    made.end()


def test_a_command_gets_its_value(hub: Hub, peer: Peer) -> None:
    assert hub.peers["decode"].facts == {"color": "red"}
    assert hub.call("decode", "double", x=21) == 42


def test_events_arrive_before_the_reply_and_know_the_command(hub: Hub, peer: Peer) -> None:
    seen: list[Event] = []
    hub.on_event = seen.append
    issued = hub.recorder.record("phase", phase="schedule")
    hub.call("decode", "note", what="x")
    assert [event.kind for event in seen] == ["ignored"]
    assert seen[0].after == {"conductor": issued.seq}
    assert seen[0].hlc > issued.hlc
    later = hub.recorder.record("phase", phase="drain")
    assert later.after == {"decode": seen[0].seq}
    assert later.hlc > seen[0].hlc


def test_a_failed_command_says_why(hub: Hub, peer: Peer) -> None:
    with pytest.raises(LabError, match="decode failed at 'fail': RuntimeError: no luck"):
        hub.call("decode", "fail")
    with pytest.raises(LabError, match="knows no command 'jump'"):
        hub.call("decode", "jump")
    assert hub.call("decode", "double", x=1) == 2


def test_a_death_is_noticed_whatever_is_waited_for(hub: Hub) -> None:
    peer = Peer(hub, "decode")
    hub.doing = "step 3 (submit r1)"
    peer.end()
    with pytest.raises(PeerDiedError, match=r"decode died during step 3 \(submit r1\)"):
        hub.wait_for("prefill", bound_s=5)
    with pytest.raises(PeerDiedError):
        hub.call("decode", "double", x=1)


def test_an_end_that_was_asked_for_is_no_death(hub: Hub) -> None:
    peer = Peer(hub, "decode")
    hub.part_with("decode")
    peer.end()
    hub.pump(1)
    assert "decode" not in hub.peers


def test_a_stranger_is_turned_away(hub: Hub) -> None:
    host, _, port = hub.address.rpartition(":")
    for greeting in (encode(Hello("decode", 1, "wrong token")), b"GET / HTTP/1.1\r\n\r\n" + bytes(64)):
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(greeting)
            hub.pump(5)
            stranger.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
    assert hub.peers == {}


def test_a_wait_says_what_it_waited_for(hub: Hub) -> None:
    with pytest.raises(BoundError, match="for prefill, decode to start"):
        hub.wait_for("prefill", "decode", bound_s=0.01)

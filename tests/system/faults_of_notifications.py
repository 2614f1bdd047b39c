"""Rows about notifications: lost, torn, changed, held."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

from fault_rig import rig, two
from wire_rig import PAGE, Rig

from racelab.errors import LabError
from racelab.transport.messages import Message, encode
from racelab.transport.tcp_layout import (
    METADATA,
    NOTIFY,
    pack_handshake,
    read_handshake,
    redirect,
)


def notification_dropped() -> dict[str, Any]:
    with two() as own, Deaf(own.target) as deaf:
        code = own.writer("write_and_notify", segment=deaf.segment, source=0, address=own.base, size=PAGE)
        told = own.hub.call("target", "notified")
        return {"code": code, "landed": own.peek(0) == [0xA1], "notified": told}


def held_notification(own: Rig) -> str:
    """One has stopped under the hold `n`; its text, which comes after `NAMED` in its JSON."""
    text = encode(Message(id="m", type="written", sender="w", to="t", request="r1", attempt=1, seq=1, hlc=1)).decode()
    own.events.clear()
    own.do("arm", hold="n", match={"type": "written"}, count=1)
    own.writer("notify", segment=own.gate["segment"], texts=[text])
    own.await_events("held", 1)
    return text


NAMED = b'{"name":"written","notify_msg":"'


def notification_torn() -> dict[str, Any]:
    with rig() as own:
        held_notification(own)
        own.do("release", hold="n", tear=40)
        own.await_events("dropped", 1)
        (code,) = own.writer("told", count=1)
        told = own.hub.call("target", "notified")
        text = held_notification(own)
        own.do("release", hold="n")
        return {"code": code, "notified": told, "next-notified": own.hub.call("target", "heard", count=1).count(text)}


def notification_with_a_byte_changed() -> dict[str, Any]:
    places = {"mark": 1, "key": NAMED.index(b"msg"), "text": len(NAMED) + 3, "name": NAMED.index(b"written")}
    codes: set[int] = set()
    became = {}
    with rig() as own:
        for place, offset in places.items():
            text = held_notification(own)
            own.do("release", hold="n", corrupt=offset)
            codes |= set(own.writer("told", count=1))
            became[place] = _heard(own, text)
    (code,) = codes
    return {"codes": code, **became}


def _heard(own: Rig, text: str) -> str:
    """What the target has of a notification once its sender has been told."""
    try:
        heard = own.hub.call("target", "heard", count=1, within_s=0.5)
    except LabError as error:
        return "taken and not to be read" if "UnicodeDecodeError" in str(error) else str(error)
    return {(): "not taken", ("",): "taken as an empty text", (text,): "taken as it was"}[tuple(heard)]


def notification_held() -> dict[str, Any]:
    """A write of the same engine lands meanwhile; its status is asked for on a thread of its own."""
    with rig() as own:
        text = encode(Message(id="m", type="written", sender="w", to="t", request="r1", attempt=1, seq=1, hlc=1))
        own.do("arm", hold="n", match={"type": "written"}, count=1)
        own.writer("notify", segment=own.gate["segment"], texts=[text.decode()], own=True)
        own.await_events("held", 1)
        handles = own.writer("submit", segment=own.target, sources=[0], addresses=[own.base], sizes=[PAGE])
        while own.peek(0) != [0xA1]:
            pass
        asked = own.hub.send("writer", "finish", handles=handles)
        deadline = time.monotonic() + 1.0
        while (left := deadline - time.monotonic()) > 0:
            own.hub.pump(left)  # an answer would come within
        told = asked in own.hub._replies
        own.do("release", hold="n")
        return {"landed": True, "told-meanwhile": told, "code": own.hub.collect(asked, "writer", "finish")[0]}


class Deaf:
    """A second name of a target whose notifications are lost: it answers them, and does not pass them on."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server((host, 0))
        self.segment = f"{host}:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Deaf:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                writer, _ = self._listener.accept()
            except OSError:
                return
            with writer:
                question = read_handshake(writer)
                if question is None:
                    continue
                if question[0] == NOTIFY:
                    writer.sendall(pack_handshake(NOTIFY, question[1]))
                    continue
                with socket.create_connection(self._target, timeout=10) as target:
                    target.sendall(pack_handshake(*question))
                    answer = read_handshake(target)
                assert answer is not None
                kind, body = answer
                if kind == METADATA:
                    where = redirect(body, "", "", 0)[1].data_port
                    body, _ = redirect(body, self.segment, self._target[0], where)
                writer.sendall(pack_handshake(kind, body))

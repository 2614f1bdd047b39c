"""Each row of tests/data/what-each-fault-does.yaml, played and compared with what it says."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
import yaml
from wire_rig import MEMORY, PAGE, Rig

from injectors.process import Instance
from racelab.errors import LabError
from racelab.gates import INSTANCE_VARIABLE
from racelab.lab.environment import environment
from racelab.transport import ports
from racelab.transport.messages import Message, encode
from racelab.transport.metadata import data_port
from racelab.transport.streams import read_exactly
from racelab.transport.tcp_layout import (
    ACKNOWLEDGED_WRITE,
    HEADER,
    METADATA,
    NOTIFY,
    STATUS,
    pack_handshake,
    read_handshake,
    redirect,
)

TABLE = yaml.safe_load((Path(__file__).parents[1] / "data" / "what-each-fault-does.yaml").read_text(encoding="utf-8"))
ROWS: dict[str, Callable[[], dict[str, Any]]] = {}
PROGRESS = {"MC_TCP_PROGRESS_TIMEOUT_SEC": "2"}
HALF = PAGE // 2
LATER = "0.3.14"


def row(case: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    """A function is the row of its name."""
    ROWS[case.__name__.replace("_", "-")] = case
    return case


@pytest.mark.parametrize("wanted", TABLE["rows"], ids=lambda wanted: wanted["id"])
def test_the_outcome_is_what_the_table_says(wanted: dict[str, Any]) -> None:
    if "needs" in wanted and not _has_tickets():
        pytest.skip(
            f"it needs Mooncake {wanted['needs']}, whose builds need libcuda.so.1; here is {_mooncake()}. "
            "python tests/without_cuda.py FOLDER plays it with a stub of that"
        )
    later = f"outcome-of-{LATER}"
    key = later if later in wanted and _has_tickets() else "outcome"
    assert ROWS[wanted["id"]]() == wanted[key]


def _has_tickets() -> bool:
    """Whether the Mooncake that a process here would load follows a scattered write by a ticket."""
    code = "import mooncake.engine as engine; engine.ScatterTransferTicket"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False).returncode == 0


def _mooncake() -> str:
    for name in ("mooncake-transfer-engine-non-cuda", "mooncake-transfer-engine", "mooncake-transfer-engine-cuda13"):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return "none"


@contextmanager
def rig(**variables: str) -> Iterator[Rig]:
    """A rig of its own whose processes have these variables; target memory 0, writer memory 0xA1."""
    own = Rig()
    with environment(variables):
        try:
            own.start_all()
            own.writer("fill", start=0, size=MEMORY, value=0xA1)
            yield own
        finally:
            own.close()


@contextmanager
def two(**variables: str) -> Iterator[Rig]:
    """The same without a gate."""
    own = Rig()
    with environment(variables):
        try:
            facts = own.start_peer("target")
            own.target, own.base = facts["segment"], facts["base"]
            own.start_peer("writer")
            own.writer("fill", start=0, size=MEMORY, value=0xA1)
            yield own
        finally:
            own.close()


def hold(own: Rig, count: int = 1, **more: Any) -> None:
    own.do("arm", hold="h", match={"request": "r1"}, count=count, **more)


def release(own: Rig, page: int = 0) -> bool:
    """Let go what is held; whether it lands over what the page holds by then."""
    own.hub.call("target", "fill", start=page * PAGE, size=PAGE, value=0xBB)
    own.do("release", hold="h")
    own.await_events("landed", 1)
    return own.peek(page) == [0xA1]


@contextmanager
def stopped(own: Rig, name: str) -> Iterator[None]:
    """A process of the rig stands still; the block ends with it going on."""
    instance = Instance(name, own.children[name].pid)
    instance.send(signal.SIGSTOP)
    instance.wait_for(lambda states: set(states) == {"T"}, "stop")
    try:
        yield
    finally:
        instance.send(signal.SIGCONT)
        instance.close()


# -- time-outs


@row
def held_past_the_progress_timeout() -> dict[str, Any]:
    with rig(**PROGRESS) as own:
        hold(own)
        handles = own.post([0])
        own.await_events("held", 1)
        (code,) = own.finish(handles)
        return {"code": code, "lands-when-released": release(own)}


@row
def held_past_the_slice_timeout() -> dict[str, Any]:
    with rig(MC_SLICE_TIMEOUT="1", MC_TCP_PROGRESS_TIMEOUT_SEC="3") as own:
        hold(own)
        handles = own.post([0])
        own.await_events("held", 1)
        (code,) = own.finish(handles)
        return {"code": code, "lands-when-released": release(own)}


@row
def held_past_the_transfer_timeout() -> dict[str, Any]:
    with rig(MC_TRANSFER_TIMEOUT="5", MC_TCP_PROGRESS_TIMEOUT_SEC="60") as own:
        hold(own)
        own.announce([0])
        asked = own.hub.send("writer", "write", segment=own.gate["segment"], source=0, address=own.base, size=PAGE)
        own.await_events("held", 1)
        code = own.hub.collect(asked, "writer", "write")
        return {"code": code, "lands-when-released": release(own)}


@row
def status_withheld() -> dict[str, Any]:
    with rig(**PROGRESS) as own:
        hold(own, action="lose-completion")
        handles = own.post([0])
        own.await_events("withheld", 1)
        (code,) = own.finish(handles)
        return {"code": code, "landed": own.peek(0) == [0xA1]}


# -- protocol 1


@row
def protocol_1_to_a_stopped_target() -> dict[str, Any]:
    with two(MC_TCP_PROTO="1", **{INSTANCE_VARIABLE: "target"}) as own:
        with stopped(own, "target"):
            asked = own.hub.send("writer", "write", segment=own.target, source=0, address=own.base, size=PAGE)
        assert own.hub.collect(asked, "writer", "write") == 0, "its handshake needs the target"
        with stopped(own, "target"):
            code = own.writer("write", segment=own.target, source=0, address=own.base + PAGE, size=PAGE)
            landed = _resident(own, PAGE)
        return {"code": code, "landed-at-return": landed, "lands-when-it-goes-on": _lands(own, PAGE)}


def _resident(own: Rig, start: int) -> bool:
    """Whether bytes of the writer are in a stopped target's memory, as the kernel shows it."""
    with Path(f"/proc/{own.children['target'].pid}/mem").open("rb") as memory:
        memory.seek(own.base + start)
        return memory.read(1) == b"\xa1"


def _lands(own: Rig, start: int) -> bool:
    """Whether the bytes come, once the target is asked for something: its thread takes turns with them."""
    return any(own.hub.call("target", "peek", start=start, size=PAGE) == [0xA1] for _ in range(2000))


@row
def protocol_1_to_a_bad_address() -> dict[str, Any]:
    with two(MC_TCP_PROTO="1") as own:
        address = own.base + 2 * MEMORY
        code = own.writer("write", segment=own.target, source=0, address=address, size=64)
        return {"code": code, "landed": 0xA1 in own.peek(0, MEMORY // PAGE)}


# -- resets, tears, deaths


@row
def one_of_a_batch_reset() -> dict[str, Any]:
    with rig() as own:
        own.do("arm", hold="first", match={"page": 0}, count=1)
        own.do("arm", hold="h", match={"page": 1}, count=1)
        own.announce([0, 1])
        places = [0, PAGE]
        handle = own.writer(
            "submit_batch",
            segment=own.gate["segment"],
            sources=places,
            addresses=[own.base + place for place in places],
            sizes=[PAGE, PAGE],
        )
        own.await_events("held", 2)
        own.do("reset_connections", hold="first")
        (code,) = own.finish([handle])
        other = own.peek(1) == [0xA1]
        return {"code": code, "other-landed-at-return": other, "other-lands-when-released": release(own, page=1)}


@row
def torn() -> dict[str, Any]:
    with rig() as own:
        hold(own)
        handles = own.post([0])
        own.await_events("held", 1)
        own.do("release", hold="h", tear=24_576)
        own.await_events("torn", 1)
        (code,) = own.finish(handles)
        count = sum(own.hub.call("target", "peek", start=at, size=4096) == [0xA1] for at in range(0, PAGE, 4096))
        (following,) = own.finish(own.post([1], prefix="next"))
        return {"code": code, "bytes-landed": count * 4096, "next-write": following}


@row
def torn_read() -> dict[str, Any]:
    with rig() as own:
        own.hub.call("target", "fill", start=0, size=MEMORY, value=0xB2)
        own.do("arm", hold="h", match={"op": "read"}, count=1)
        handles = own.read(0)
        own.await_events("held", 1)
        own.do("release", hold="h", tear=24_576)
        own.await_events("torn", 1)
        (code,) = own.finish(handles)
        count = sum(own.writer("peek", start=at, size=4096) == [0xB2] for at in range(0, PAGE, 4096))
        (following,) = own.finish(own.read(1))
        return {"code": code, "bytes-read": count * 4096, "next-read": following}


@row
def writer_killed() -> dict[str, Any]:
    with rig() as own:
        hold(own)
        own.post([0])
        own.await_events("held", 1)
        own.kill("writer")
        return {"lands-when-released": release(own)}


@row
def target_killed() -> dict[str, Any]:
    with rig() as own:
        hold(own)
        handles = own.post([0])
        own.await_events("held", 1)
        own.kill("target")
        own.do("release", hold="h")
        own.await_events("unlanded", 1)
        return {"code": own.finish(handles).pop()}


@row
def target_stopped() -> dict[str, Any]:
    with two(**{INSTANCE_VARIABLE: "target"}) as own:
        assert own.writer("write", segment=own.target, source=0, address=own.base, size=PAGE) == 0
        with stopped(own, "target"):
            handles = own.writer("submit", segment=own.target, sources=[0], addresses=[own.base + PAGE], sizes=[PAGE])
            assert own.writer("status", handle=handles[0]) == 0, "it waits"
            landed = _resident(own, PAGE)
        (final,) = own.finish(handles)
        return {"landed-while-stopped": landed, "code": final, "lands-when-it-goes-on": own.peek(1) == [0xA1]}


@row
def target_half_open() -> dict[str, Any]:
    """The network drops the target's end of a write's connection, and does not tell the writer."""
    with rig(**PROGRESS) as own:
        hold(own)
        handles = own.post([0])
        own.await_events("held", 1)
        (code,) = own.finish(handles)
        own.do("drop", hold="h")
        (following,) = own.finish(own.post([1], prefix="next"))
        return {"code": code, "landed": own.peek(0) == [0xA1], "next-write": following}


# -- memory


@contextmanager
def half_a_write(own: Rig, address: int) -> Iterator[socket.socket]:
    """A connection on which the header and the first half of a write have been taken by the target."""
    host, _, _ = own.target.rpartition(":")
    with socket.create_connection((host, data_port(own.target)), timeout=10) as connection:
        connection.sendall(HEADER.pack(PAGE, address, ACKNOWLEDGED_WRITE) + b"\xa1" * HALF)
        while own.hub.call("target", "peek_at", address=address + HALF - 1, size=1) != [0xA1]:
            pass
        yield connection


def _rest(connection: socket.socket) -> int | None:
    """Send the other half; the status that comes back, if one does."""
    try:
        connection.sendall(b"\xa1" * HALF)
        answer = read_exactly(connection, STATUS.size)
    except ConnectionError:
        return None
    return int(STATUS.unpack(answer)[0]) if len(answer) == STATUS.size else None


@row
def unregistered_in_mid_write() -> dict[str, Any]:
    with two() as own:
        address = own.hub.call("target", "map", size=PAGE)
        with half_a_write(own, address) as connection:
            assert own.hub.call("target", "unregister", address=address) == 0
            status = _rest(connection)
        seen = own.hub.call("target", "peek_at", address=address, size=PAGE)
        return {"status": status, "bytes-landed": PAGE if seen == [0xA1] else 0}


@row
def unmapped_in_mid_write() -> dict[str, Any]:
    with two() as own:
        address = own.hub.call("target", "map", size=PAGE)
        with half_a_write(own, address) as connection:
            assert own.hub.call("target", "unmap", address=address, size=PAGE) == 0
            status = _rest(connection)
        alive = own.writer("write", segment=own.target, source=0, address=own.base, size=PAGE) == 0
        return {"status": status, "target-alive": alive and own.peek(0) == [0xA1]}


@row
def unmapped_and_mapped_again() -> dict[str, Any]:
    with two() as own:
        address = own.hub.call("target", "map", size=PAGE)
        with half_a_write(own, address) as connection:
            assert own.hub.call("target", "unmap", address=address, size=PAGE) == 0
            own.hub.call("target", "map_at", address=address, size=PAGE)
            status = _rest(connection)
        seen = [own.hub.call("target", "peek_at", address=address + at, size=HALF) for at in (0, HALF)]
        return {"status": status, "first-half": seen[0] == [0xA1], "second-half": seen[1] == [0xA1]}


@row
def unregistered_address() -> dict[str, Any]:
    with two() as own:
        assert own.hub.call("target", "unregister", address=own.base) == 0
        code = own.writer("write", segment=own.target, source=0, address=own.base, size=PAGE)
        return {"code": code, "landed": own.peek(0) == [0xA1]}


@row
def bad_address() -> dict[str, Any]:
    with two() as own:
        code = own.writer("write", segment=own.target, source=0, address=own.base + 2 * MEMORY, size=PAGE)
        return {"code": code, "landed": 0xA1 in own.peek(0, MEMORY // PAGE)}


@row
def ticket_after_the_progress_timeout() -> dict[str, Any]:
    with rig(**PROGRESS) as own:
        hold(own)
        own.announce([0])
        own.writer("scatter", segment=own.gate["segment"], source=0, address=own.base, size=PAGE)
        own.await_events("held", 1)
        said = own.writer("drain", timeout_ms=10_000)
        return {"ticket": said, "lands-when-released": release(own)}


# -- what the API does not say


@row
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


@row
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


@row
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


@row
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


@row
def unknown_batch() -> dict[str, Any]:
    code = (
        "from mooncake.engine import TransferEngine\n"
        "e = TransferEngine(); e.initialize('127.0.0.1', 'P2PHANDSHAKE', 'tcp', '')\n"
        "e.transfer_check_status(4711)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=30, check=False)
    return {"ends-by-signal": -done.returncode}


# -- another process at a dead one's address


@row
def peer_replaced() -> dict[str, Any]:
    return _replaced()


@row
def peer_replaced_without_metadata_cache() -> dict[str, Any]:
    return _replaced(MC_DISABLE_METACACHE="1")


def _replaced(**variables: str) -> dict[str, Any]:
    with two(**variables) as own:
        writes = {"segment": own.target, "source": 0, "size": PAGE}
        assert own.writer("write", **writes, address=own.base) == 0
        own.kill("target")
        host, _, port = own.target.rpartition(":")
        ports.free_again(host, int(port))
        window = range(int(port), int(port) + ports.PORTS["tcp"])
        with environment(ports.variables(window) | {"MOONCAKE_PEER_PORT": port}):
            facts = own.start_peer("target")
        assert facts["segment"] == own.target
        first, again = (own.writer("write", **writes, address=facts["base"]) for _ in range(2))
        other = own.start_peer("writer2") and own.hub.call("writer2", "write", **writes, address=facts["base"])
        return {"code": first, "code-again": again, "code-of-another-engine": other}


@row
def address_of_a_dead_target() -> dict[str, Any]:
    with two() as own:
        host, _, port = own.target.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as asking:
            asking.sendall(pack_handshake(METADATA, b"{}"))
            assert read_handshake(asking) is not None
            assert asking.recv(1) == b"", "the target ends it first"
        own.kill("target")
        free = ports._is_free(host, int(port))
        ports.free_again(host, int(port))
        return {"free": free, "free-once-its-connections-are-ended": ports._is_free(host, int(port))}

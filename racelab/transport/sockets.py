"""What the kernel counted on a TCP connection, to stand beside our own counts.

`struct tcp_info` (include/uapi/linux/tcp.h) is read from a socket of our own with TCP_INFO, or
for sockets that a library keeps to itself with NETLINK_SOCK_DIAG (sock_diag(7)), which needs no
privileges. Offsets in bytes, fixed since Linux 4.19 (the struct only grows at its end):

      0  u8  tcpi_state           128  u64  tcpi_bytes_received
    120  u64 tcpi_bytes_acked     200  u64  tcpi_bytes_sent     208  u64  tcpi_bytes_retrans

The kernel counts sequence numbers: the SYN of the side that connected is one in `bytes_acked`,
and the peer's FIN is one in `bytes_received`. The properties here give bytes of data.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator

import msgspec

_INFO = struct.Struct("<B119xQQ64xQQ")
_ESTABLISHED = 1
_FIN_RECEIVED = frozenset({6, 8, 9, 11})  # time-wait, close-wait, last-ack, closing


class TcpInfo(msgspec.Struct, frozen=True):
    """The kernel's numbers for one connection, as they stand in `struct tcp_info`."""

    state: int
    bytes_acked: int
    bytes_received: int
    bytes_sent: int
    bytes_retrans: int

    @property
    def established(self) -> bool:
        """Whether neither side has ended it, as far as this side's kernel knows."""
        return self.state == _ESTABLISHED

    @property
    def peer_finished(self) -> bool:
        """Whether the peer's FIN has arrived: it will send nothing more."""
        return self.state in _FIN_RECEIVED

    @property
    def received(self) -> int:
        """Bytes of data that arrived in order, read by the application or not."""
        return self.bytes_received - self.peer_finished

    @property
    def acked(self) -> int:
        """Bytes of data that the peer's kernel acknowledged, on the side that connected.

        An acknowledgement that rides on nothing may be 40 ms late (RFC 1122, 4.2.3.2).
        """
        return max(self.bytes_acked - 1, 0)

    @property
    def sent(self) -> int:
        """Bytes of data that the kernel put on the wire, each counted once."""
        return self.bytes_sent - self.bytes_retrans


def info(connection: socket.socket) -> TcpInfo:
    """The kernel's numbers for a socket of our own."""
    return _parse(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size))


def _parse(data: bytes) -> TcpInfo:
    return TcpInfo(*_INFO.unpack_from(data))


class Connection(msgspec.Struct, frozen=True):
    """One TCP connection of this machine, seen from one end."""

    local: tuple[str, int]
    remote: tuple[str, int]
    inode: int
    info: TcpInfo


# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST_DUMP = 0x301
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_INET_DIAG_INFO = 2
_LISTEN = 1 << 10
_LIVE = 0xFFF & ~(1 << 6 | _LISTEN)  # all but time-wait and listen
_NLMSG = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBxI")
_SOCKID_TAIL = struct.Struct("=16s16sIII")
_MESSAGE = struct.Struct("=BBBB2s2s16s16sIIIIIIII")
_ATTRIBUTE = struct.Struct("=HH")


def connections(remote_port: int, remote_host: str | None = None, *, own: bool = True) -> list[Connection] | None:
    """Live TCP connections to `remote_port` (of `remote_host`), of this process only if `own`.

    A connection that was closed is gone from here, and its numbers with it. None where the kernel
    does not answer (another system, or a sandbox that keeps NETLINK_SOCK_DIAG away).
    """
    if not sys.platform.startswith("linux"):
        return None
    inodes = _own_inodes() if own else None
    try:
        return [
            connection
            for family in (socket.AF_INET, socket.AF_INET6)
            for connection in _dump(family, _LIVE, remote_port)
            if (remote_host is None or connection.remote[0] == remote_host)
            and (inodes is None or connection.inode in inodes)
        ]
    except OSError:
        return None


def own_to(remote_port: int) -> list[TcpInfo]:
    """The kernel's numbers for this process's own TCP connections to `remote_port`, by its descriptors.

    The same as `connections` for one's own, without a dump of every socket of the machine.
    """
    found = []
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        try:
            if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                continue
            borrowed = socket.socket(fileno=descriptor)
        except OSError:  # closed meanwhile
            continue
        try:
            if borrowed.type == socket.SOCK_STREAM and borrowed.getpeername()[1] == remote_port:
                found.append(info(borrowed))
        except (OSError, IndexError):  # not connected, or no TCP
            continue
        finally:
            borrowed.detach()  # it is somebody else's to close
    return found


def listening_ports() -> list[int] | None:
    """TCP ports on which this process listens, in order; None where the kernel does not answer."""
    if not sys.platform.startswith("linux"):
        return None
    inodes = _own_inodes()
    try:
        sockets = [one for family in (socket.AF_INET, socket.AF_INET6) for one in _dump(family, _LISTEN)]
    except OSError:
        return None
    return sorted({one.local[1] for one in sockets if one.inode in inodes})


def _own_inodes() -> set[int]:
    inodes: set[int] = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError, ValueError):  # closed meanwhile, or no socket
            inodes.add(int(os.readlink(f"/proc/self/fd/{descriptor}").removeprefix("socket:[").rstrip("]")))
    return inodes


def _dump(family: int, states: int, remote_port: int = 0) -> Iterator[Connection]:
    """Ask for every socket of `family` in these states whose far end has this port (any, if 0)."""
    asked = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (_INET_DIAG_INFO - 1), states)
    asked += struct.pack(">HH", 0, remote_port) + _SOCKID_TAIL.pack(b"", b"", 0, 0xFFFFFFFF, 0xFFFFFFFF)
    head = _NLMSG.pack(_NLMSG.size + len(asked), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as netlink:
        netlink.settimeout(5.0)
        netlink.send(head + asked)
        while True:
            data = netlink.recv(1 << 17)
            at = 0
            while at < len(data):
                length, kind, _, _, _ = _NLMSG.unpack_from(data, at)
                if kind == _NLMSG_DONE:
                    return
                if kind == _NLMSG_ERROR:
                    (code,) = struct.unpack_from("=i", data, at + _NLMSG.size)
                    raise OSError(-code, os.strerror(-code))
                found = _connection(family, data[at + _NLMSG.size : at + length])
                if found is not None:
                    yield found
                at += length + 3 & ~3


def _connection(family: int, message: bytes) -> Connection | None:
    fields = _MESSAGE.unpack_from(message)
    local_port, remote_port, local, remote, inode = *fields[4:8], fields[15]
    at = _MESSAGE.size
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        if kind == _INET_DIAG_INFO and length - _ATTRIBUTE.size >= _INFO.size:
            return Connection(
                (_host(family, local), int.from_bytes(local_port, "big")),
                (_host(family, remote), int.from_bytes(remote_port, "big")),
                inode,
                _parse(message[at + _ATTRIBUTE.size : at + length]),
            )
        at += max(length + 3 & ~3, _ATTRIBUTE.size)
    return None


def _host(family: int, packed: bytes) -> str:
    host = socket.inet_ntop(family, packed[:4] if family == socket.AF_INET else packed)
    return host.removeprefix("::ffff:") if "." in host else host

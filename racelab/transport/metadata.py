"""Asks a Mooncake engine where it takes data, as any initiator does before its first write."""

from __future__ import annotations

import socket

from racelab.errors import LabError
from racelab.transport.tcp_layout import METADATA, pack_handshake, read_handshake, redirect

ASK_BOUND_S = 5.0


def data_port(segment: str) -> int:
    """The TCP data port behind `segment` ("host:handshake port").

    Raises:
        LabError: nobody there speaks the handshake.
    """
    host, _, port = segment.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=ASK_BOUND_S) as connection:
            connection.sendall(pack_handshake(METADATA, b"{}"))
            answer = read_handshake(connection)
        if answer is None:
            raise ValueError("it hung up")
        return redirect(answer[1], "", "", 0)[1].data_port
    except (OSError, ValueError) as error:
        raise LabError(f"no Mooncake TCP segment at {segment}: {error}") from None

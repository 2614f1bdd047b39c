"""Control messages: what prefill and decode tell each other over MQTT.

    reserve         decode -> prefill   here are my pages, fill them (starts the grants)
    written         prefill -> decode   a chunk's writes completed, or failed
    abort           decode -> prefill   stop posting for this attempt
    abort-ack       prefill -> decode   posting is closed; `clean` if every posted write succeeded
    complete        decode -> prefill   the KV is committed, the source pages may go

A message names its sender's last event and clock, which makes it a causal edge of the history.
"""

from __future__ import annotations

from typing import Any

import msgspec

TYPES = ("reserve", "written", "abort", "abort-ack", "complete")


class Message(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One control message; `id` is unique in a run, `body` depends on the type."""

    id: str
    type: str
    sender: str
    to: str
    request: str
    attempt: int
    chunk: int | None = None
    seq: int
    hlc: int
    body: dict[str, Any] = {}


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    """The MQTT payload of a message: JSON, so that any MQTT tool can show it."""
    return _encoder.encode(message)


def decode(payload: bytes) -> Message:
    """A message from its payload.

    Raises:
        msgspec.DecodeError: the payload is no message.
    """
    return _decoder.decode(payload)


def topic(lab: str, message: Message) -> str:
    """Where a message goes: MQTT keeps the order within a topic (3.1.1, 4.6), so each request and type
    has one of its own, and a broker may let news of one overtake news of another."""
    return f"racelab/{lab}/{message.to}/{message.request}/{message.type}"


def inbox(lab: str, instance: str) -> str:
    """The filter for everything to an instance; labs that share a broker differ in `lab`."""
    return f"racelab/{lab}/{instance}/#"

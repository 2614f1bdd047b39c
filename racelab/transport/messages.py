"""Control messages: what prefill and decode tell each other over MQTT.

    reserve         decode -> prefill   here are my pages, fill them (starts the grants)
    written         prefill -> decode   a chunk's writes completed, or failed
    failed          prefill -> decode   the attempt has ended on prefill; `why`
    abort           decode -> prefill   stop posting for this attempt
    abort-ack       prefill -> decode   posting is closed; `clean` if every posted write succeeded
    complete        decode -> prefill   the KV is committed, the source pages may go
    hello           whoever was restarted -> its peer   a new incarnation, which knows nothing

and, where decode pulls (each names the attempt for which the reference was `made_for`):

    claim           decode -> prefill   may I read the pages of this reference?
    claimed         prefill -> decode   yes, they are here (starts the grants); or the reference is stale
    renew           decode -> prefill   I still wait to read them: begin the lease anew
    release-source  decode -> prefill   I read no more; `clean` if every posted read succeeded

A message names its sender's last event and clock, which makes it a causal edge of the history.
"""

from __future__ import annotations

from typing import Any

import msgspec

TYPES = (
    *("reserve", "written", "failed", "abort", "abort-ack", "complete", "hello"),
    *("claim", "claimed", "renew", "release-source"),
)


class Message(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One control message; `id` is unique in a run, `body` depends on the type."""

    id: str
    type: str
    sender: str
    to: str
    request: str
    attempt: int
    chunk: int | None = None
    layer: int | None = None
    """of `written`: which layer of the chunk, where layers are sent one by one"""
    rank: int | None = None
    """of `written`: whose writes, where prefill has several ranks"""
    stream: str | None = None
    """of `written`: of what they are a part, where there are several streams"""
    transfer: str | None = None
    """the client's own id of the transfer, where it gave one"""
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


AT_LEAST_ONCE = "at-least-once"
"""A level of the topics of messages at QoS 1: amqtt delivers at the QoS of the subscription, whatever was published."""


def topic(lab: str, message: Message, qos: int = 0) -> str:
    """Where a message goes: MQTT keeps the order within a topic (3.1.1, 4.6), so each request and type
    has one of its own, and a broker may let news of one overtake news of another."""
    return f"{_root(lab, qos)}/{message.to}/{message.request}/{message.type}"


def inbox(lab: str, instance: str, qos: int = 0) -> str:
    """The filter for everything to an instance; labs that share a broker differ in `lab`."""
    return f"{_root(lab, qos)}/{instance}/#"


def _root(lab: str, qos: int) -> str:
    return f"racelab/{lab}/{AT_LEAST_ONCE}" if qos else f"racelab/{lab}"

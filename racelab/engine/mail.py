"""Control messages of one engine: numbered, recorded when sent and when received."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from racelab.evidence.recorder import Recorder
from racelab.transport.messages import Message

NOBODY = "-"
"""In place of a request's name, in a message that is about none."""


class Mail:
    """Message ids are `<instance>-<run's number>`; they start anew with each incarnation."""

    def __init__(self, recorder: Recorder, post: Callable[[Message], None]) -> None:
        self._recorder = recorder
        self._post = post
        self._count = 0

    def send(
        self,
        type: str,
        to: str,
        request: str,
        attempt: int,
        *,
        chunk: int | None = None,
        layer: int | None = None,
        rank: int | None = None,
        stream: str | None = None,
        transfer: str | None = None,
        notify: Callable[[Message], None] | None = None,
        **body: Any,
    ) -> None:
        """Record and publish one message; `transfer` is the client's own id, where it gave one. With `notify` it
        goes by that and not by the bus."""
        self._count += 1
        identity = f"{self._recorder.instance}-{self._recorder.incarnation}-{self._count}"
        about: dict[str, Any] = {"chunk": chunk} if chunk is not None else {}
        about |= {"layer": layer} if layer is not None else {}
        about |= {"rank": rank} if rank is not None else {}
        about |= {"stream": stream} if stream is not None else {}
        about |= {"transfer": transfer} if transfer is not None else {}
        about |= {key: value for key, value in body.items() if isinstance(value, str | bool)}
        about |= {"by": "notify"} if notify is not None else {}
        sent = self._recorder.record("sent", request, attempt, id=identity, type=type, to=to, **about)
        message = Message(
            id=identity,
            type=type,
            sender=self._recorder.instance,
            to=to,
            request=request,
            attempt=attempt,
            chunk=chunk,
            layer=layer,
            rank=rank,
            stream=stream,
            transfer=transfer,
            seq=sent.seq,
            hlc=sent.hlc,
            body=body,
        )
        (notify or self._post)(message)

    def received(self, message: Message) -> None:
        """Record the arrival of a message: a causal edge from its sender."""
        self._recorder.learned(message.sender, message.seq, message.hlc)
        about: dict[str, Any] = {"from": message.sender}
        if message.chunk is not None:
            about["chunk"] = message.chunk
        if message.layer is not None:
            about["layer"] = message.layer
        if message.rank is not None:
            about["rank"] = message.rank
        if message.stream is not None:
            about["stream"] = message.stream
        if message.transfer is not None:
            about["transfer"] = message.transfer
        about |= {key: value for key, value in message.body.items() if isinstance(value, str | bool)}
        self._recorder.record(
            "received",
            message.request,
            message.attempt,
            id=message.id,
            type=message.type,
            **about,
        )

    def unsent(self, message: Message, why: str) -> None:
        """Record that a message never left."""
        self._recorder.record(
            "dropped", message.request, message.attempt, hold=None, what=message.id, type=message.type, why=why
        )

    def ignored(self, message: Message, why: str) -> None:
        """Record that a message changed nothing."""
        self._recorder.record("ignored", message.request, message.attempt, id=message.id, type=message.type, why=why)

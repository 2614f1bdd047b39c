"""Histories of an RDMA transport, written down by hand: a requester, a responder, and what passes between them."""

from __future__ import annotations

from typing import Any

import histories

from racelab.evidence.events import Event
from racelab.evidence.history import Header, History

HERE, THERE = 11, 22
KEY = 0x107
MEMORY = 0x10000
SIZE = 4096


class Script:
    """`prefill` writes to `decode` over queue pair 11, connected to 22; each call adds one event of the gate."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.connect()
        self.register()

    def event(self, kind: str, **data: Any) -> Script:
        seq = len(self.events) + 1
        self.events.append(Event(kind=kind, instance="verbs", seq=seq, mono_ns=seq, hlc=seq << 16, data=data))
        return self

    def pair(self, owner: str, qp: int, state: str, peer: int = 0, device: str = "rail0") -> Script:
        return self.event("queue-pair", owner=owner, device=device, qp=qp, state=state, peer=peer)

    def connect(self, here: int = HERE, there: int = THERE, device: str = "rail0") -> Script:
        for owner, qp, peer in (("prefill", here, there), ("decode", there, here)):
            for state in ("RESET", "INIT"):
                self.pair(owner, qp, state, 0, device)
            for state in ("RTR", "RTS"):
                self.pair(owner, qp, state, peer, device)
        return self

    def register(self, valid: bool = True, device: str = "rail0", key: int = KEY) -> Script:
        return self.event(
            "registration", owner="decode", device=device, key=key, address=MEMORY, bytes=4 * SIZE, valid=valid
        )

    def move(self, n: int, move: str, status: int = 0, **changed: Any) -> Script:
        data = {
            "owner": "prefill",
            "device": "rail0",
            "qp": HERE,
            "peer": THERE,
            "n": n,
            "move": move,
            "opcode": "write",
            "key": KEY,
            "address": MEMORY,
            "bytes": SIZE,
            "status": status,
        }
        return self.event("work-request", **(data | changed))

    def moves(self, *moves: tuple[int, str] | tuple[int, str, int]) -> Script:
        for one in moves:
            self.move(*one)
        return self

    def landed(self, address: int = MEMORY) -> Script:
        return self.event("landed", hold="w1", what="w1-1", address=address, bytes=SIZE, code=0)

    def history(self) -> History:
        like = histories.play(histories.CLEAN).header
        header = Header(scenario=like.scenario, target=like.target, policy=like.policy, guards=[], transport="rdma")
        return History(header, self.events)

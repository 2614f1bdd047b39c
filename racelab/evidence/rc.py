"""The automaton of reliable connection: whether a history over RDMA is one that RDMA could give.

It reads what the verbs gate reported (`queue-pair`, `registration`, `work-request`) in the gate's order
and stops at the first thing that no reliable connection does:

    a hold stalls its queue pair      nothing later leaves before what is held has left or was given up
    completions come in order         of those that left, and only of those that left
    nothing unsent leaves after ERR   a request handed to a queue pair that is not in RTS never lands
    a landing needs a live responder  in RTR or RTS, connected back to the requester
    a landing needs a valid key       registered on the responder's device, and the bytes within its bounds
    a ghost needs its own connection  what was given up lands only where the responder still is what it was

InfiniBand Architecture Specification 1.2.1: 9.7 (reliable service), 10.3 (queue pair states), 10.6 (memory).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.naming import number

Name = tuple[str, str, int]
"""owner, device and number of a queue pair; owner, device and key of a registration"""

_NEXT = {"RESET": ("INIT",), "INIT": ("INIT", "RTR"), "RTR": ("RTS",), "RTS": ("RTS",), "ERR": (), "DESTROYED": ()}
"""Besides RESET, ERR and DESTROYED, which every state but DESTROYED can become."""

_ANYTIME = ("RESET", "ERR", "DESTROYED")
_LIVE = ("RTR", "RTS")
_UNDECIDED = (5, 12)
"""Completions that leave open whether the responder took it: flushed, retries exceeded (enum ibv_wc_status)."""


class Illegal(Exception):
    """What no reliable connection does, in words."""


@dataclass
class _Request:
    event: Event
    """where it was queued: what it is and where it goes"""
    left_as: str | None = None
    """the state of its queue pair at the doorbell; None before"""
    reachable: bool = False
    """whether at some moment since the doorbell the responder could take it"""
    unreachable: str = ""


@dataclass
class _QueuePair:
    state: str
    peer: int
    waiting: dict[int, _Request] = field(default_factory=dict)
    """queued and not left, by number"""
    flying: dict[int, _Request] = field(default_factory=dict)
    """left, and their completion has not been seen"""
    ghosts: dict[int, _Request] = field(default_factory=dict)
    """given up by the requester, and perhaps still on their way"""
    withheld: int = 0


def contradiction(history: History) -> str | None:
    """The first thing in a history that no reliable connection does; None if there is none, or no RDMA."""
    if history.header.transport != "rdma":
        return None
    if history.by_kind["posted"] and not history.by_kind["queue-pair"]:
        return "nothing says which queue pairs the writes took"
    automaton = ReliableConnections()
    watched = history.of("queue-pair", "registration", "work-request", "held", "landed")
    for event in sorted(watched, key=lambda event: (event.instance, event.seq)):
        try:
            automaton.see(event)
        except Illegal as illegal:
            return f"{number(event)}: {illegal}"
    return None


class ReliableConnections:
    """Every queue pair and registration of a run. Feed it the gate's events in their order."""

    def __init__(self) -> None:
        self._pairs: dict[Name, _QueuePair] = {}
        self._by_number: dict[int, set[Name]] = defaultdict(set)
        self._regions: dict[Name, tuple[int, int]] = {}
        self._landed: list[tuple[int, int]] = []

    def see(self, event: Event) -> None:
        """Take one event.

        Raises:
            Illegal: no reliable connection does that.
        """
        match event.kind:
            case "queue-pair":
                self._change(event)
                self._look_at_flying()
            case "registration":
                self._register(event)
                self._look_at_flying()
            case "work-request":
                self._move(event)
            case "landed" if event.instance in ("verbs", "packets"):
                self._check_landed(event)

    # -- what there is

    def _change(self, event: Event) -> None:
        data = event.data
        name = (data["owner"], data["device"], data["qp"])
        state = data["state"]
        pair = self._pairs.get(name)
        if pair is None:
            pair = self._pairs[name] = _QueuePair(state, data["peer"])
            self._by_number[data["qp"]].add(name)
        elif state not in (pair.state, *_ANYTIME, *_NEXT[pair.state]):
            raise Illegal(f"queue pair {data['qp']} of {data['owner']} goes from {pair.state} to {state}")
        pair.state, pair.peer = state, data["peer"]
        if state in ("RESET", "DESTROYED"):
            pair.flying.clear()  # their completions are gone with it
        if state == "DESTROYED":
            self._by_number[data["qp"]].discard(name)

    def _register(self, event: Event) -> None:
        data = event.data
        name = (data["owner"], data["device"], data["key"])
        if data["valid"]:
            self._regions[name] = (data["address"], data["address"] + data["bytes"])
        else:
            self._regions.pop(name, None)

    # -- requests

    def _move(self, event: Event) -> None:
        data = event.data
        pair = self._pairs.get((data["owner"], data["device"], data["qp"]))
        if pair is None:
            raise Illegal(f"a request on queue pair {data['qp']} of {data['owner']}, which there is not")
        moves = {
            "queued": self._queued,
            "doorbell": self._doorbell,
            "completed": self._completed,
            "flushed": self._flushed,
            "lost": self._lost,
            "late": self._late,
            "withheld": self._withheld,
            "told": self._told,
        }
        moves[data["move"]](event, pair)

    def _queued(self, event: Event, pair: _QueuePair) -> None:
        pair.waiting[event.data["n"]] = _Request(event)

    def _doorbell(self, event: Event, pair: _QueuePair) -> None:
        n = event.data["n"]
        earlier = [other for other in pair.waiting if other < n]
        if earlier:
            raise Illegal(f"{_about(event)} leaves before request {min(earlier)}, which is stopped on its queue pair")
        request = pair.waiting.pop(n, None)
        if request is None:
            raise Illegal(f"{_about(event)} leaves twice, or was never posted")
        request.left_as = pair.state
        self._look(request)
        pair.flying[n] = request

    def _completed(self, event: Event, pair: _QueuePair) -> None:
        n, status = event.data["n"], event.data["status"]
        request = pair.flying.pop(n, None)
        if request is None:
            raise Illegal(f"{_about(event)} completes and had not left")
        earlier = [other for other in pair.flying if other < n]
        if earlier:
            raise Illegal(f"{_about(event)} completes before request {min(earlier)} of its queue pair")
        if status == 0:
            self._land(event, request)
            return
        if status in _UNDECIDED:
            pair.ghosts[n] = request
        if pair.state not in ("RESET", "DESTROYED"):
            pair.state = "ERR"

    def _late(self, event: Event, pair: _QueuePair) -> None:
        request = pair.ghosts.pop(event.data["n"], None)
        if request is None:
            raise Illegal(f"{_about(event)} arrives late and was never given up with its fate open")
        if event.data["status"] == 0:
            request.reachable = False  # it matters what the responder is now
            self._land(event, request)

    def _flushed(self, event: Event, pair: _QueuePair) -> None:
        n = event.data["n"]
        if pair.state == "RTS":
            raise Illegal(f"{_about(event)} is flushed and its queue pair is in RTS")
        pair.waiting.pop(n, None)
        pair.flying.pop(n, None)

    def _lost(self, event: Event, pair: _QueuePair) -> None:
        for group in (pair.waiting, pair.flying, pair.ghosts):
            group.pop(event.data["n"], None)
        if event.data["n"] == 0:
            pair.withheld = max(pair.withheld - 1, 0)

    def _withheld(self, event: Event, pair: _QueuePair) -> None:
        pair.withheld += 1

    def _told(self, event: Event, pair: _QueuePair) -> None:
        if not pair.withheld:
            raise Illegal(f"queue pair {event.data['qp']} is told of a completion that nobody kept back")
        pair.withheld -= 1

    # -- landings

    def _look_at_flying(self) -> None:
        """Something changed: what is under way may find its responder only now, or only up to now."""
        for pair in self._pairs.values():
            for request in pair.flying.values():
                self._look(request)

    def _look(self, request: _Request) -> None:
        if not request.reachable:
            request.unreachable = self._obstacle(request.event)
            request.reachable = not request.unreachable

    def _land(self, event: Event, request: _Request) -> None:
        if request.left_as != "RTS":
            raise Illegal(f"{_about(event)} lands and was handed to a queue pair in {request.left_as}")
        self._look(request)
        if not request.reachable:
            raise Illegal(f"{_about(event)} lands and {request.unreachable}")
        self._landed.append((event.data["address"], event.data["bytes"]))

    def _obstacle(self, event: Event) -> str:
        """Why the responder cannot take this request now; empty if it can."""
        data = event.data
        alive = [
            name
            for name in self._by_number[data["peer"]]
            if self._pairs[name].state in _LIVE and self._pairs[name].peer == data["qp"]
        ]
        if not alive:
            return f"no live queue pair {data['peer']} is connected to it"
        start, end = data["address"], data["address"] + data["bytes"]
        for owner, device, _ in alive:
            region = self._regions.get((owner, device, data["key"]))
            if region is not None and region[0] <= start and end <= region[1]:
                return ""
        return f"key {data['key']:#x} is not valid there for bytes {start:#x} to {end:#x}"

    def _check_landed(self, event: Event) -> None:
        """The gate's word that a write landed rests on requests that did."""
        start, size = event.data.get("peer_address", event.data["address"]), event.data["bytes"]
        parts = [part for part in self._landed if start <= part[0] < start + size]
        if sum(part[1] for part in parts) < size:
            raise Illegal(f"write {event.data['what']} has landed, and no request of it has")
        self._landed = [part for part in self._landed if part not in parts]


def _about(event: Event) -> str:
    return f"request {event.data['n']} of queue pair {event.data['qp']} of {event.data['owner']}"

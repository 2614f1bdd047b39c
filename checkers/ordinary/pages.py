"""The pages of an ordinary history, their grants, and the writes into and out of them.

Each method takes one event and raises `Extraordinary` unless it is plainly right. The rules behind each
are those of docs/specifications.md, in their strictest reading.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from checkers.granted_writes import NIC
from checkers.ordinary import events as seen

Reader = tuple[str | None, int | None]
"""A request and its attempt."""


class Extraordinary(Exception):
    """This is for the full rules to judge."""


class Sending(msgspec.Struct, eq=False, gc=False):
    """A write in flight; `done` is the number of its completion, 0 before. `gate` says how far a gate had it: held,
    released, landed."""

    instance: str
    layer: int
    fingerprint: str
    done: int = 0
    gate: int = 0


BEFORE: dict[type, int] = {seen.Held: 0, seen.Released: 1, seen.Landed: 2}
"""How far a gate must have had a write."""

OUTSIDE = (0, 3)
"""No gate has it, or none any more."""


class Page(msgspec.Struct, eq=False, gc=False):
    """One generation of a page. `content` is what was written there, `sent` what was read from it to be written."""

    gen: int
    owner: Reader
    state: str = "PRIVATE"
    drains_since: int = 0
    granted: int = 0
    grants: list[seen.GrantData] = []
    closed: bool = False
    content: dict[tuple[int, int, int], Sending] = {}
    sent: list[Sending] = []
    key: str | None = None
    readers: set[Reader] | None = None

    def readable(self, reader: Reader) -> bool:
        """Whether an attempt may read it now."""
        if self.state == "FREE":
            return False
        return reader == self.owner if self.readers is None else reader in self.readers


class Memory:
    """Which page an address is in: of the first instance that granted its writer anything and has it."""

    def __init__(self) -> None:
        self.page_bytes: dict[str, int] = {}
        self._regions: dict[str, list[seen.RegionData]] = defaultdict(list)
        self.peers: dict[str, set[str]] = defaultdict(set)
        """by instance, whom it granted anything"""
        self._instances: dict[str, list[str]] = defaultdict(list)
        self.found: dict[tuple[str, int], tuple[str, int, int, int]] = {}

    def region(self, event: seen.Region) -> None:
        """Layers of a pool lie apart, and are registered before anything is granted."""
        new = event.data
        if self.peers or event.instance not in self.page_bytes:
            raise Extraordinary
        for old in self._regions[event.instance]:
            if old.layer == new.layer or not (
                old.address + old.bytes <= new.address or new.address + new.bytes <= old.address
            ):
                raise Extraordinary
        self._regions[event.instance].append(new)

    def peer(self, instance: str, writer: str) -> None:
        """`instance` has granted `writer` something for the first time."""
        self.peers[instance].add(writer)
        self._instances[writer].append(instance)
        self.found.clear()

    def find(self, writer: str, address: int) -> tuple[str, int, int, int]:
        """Instance, layer, page, and offset within it; `found` has it from then on."""
        for instance in self._instances[writer]:
            for region in self._regions[instance]:
                if region.address <= address < region.address + region.bytes:
                    number, start = divmod(address - region.address, self.page_bytes[instance])
                    found = self.found[writer, address] = (instance, region.layer, number, start)
                    return found
        raise Extraordinary


class Pages:
    """`heard` says of each instance up to which of its events another had told it directly."""

    def __init__(self, heard: dict[str, dict[str, int]], drain_ms: int) -> None:
        self.pages: dict[tuple[str, int | None], Page] = {}
        self.pools: dict[str, seen.PoolData] = {}
        self.memory = Memory()
        self.writes: dict[str, Sending] = {}
        self.generations = self.moves = self.returns = self.draining = self.grants = self.sources = 0
        self.heard = heard
        self._drain_ms = drain_ms
        self._gated: set[str] = set()
        self.at_gates = 0
        """writes that a gate has not seen landing"""
        self.sent: dict[str, seen.Sent] = {}
        """by message"""
        self.unsent: dict[str, dict[str, seen.Record]] = defaultdict(dict)
        """by what is no message, or none yet, and by instance, the first event that names it"""

    def pool(self, event: seen.Pool) -> None:
        """Once for each instance, of one rank."""
        if event.instance in self.pools or event.data.blocks not in (None, event.data.layers):
            raise Extraordinary
        self.pools[event.instance] = event.data
        self.memory.page_bytes[event.instance] = event.data.page_bytes

    # -- transitions

    def private(self, event: seen.Private) -> None:
        """FREE -> PRIVATE, under a fresh generation."""
        where = (event.instance, event.page)
        last = self.pages.get(where)
        if event.gen is None or event.page is None or event.data.from_ != "FREE":
            raise Extraordinary
        if last is not None and (last.state != "FREE" or last.gen >= event.gen):
            raise Extraordinary
        self.pages[where] = Page(event.gen, (event.request, event.attempt))
        self.generations += 1

    def alive(self, event: seen.Record) -> Page:
        """The generation that the event names; it is its page's and has not ended."""
        page = self.pages.get((event.instance, event.page))
        if page is None or page.gen != event.gen or page.state == "FREE":
            raise Extraordinary
        return page

    def mine(self, event: seen.Record) -> Page:
        """The same, if it belongs to the attempt of the event."""
        page = self.pages.get((event.instance, event.page))
        if page is None or page.gen != event.gen or page.owner != (event.request, event.attempt):
            raise Extraordinary
        if page.state == "FREE":
            raise Extraordinary
        return page

    def _leave(self, event: seen.Moves, *states: str) -> Page:
        page = self.mine(event)
        if page.state not in states or event.data.from_ != page.state or page.readers:
            raise Extraordinary
        self.moves += 1
        return page

    def share(self, event: seen.Shared | seen.Dup) -> None:
        """PRIVATE -> SHARED or DUP: its owner holds the first reference."""
        page = self._leave(event, "PRIVATE")
        page.state = "SHARED" if isinstance(event, seen.Shared) else "DUP"
        page.readers = {page.owner}

    def drain(self, event: seen.Draining) -> None:
        """Released while it is granted."""
        page = self._leave(event, "PRIVATE", "SHARED", "DUP")
        page.state, page.drains_since = "DRAINING", event.clock_ms
        self.draining += 1

    def quarantine(self, event: seen.Quarantined) -> None:
        """DRAINING -> QUARANTINED, in time."""
        page = self._leave(event, "DRAINING")
        self._drained(page, event)
        page.state = "QUARANTINED"

    def free(self, event: seen.Free) -> None:
        """By its owner, when every grant is closed and, without one, nothing was read from it to be written."""
        page = self.alive(event)
        if event.request is not None and page.owner != (event.request, event.attempt):
            raise Extraordinary
        if page.state == "QUARANTINED" or event.data.from_ != page.state or page.readers:
            raise Extraordinary
        if not page.closed and (page.grants or page.sent):
            raise Extraordinary
        if page.state == "DRAINING":
            self._drained(page, event)
        page.state = "FREE"
        self.returns += 1

    def _drained(self, page: Page, event: seen.Record) -> None:
        if event.clock_ms - page.drains_since > self._drain_ms:
            raise Extraordinary

    # -- references

    def hit(self, event: seen.Hit) -> None:
        """A reference to a SHARED page, by the key under which it was published."""
        page = self.alive(event)
        if page.state != "SHARED" or page.readers is None or page.key != event.data.key:
            raise Extraordinary
        page.readers.add((event.request, event.attempt))

    def dropped(self, event: seen.Dropped) -> None:
        """By one who holds it."""
        page = self.alive(event)
        reader = (event.request, event.attempt)
        if page.readers is None or reader not in page.readers:
            raise Extraordinary
        page.readers.remove(reader)

    def holds(self, event: seen.Admitted | seen.Accepted) -> None:
        """An attempt has its pages."""
        reader = (event.request, event.attempt)
        for number, gen in event.data.tickets:
            page = self.pages.get((event.instance, number))
            if page is None or page.gen != gen or not page.readable(reader):
                raise Extraordinary

    def refused(self, event: seen.Refused) -> None:
        """A refusal about a page is to its owner, alive or not."""
        if event.page is not None:
            page = self.pages.get((event.instance, event.page))
            if page is None or page.gen != event.gen or page.owner != (event.request, event.attempt):
                raise Extraordinary

    # -- grants and writes

    def grant(self, event: seen.Granted) -> None:
        """To use a page of one's own, to one peer, before any evidence that it is over."""
        page, data = self.mine(event), event.data
        if page.closed or (page.grants and page.grants[0].to != data.to):
            raise Extraordinary
        if data.bytes > self.memory.page_bytes.get(event.instance, 0):
            raise Extraordinary
        self.grants += 1
        page.grants.append(data)
        if data.bytes > page.granted:
            page.granted = data.bytes
        if data.to not in self.memory.peers[event.instance]:
            self.memory.peer(event.instance, data.to)

    def post(self, event: seen.Posted) -> None:
        """Out of a page of one's own, into one granted and not closed, a place that nobody has written to."""
        data, owner = event.data, (event.request, event.attempt)
        source = self.pages.get((event.instance, data.source_page))
        if source is None or source.state == "FREE" or source.closed or source.owner != owner:
            raise Extraordinary
        memory = self.memory
        where = memory.found.get((event.instance, data.address)) or memory.find(event.instance, data.address)
        instance, layer, number, start = where
        page, end = self.pages.get((instance, number)), start + data.bytes
        if page is None or page.gen != event.gen or page.state == "FREE" or page.owner != owner:
            raise Extraordinary
        if not page.grants or page.grants[0].to != event.instance:
            raise Extraordinary
        if number != event.page or layer != data.layer or page.closed or not start < end <= page.granted:
            raise Extraordinary
        if (layer, start, end) in page.content:
            raise Extraordinary
        if data.write in self.writes or data.write in self._gated:
            raise Extraordinary
        sending = Sending(event.instance, layer, data.fingerprint)
        self.writes[data.write] = page.content[layer, start, end] = sending
        self.sources += not source.sent
        source.sent.append(sending)

    def complete(self, event: seen.Completed) -> None:
        """With success (else it does not decode), once, by its writer."""
        for write in event.data.writes:
            sending = self.writes.get(write)
            if sending is None or sending.done or sending.instance != event.instance or sending.gate not in OUTSIDE:
                raise Extraordinary
            sending.done = event.seq

    def gated(self, event: seen.Held | seen.Released | seen.Landed) -> None:
        """A gate had a message; or a write, which it held, let go and saw landing before its writer heard of it."""
        data = event.data
        sending = self.writes.get(data.what)
        if sending is None:
            self._gated.add(data.what)
            return
        if sending.done or sending.gate != BEFORE[event.__class__] or data.action != "hold" or data.code:
            raise Extraordinary
        sending.gate += 1
        self.at_gates += {seen.Held: 1, seen.Landed: -1}.get(event.__class__, 0)

    # -- stop evidence

    def acknowledge(self, event: seen.Sent) -> None:
        """A message that may be named as stop evidence later, under a name of its own."""
        message = event.data.id
        if message in self.sent or message in self.unsent:
            raise Extraordinary
        self.sent[message] = event

    def close(self, event: seen.Closed, reader: Reader) -> None:
        """Stop evidence that is true: every write under every grant of the page has arrived."""
        page = self.alive(event)
        if page.owner != reader or not page.grants:
            raise Extraordinary
        to = page.grants[0].to
        if to != NIC and ((sent := self.sent.get(event.data.by)) is None or sent.instance != to):
            raise Extraordinary  # not the word of whoever may write
        page.closed = True
        instance, heard = event.instance, self.heard[event.instance]
        writes = page.sent if to == NIC else page.content.values()
        for sending in writes:
            known = sending.done if sending.instance == instance else heard.get(sending.instance, 0)
            if not 0 < sending.done <= known:
                raise Extraordinary
        if event.data.evidence == "acknowledged":
            self._check_acknowledged(event, writes)
        elif page.granted and len({sending.layer for sending in writes}) < self.pools[instance].layers:
            raise Extraordinary

    def _check_acknowledged(self, event: seen.Closed, writes: Iterable[Sending]) -> None:
        told = self.sent.get(event.data.by)
        if (
            told is None
            or told.data.type != "abort-ack"
            or not told.data.clean
            or (told.request, told.attempt) != (event.request, event.attempt)
        ):
            raise Extraordinary
        if any(sending.instance == told.instance and sending.done > told.seq for sending in writes):
            raise Extraordinary

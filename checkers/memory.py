"""Where an address lies: registered regions cut into pages."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import NamedTuple

from racelab.evidence.history import History
from racelab.evidence.writes import Write


class Span(NamedTuple):
    """Bytes [start, end) of one page's layer."""

    instance: str
    layer: int
    page: int
    start: int
    end: int


Region = tuple[int, int, int, int]
"""Address, bytes, layer, bytes of a page."""


class Memory:
    """The pools of all instances by address. `history.derived(Memory)` gives the shared one."""

    def __init__(self, history: History) -> None:
        page_bytes = {event.instance: int(event.data["page_bytes"]) for event in history.by_kind["pool"]}
        latest = {
            (event.instance, event.incarnation, event.data["layer"]): event for event in history.by_kind["region"]
        }
        self._regions: dict[str, list[Region]] = defaultdict(list)
        """by instance, those of its latest process"""
        self._earlier: dict[str, list[tuple[int, list[Region]]]] = defaultdict(list)
        """by instance, those of processes that another has replaced, and from where in the merge order on"""
        since: dict[tuple[str, int], int] = {}
        for (instance, incarnation, layer), event in latest.items():
            if instance not in page_bytes:
                continue
            if (instance, incarnation) not in since and self._regions[instance]:
                self._earlier[instance].append((event.hlc, self._regions[instance]))
                self._regions[instance] = []
            since.setdefault((instance, incarnation), event.hlc)
            size = event.data.get("page_bytes", page_bytes[instance])
            region = (event.data["address"], event.data["bytes"], layer, size)
            self._regions[instance].append(region)
        for regions in self._regions.values():
            regions.sort()
        for replaced in self._earlier.values():
            for _, regions in replaced:
                regions.sort()
        self._peers: dict[str, list[str]] = defaultdict(list)
        for event in history.by_kind["granted"]:
            if event.instance not in self._peers[event.data["to"]]:
                self._peers[event.data["to"]].append(event.instance)
        self._spans: dict[tuple[str, str | None, int, int, str | None], list[Span]] = {}
        """by place; by write too if an address may have been another process's page before"""

    def spans(self, write: Write) -> list[Span]:
        """What a write touches, on the peers that granted its writer anything; empty if that is no page.
        A read touches its reader's own pages.

        Each process has addresses of its own, so those of others are not looked at.
        """
        instance = write.posted.instance
        to = instance if write.is_read else write.posted.data.get("to")
        place = (instance, to, write.address, write.bytes, write.id if self._earlier else None)
        spans = self._spans.get(place)
        if spans is None:
            peers = [to] if to is not None else self._peers.get(instance, ())
            found = (self._spans_on(instance, write) for instance in peers)
            spans = self._spans[place] = next(filter(None, found), [])
        return spans

    def landed(self, write: Write) -> list[Span]:
        """What a write that landed changed: its first bytes alone, if it was torn."""
        spans = self.spans(write)
        if write.torn is None:
            return spans
        left = write.torn
        changed = []
        for span in spans:
            size = min(left, span.end - span.start)
            if size > 0:
                changed.append(span._replace(end=span.start + size))
            left -= size
        return changed

    def _regions_of(self, instance: str, write: Write) -> list[Region]:
        """The memory of the process that was there when the write landed, or else when it was posted."""
        if instance in self._earlier:
            seen = write.landed or (write.completed if write.succeeded else None) or write.posted
            for until, regions in self._earlier[instance]:
                if seen.hlc < until:
                    return regions
        return self._regions.get(instance, [])

    def _spans_on(self, instance: str, write: Write) -> list[Span]:
        spans: list[Span] = []
        address, size_bytes = write.address, write.bytes
        regions = self._regions_of(instance, write)
        index = max(bisect_right(regions, (address, 1 << 64)) - 1, 0)
        end = address + size_bytes
        for base, length, layer, page_bytes in regions[index:]:
            if base >= end:
                break
            low, high = max(address, base), min(end, base + length)
            while low < high:
                page, start = divmod(low - base, page_bytes)
                stop = min(page_bytes, start + high - low)
                spans.append(Span(instance, layer, page, start, stop))
                low += stop - start
        return spans

"""Marks at the end of pages that a peer is to fill: as long as one is there, the bytes have not arrived.

A completion is the transport's word. Whoever waits for data of a one-sided write can look at the memory itself: the
last bytes of a range are set to what no writer brings, and the range has arrived when they are gone.
"""

from __future__ import annotations

import struct

from racelab.engine.guards import Guards, Ticket, TrustCompletion
from racelab.engine.pool import PagePool
from racelab.engine.shares import Shares
from racelab.transport.messages import Message

_MARK = struct.Struct("<4f")
"""Finite numbers: attention over a page that nobody filled has to answer something."""

LOOKS_MAX = 7
"""How often a page is looked at again, each time after twice as long: 127 parts of the drain time-out in all."""
PARTS = 128


class Tails:
    """Marks pages only where a guard asks for what has become of the mark."""

    def __init__(self, pool: PagePool, guards: Guards, shares: Shares) -> None:
        self._pool = pool
        self._shares = shares
        self._guards = guards
        self._on = guards.judge(TrustCompletion)
        self._marked: dict[tuple[int, int], tuple[int, int]] = {}
        """by page and generation, which page of how many tokens it is to hold"""
        self._reported: set[tuple[int, int, int]] = set()
        """what was reported as written, and was not there"""

    def mark(self, ticket: Ticket, index: int, tokens: int) -> None:
        """The page is about to be granted, to be filled as number `index` of `tokens` tokens."""
        if not self._on:
            return
        self._marked[ticket.page, ticket.gen] = index, tokens
        for block in range(len(self._pool.blocks)):
            size = self._pool.valid_bytes(index, tokens, block)
            if size >= _MARK.size:
                self._pool.put(ticket.page, block, size - _MARK.size, _mark(ticket.page, ticket.gen, block))

    def distrusts(self, message: Message) -> bool:
        """Whether a guard has something against taking a transport's success for the arrival of its bytes."""
        if not self._on:
            return False
        missing = [place for place in self._places(message) if self._is_marked(*place)]
        self._reported.update(missing)
        return bool(missing) and self._refuses(message, "committed", len(missing))

    def distrusts_end(self, message: Message) -> bool:
        """The same of an acknowledgement that nothing can land any more: not while what was reported is not there."""
        missing = [place for place in self._places(message) if place in self._reported and self._is_marked(*place)]
        return bool(missing) and self._refuses(message, "grant-closed", len(missing))

    def _refuses(self, message: Message, leads_to: str, missing: int) -> bool:
        about = (message.request, message.attempt, None, None, leads_to)
        return self._guards.refuse(TrustCompletion(*about, missing=missing)) is not None

    def _places(self, message: Message) -> list[tuple[int, int, int]]:
        """Page, generation and block of everything that the message says has been written."""
        share = self._shares.all[self._shares.of(message)]
        blocks = share.blocks if message.type == "written" else range(len(self._pool.blocks))
        return [(page, gen, block) for page, gen in message.body["pages"] for block in blocks]

    def _is_marked(self, page: int, gen: int, block: int) -> bool:
        if (page, gen) not in self._marked:
            return False
        size = self._pool.valid_bytes(*self._marked[page, gen], block)
        return self._pool.get(page, block, max(size - _MARK.size, 0), size) == _mark(page, gen, block)


def _mark(page: int, gen: int, block: int) -> bytes:
    return _MARK.pack(-1.0 - page, -1.0 - gen, -1.0 - block, 0.0)

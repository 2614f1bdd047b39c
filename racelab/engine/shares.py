"""What of a chunk is posted and reported together: a share, some of the memory blocks of its pages.

One share if a lab asks for nothing else. Each tensor-parallel rank has its own; so has each stream that travels
beside the model's own KV (racelab.engine.streams).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from racelab.engine.pool import KV, PagePool
from racelab.transport.lanes import WriteIdentity
from racelab.transport.messages import Message


class Share(NamedTuple):
    """Its blocks, and by what writes and messages name it: nothing where there is one alone."""

    blocks: tuple[int, ...]
    rank: int | None
    stream: str | None

    @property
    def names(self) -> dict[str, Any]:
        """As a message says it."""
        return {key: value for key, value in (("rank", self.rank), ("stream", self.stream)) if value is not None}

    @property
    def is_companion(self) -> bool:
        """Whether it is of another stream than the model's own KV."""
        return self.stream not in (None, KV)


class Shares:
    """All that a pool's pages have, numbered in the order in which they are posted: the model's own KV last, so that
    what it needs has mostly arrived before it."""

    def __init__(self, pool: PagePool) -> None:
        blocks: dict[tuple[int | None, str | None], list[int]] = {}
        for number, block in enumerate(pool.blocks):
            rank = block.rank if pool.ranks > 1 else None
            stream = block.stream if len(pool.streams) > 1 else None
            blocks.setdefault((rank, stream), []).append(number)
        shares = [Share(tuple(numbers), *names) for names, numbers in blocks.items()]
        self.all = sorted(shares, key=lambda share: not share.is_companion)
        self.first_own = sum(share.is_companion for share in shares)
        """the first share of the model's own KV, with which metadata goes"""
        self._by_name = {(share.rank, share.stream): number for number, share in enumerate(self.all)}

    def of(self, named: WriteIdentity | Message) -> int:
        """The number of the share to which a write or a message belongs."""
        return self._by_name.get((named.rank, named.stream), self.first_own)  # metadata has no name

    def __len__(self) -> int:
        return len(self.all)

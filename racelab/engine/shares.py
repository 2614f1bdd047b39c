"""What of a chunk is posted and reported together: a share, some of the memory blocks of its pages.

One share if a lab asks for nothing else. Each tensor-parallel rank has its own; so has each stream that travels beside
the model's own KV (racelab.engine.streams), and each layer where layers are sent as they are computed (lab `send`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from racelab.engine.pool import DRAFT, KV, PagePool
from racelab.scenario import Lab
from racelab.transport.lanes import WriteIdentity
from racelab.transport.messages import Message


class Share(NamedTuple):
    """Its blocks, and by what writes and messages name it: nothing where there is one alone."""

    blocks: tuple[int, ...]
    layer: int | None
    rank: int | None
    stream: str | None

    @property
    def names(self) -> dict[str, Any]:
        """As a message says it."""
        named = {"layer": self.layer, "rank": self.rank, "stream": self.stream}
        return {key: value for key, value in named.items() if value is not None}

    @property
    def is_companion(self) -> bool:
        """Whether it is of another stream than the model's own KV."""
        return self.stream not in (None, KV)


class Shares:
    """All that a pool's pages have, numbered in the order in which they are posted: layers as they are computed, and
    of each the model's own KV last, so that what it needs has mostly arrived before it."""

    def __init__(self, pool: PagePool, lab: Lab) -> None:
        self._layer_wise = lab.send == "layer-wise"
        blocks: dict[tuple[int | None, int | None, str | None], list[int]] = {}
        for number, block in enumerate(pool.blocks):
            layer = block.layer if self._layer_wise else None
            rank = block.rank if pool.ranks > 1 else None
            stream = block.stream if len(pool.streams) > 1 else None
            blocks.setdefault((layer, rank, stream), []).append(number)
        shares = [Share(tuple(numbers), *names) for names, numbers in blocks.items()]
        stage_of = {share: self._stage(share, pool.layers) for share in shares}
        self.all = sorted(shares, key=lambda share: (stage_of[share], not share.is_companion))
        self._by_name = {share[1:]: number for number, share in enumerate(self.all)}
        stages: dict[int, list[int]] = {}
        for number, share in enumerate(self.all):
            stages.setdefault(stage_of[share], []).append(number)
        self.stages = list(stages.values())
        """shares that are posted together, in order: what was computed since those before"""
        last = {number for number, share in enumerate(self.all) if self._is_last(share, pool.layers)}
        self.closing = last if self._layer_wise else set()
        """where layers are sent one by one, those of the model's own last one"""
        self.of_metadata = min(last)
        """with which metadata goes"""

    def _stage(self, share: Share, layers: int) -> int:
        """When a share has been computed: the draft model runs after the model itself."""
        if not self._layer_wise:
            return 0
        return layers if share.stream == DRAFT else share.layer or 0

    def _is_last(self, share: Share, layers: int) -> bool:
        return not share.is_companion and share.layer in (None, layers - 1)

    def of(self, named: WriteIdentity | Message) -> int:
        """The number of the share to which a write or a message belongs."""
        layer = named.layer if self._layer_wise else None
        return self._by_name.get((layer, named.rank, named.stream), self.of_metadata)  # metadata has no name

    def __len__(self) -> int:
        return len(self.all)

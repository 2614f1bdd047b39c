"""The paged KV pool: the memory itself, its addresses, and fingerprints of what is in it.

One contiguous block a layer and rank, each registered with the transport as a region. Page p of block b
is at `address(b) + p * page_bytes`. Ranks are the tensor-parallel shares of a layer: each has some of the heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy
import torch

from racelab.engine.guards import Ticket
from racelab.engine.transformer import HEAD_DIM, HEADS, TOKEN_BYTES
from racelab.evidence.fingerprint import Dissected, chunk_fingerprints, fingerprint
from racelab.evidence.recorder import Recorder
from racelab.transport.home import Memory

Allocate = Callable[[int], Memory | None]
"""Memory of a size in bytes that the transport can register; None if any will do."""

Fingerprint = list[int | str]
"""[page, gen, block, start, end, hex]"""


class Block(NamedTuple):
    """Whose share of every page a block holds."""

    layer: int
    rank: int


class PagePool:
    """`kv` is [layers, pages, page_tokens, 2, HEADS, HEAD_DIM] float32; with several ranks it is
    [layers, ranks, pages, page_tokens, 2, HEADS / ranks, HEAD_DIM]. With `allocate` it lies in memory from there,
    which the transport may know by another address than this process does."""

    def __init__(
        self,
        pages: int,
        layers: int,
        page_tokens: int,
        allocate: Allocate = lambda size: None,
        *,
        ranks: int = 1,
    ) -> None:
        self.pages = pages
        self.layers = layers
        self.ranks = ranks
        self.page_tokens = page_tokens
        self.blocks = [Block(layer, rank) for layer in range(layers) for rank in range(ranks)]
        self._token_bytes = TOKEN_BYTES // ranks
        self.page_bytes = page_tokens * self._token_bytes
        shares = (layers,) if ranks == 1 else (layers, ranks)
        shape = (*shares, pages, page_tokens, 2, HEADS // ranks, HEAD_DIM)
        self._memory = allocate(len(self.blocks) * self.block_bytes)
        if self._memory is None:
            self.kv = torch.zeros(shape)
        else:
            self.kv = torch.from_numpy(self._memory.bytes.view(numpy.float32).reshape(shape))
        self._bytes = self.kv.numpy().view(numpy.uint8).reshape(len(self.blocks), pages, self.page_bytes)
        self._pattern = b""
        self.seen = Dissected()
        """chunk fingerprints of everything that was fingerprinted in this epoch"""

    def address(self, block: int) -> int:
        """Where a block begins."""
        base = self._memory.address if self._memory is not None else int(self.kv.data_ptr())
        return base + block * self.block_bytes

    def record_regions(self, recorder: Recorder) -> None:
        """What is registered with the transport, and whose share of a layer each block holds, if there are several."""
        for number, block in enumerate(self.blocks):
            of: dict[str, Any] = {"of": block._asdict()} if self.ranks > 1 else {}
            recorder.record("region", layer=number, address=self.address(number), bytes=self.block_bytes, **of)

    def check_memory(self) -> None:
        """What is seen here is what the transport writes to.

        Raises:
            LabError: it is not.
        """
        if self._memory is not None:
            self._memory.check()

    @property
    def block_bytes(self) -> int:
        """Size of one block."""
        return self.pages * self.page_bytes

    def fingerprint(self, page: int, block: int, start: int, end: int) -> str:
        """The fingerprint of a byte range of one page's block."""
        data = self._bytes[block, page, start:end]
        seen = fingerprint(data)
        self.seen.note(seen, data)
        return seen

    @property
    def pattern_chunks(self) -> str:
        """The chunk fingerprints of a page that holds this epoch's pattern and nothing else."""
        return chunk_fingerprints(self._pattern)

    def fingerprints(self, tickets: Sequence[Ticket], tokens: int) -> list[Fingerprint]:
        """Of the valid bytes of `tokens` tokens in their pages, block by block; the tail is decode's to append."""
        pages = -(-tokens // self.page_tokens)
        return [
            [ticket.page, ticket.gen, block, 0, size, self.fingerprint(ticket.page, block, 0, size)]
            for index, ticket in enumerate(tickets[:pages])
            for size in [self.valid_bytes(index, tokens)]
            for block in range(len(self.blocks))
        ]

    def get(self, page: int, block: int, start: int, end: int) -> bytes:
        """What is in a byte range of one page's block."""
        return self._bytes[block, page, start:end].tobytes()

    def put(self, page: int, block: int, start: int, data: bytes) -> None:
        """Write into one page's block."""
        self._bytes[block, page, start : start + len(data)] = numpy.frombuffer(data, dtype=numpy.uint8)

    def zero(self, pages: Sequence[int]) -> None:
        """Clear pages, all blocks of them."""
        self._bytes[:, list(pages)] = 0

    @property
    def zero_chunks(self) -> str:
        """The chunk fingerprints of a page that was cleared."""
        return chunk_fingerprints(bytes(self.page_bytes))

    def valid_bytes(self, index: int, tokens: int) -> int:
        """How many bytes of each block of a request's page number `index` its first `tokens` tokens fill."""
        return max(0, min(self.page_tokens, tokens - index * self.page_tokens)) * self._token_bytes

    def refill(self, epoch: int) -> None:
        """Fill every page with a pattern that belongs to this epoch alone: finite numbers, so that
        attention over a page that was never written answers something, and always the same."""
        self.seen.clear()
        numbers = numpy.random.default_rng(epoch).standard_normal(self.page_bytes // 4, dtype=numpy.float32)
        self._pattern = numbers.tobytes()
        self._bytes[:] = numpy.frombuffer(self._pattern, dtype=numpy.uint8)

    def foreign(self, pages: list[int]) -> list[int]:
        """Those of `pages`, never granted in this epoch, that no longer hold its pattern."""
        return [page for page in pages if any(block[page].tobytes() != self._pattern for block in self._bytes)]

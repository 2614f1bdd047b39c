"""The paged KV pool: the memory itself, its addresses, and fingerprints of what is in it.

One contiguous block a layer and rank, each registered with the transport as a region: `place(b, p)` is where page
p of block b is. Ranks are the tensor-parallel shares of a layer: each has some of the heads. Streams other than the
model's own KV (racelab.engine.streams) have blocks of their own, whose pages may be smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy
import torch
from numpy.typing import NDArray

from racelab.engine.guards import Ticket
from racelab.engine.memory import TwiceMapped
from racelab.engine.transformer import HEAD_DIM, HEADS, SCALE_BYTES, TOKEN_BYTES, Cache, Scaled
from racelab.errors import LabError
from racelab.evidence.fingerprint import Dissected, chunk_fingerprints, fingerprint
from racelab.evidence.recorder import Recorder
from racelab.transport.home import Memory

Allocate = Callable[[int], Memory | None]
"""Memory of a size in bytes that the transport can register; None if any will do."""

Fingerprint = list[int | str]
"""[page, gen, block, start, end, hex]"""


KV = "kv"
SCALES = "scales"
DRAFT = "draft"
DRAFT_LAYERS = 1

PIECE_BYTES = 32 * 1024
"""What is looked at in one go between two full looks: half of a page's layer."""

Piece = tuple[Any, str]
"""Bytes where they lie, as a buffer, and the fingerprint that they had."""


class Block(NamedTuple):
    """Whose share of every page a block holds."""

    layer: int
    rank: int
    stream: str = KV


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
        streams: Sequence[str] = (),
    ) -> None:
        self.pages = pages
        self.layers = layers
        self.ranks = ranks
        self.page_tokens = page_tokens
        self.streams = (KV, *streams)
        self.blocks = [
            Block(layer, rank, stream)
            for stream in self.streams
            for layer in range(DRAFT_LAYERS if stream == DRAFT else layers)
            for rank in range(ranks)
        ]
        self._token_bytes = [(SCALE_BYTES if block.stream == SCALES else TOKEN_BYTES) // ranks for block in self.blocks]
        self.page_sizes = [page_tokens * size for size in self._token_bytes]
        """bytes of a page by block"""
        self.page_bytes = self.page_sizes[0]
        """those of the model's own KV"""
        self._starts = [0, *accumulate(pages * size for size in self.page_sizes)]
        given = allocate(self._starts[-1])
        self._own = TwiceMapped(self._starts[-1]) if given is None else None
        memory = self._own if given is None else given
        assert memory is not None
        self._memory: Memory = memory
        floats = torch.from_numpy(memory.bytes.view(numpy.float32))
        data = floats.numpy().view(numpy.uint8)
        self._bytes = [
            data[start : start + self.block_bytes(block)].reshape(pages, -1)
            for block, start in enumerate(self._starts[:-1])
        ]
        self.kv = self._of(KV, floats, HEAD_DIM)
        self.draft = self._of(DRAFT, floats, HEAD_DIM) if DRAFT in streams else None
        """the draft model's keys and values"""
        self.cache: Cache = self.kv
        """what attention reads and writes"""
        if SCALES in streams:
            self.cache = [Scaled(*both) for both in zip(self.kv, self._of(SCALES, floats, 1), strict=True)]
        self._pattern = b""
        self.seen = Dissected()
        """chunk fingerprints of everything that was fingerprinted in this epoch"""

    def _of(self, stream: str, floats: torch.Tensor, width: int) -> torch.Tensor:
        """One stream's part of the memory, `width` numbers a head."""
        blocks = [number for number, block in enumerate(self.blocks) if block.stream == stream]
        start, end = self._starts[blocks[0]], self._starts[blocks[-1] + 1]
        layers = len(blocks) // self.ranks
        shares = (layers,) if self.ranks == 1 else (layers, self.ranks)
        shape = (*shares, self.pages, self.page_tokens, 2, HEADS // self.ranks, width)
        return floats[start // 4 : end // 4].view(shape)

    def address(self, block: int) -> int:
        """Where a block begins."""
        return self._memory.address + self._starts[block]

    def place(self, block: int, page: int) -> int:
        """Where a page of a block begins."""
        return self.address(block) + page * self.page_sizes[block]

    @property
    def is_plain(self) -> bool:
        """Whether a layer has one block, and its number is the layer's."""
        return self.ranks == 1 and len(self.streams) == 1

    def share(self, block: int) -> dict[str, Any]:
        """Whose share a block is, as far as there are several: for events."""
        layer, rank, stream = self.blocks[block]
        of: dict[str, Any] = {"layer": layer}
        of |= {"rank": rank} if self.ranks > 1 else {}
        return of | ({"stream": stream} if len(self.streams) > 1 else {})

    def record_regions(self, recorder: Recorder) -> None:
        """What is registered with the transport, and whose share of a layer each block holds, if there are several."""
        for number in range(len(self.blocks)):
            of: dict[str, Any] = {} if self.is_plain else {"of": self.share(number)}
            size = self.page_sizes[number]
            of |= {"page_bytes": size} if size != self.page_bytes else {}
            recorder.record("region", layer=number, address=self.address(number), bytes=self.block_bytes(number), **of)

    def check_memory(self) -> None:
        """What is seen here is what the transport writes to.

        Raises:
            LabError: it is not.
        """
        self._memory.check()

    def unmap(self) -> None:
        """Nothing is where the transport has the pages registered; this process goes on using them elsewhere.

        Raises:
            LabError: they are not this process's own to unmap.
        """
        if self._own is None:
            raise LabError("the pages are in a machine's memory, which is not unmapped", next="another cluster")
        self._own.unmap()

    def map_again(self) -> None:
        """Undo `unmap`, at the same addresses; harmless if there was none."""
        if self._own is not None:
            self._own.map_again()

    def block_bytes(self, block: int) -> int:
        """Size of a block."""
        return self.pages * self.page_sizes[block]

    def fingerprint(self, page: int, block: int, start: int, end: int) -> str:
        """The fingerprint of a byte range of one page's block."""
        data = self._bytes[block][page, start:end]
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
            for block in range(len(self.blocks))
            for size in [self.valid_bytes(index, tokens, block)]
        ]

    def pieces(self, tickets: Sequence[Ticket], tokens: int) -> list[Piece]:
        """The same bytes, cut so that one of them can be looked at in little time."""
        pages = -(-tokens // self.page_tokens)
        views = [
            self._bytes[block][ticket.page, start : min(start + PIECE_BYTES, size)]
            for index, ticket in enumerate(tickets[:pages])
            for block in range(len(self.blocks))
            for size in [self.valid_bytes(index, tokens, block)]
            for start in range(0, size, PIECE_BYTES)
        ]
        return [(view, fingerprint(view)) for view in views]

    def get(self, page: int, block: int, start: int, end: int) -> bytes:
        """What is in a byte range of one page's block."""
        return self._bytes[block][page, start:end].tobytes()

    def put(self, page: int, block: int, start: int, data: bytes) -> None:
        """Write into one page's block."""
        self._bytes[block][page, start : start + len(data)] = numpy.frombuffer(data, dtype=numpy.uint8)

    def memory(self, block: int) -> NDArray[numpy.uint8]:
        """A block's bytes, [pages, bytes of a page]."""
        return self._bytes[block]

    def zero(self, pages: Sequence[int]) -> None:
        """Clear pages, all blocks of them."""
        for block in self._bytes:
            block[list(pages)] = 0

    @property
    def zero_chunks(self) -> str:
        """The chunk fingerprints of a page that was cleared."""
        return chunk_fingerprints(bytes(self.page_bytes))

    def valid_bytes(self, index: int, tokens: int, block: int = 0) -> int:
        """How many bytes of a block of a request's page number `index` its first `tokens` tokens fill."""
        return max(0, min(self.page_tokens, tokens - index * self.page_tokens)) * self._token_bytes[block]

    def refill(self, epoch: int) -> None:
        """Fill every page with a pattern that belongs to this epoch alone: finite numbers, so that
        attention over a page that was never written answers something, and always the same."""
        self.seen.clear()
        numbers = numpy.random.default_rng(epoch).standard_normal(self.page_bytes // 4, dtype=numpy.float32)
        self._pattern = numbers.tobytes()
        pattern = numpy.frombuffer(self._pattern, dtype=numpy.uint8)
        for block, size in zip(self._bytes, self.page_sizes, strict=True):
            block[:] = pattern[:size]

    def foreign(self, pages: list[int]) -> list[int]:
        """Those of `pages`, never granted in this epoch, that no longer hold its pattern."""
        clean = list(zip(self._bytes, [self._pattern[:size] for size in self.page_sizes], strict=True))
        return [page for page in pages if any(block[page].tobytes() != pattern for block, pattern in clean)]

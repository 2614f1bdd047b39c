"""A small deterministic decoder-only transformer over a paged KV cache.

Pre-norm blocks with RMSNorm, rotary-free sinusoidal positions, multi-head attention whose keys
and values live in pages, and a two-layer MLP (Vaswani et al. 2017; paging as in vLLM, SOSP'23).
The weights are random with a fixed seed and scaled so that attention dominates: a page with
another request's keys and values changes the tokens that come out.

KV layout of one page and layer: [page_tokens, 2, HEADS, HEAD_DIM] float32, so the bytes of the
first n tokens are the first n * TOKEN_BYTES bytes of the page.

A layer's cache may be `Scaled`: as in a quantised cache each head's key and value of a token has a scale, without
which what is stored means nothing. Scales here are powers of two, so that what comes back is what went in, to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from torch.nn import functional

VOCABULARY = 256
WIDTH = 64
HEADS = 8
HEAD_DIM = 64
FEED_FORWARD = 128
TOKEN_BYTES = 2 * HEADS * HEAD_DIM * 4
SCALE_BYTES = 2 * HEADS * 4
WEIGHTS_SEED = 20_26
_ATTENTION_GAIN = 3.0
_SHARPNESS = 4.0
_POSITION_GAIN = 0.3
_NORM_GAIN = math.sqrt(WIDTH)
_POSITIONS_MAX = 4096
_ONE_RANK = 5
"""Dimensions of a layer's cache that is not split."""


class Scaled(NamedTuple):
    """One layer's cache: `scales` as `values`, with one number in place of a head's HEAD_DIM."""

    values: torch.Tensor
    scales: torch.Tensor


Cache = torch.Tensor | Sequence[Scaled]
"""A cache of every layer, [layers, ...] or one by one."""


class Layer:
    """Weights of one block; all [in, out] float32."""

    def __init__(self, generator: torch.Generator) -> None:
        inner = HEADS * HEAD_DIM
        query = _weight(generator, WIDTH, inner) * (_SHARPNESS / math.sqrt(HEAD_DIM))
        self.query_key_value = torch.cat([query, _weight(generator, WIDTH, 2 * inner)], dim=1) * _NORM_GAIN
        self.output = _weight(generator, inner, WIDTH) * _ATTENTION_GAIN
        self.up = _weight(generator, WIDTH, FEED_FORWARD) * _NORM_GAIN
        self.down = _weight(generator, FEED_FORWARD, WIDTH)


class Transformer:
    """`forward` is a pure function of its arguments and the pages; safe to share between requests."""

    def __init__(self, layers: int, seed: int = WEIGHTS_SEED) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.embedding = torch.randn(VOCABULARY, WIDTH, generator=generator)
        self.unembedding = _weight(generator, WIDTH, VOCABULARY) * _NORM_GAIN
        self.layers = [Layer(generator) for _ in range(layers)]
        self.positions = _sinusoids(_POSITIONS_MAX) * _POSITION_GAIN

    def fill(self, tokens: list[int], start: int, kv: Cache, pages: list[int]) -> None:
        """Write the keys and values of `tokens` and compute nothing else: what prefill is for."""
        for _ in self.fill_by_layer(tokens, start, kv, pages):
            pass

    def fill_by_layer(self, tokens: list[int], start: int, kv: Cache, pages: list[int]) -> Iterator[object]:
        """The same, one layer each time that it is asked for the next."""
        return islice(self._run(tokens, start, kv, pages), len(self.layers))

    def forward(self, tokens: list[int], start: int, kv: Cache, pages: list[int]) -> torch.Tensor:
        """Run `tokens` at positions `start`... over the request's `pages` of `kv`.

        Args:
            kv: as in racelab.engine.pool, of one rank or of several; the new tokens' keys and values
                are written into it, those before `start` are read from it.
            pages: page numbers of the request, in token order.

        Returns:
            logits of the last token, [VOCABULARY].
        """
        *_, logits = self._run(tokens, start, kv, pages)
        assert logits is not None
        return logits

    @torch.inference_mode()
    def _run(self, tokens: list[int], start: int, kv: Cache, pages: list[int]) -> Iterator[torch.Tensor | None]:
        """Yields once the keys and values of each layer are written; in the end the logits."""
        count, end = len(tokens), start + len(tokens)
        hidden = self.embedding[tokens] + self.positions[start:end]
        index = torch.tensor(pages)
        mask = torch.full((count, end), -math.inf).triu(start + 1) if count > 1 else None
        for layer, cache in zip(self.layers, kv, strict=True):
            fresh = (_norm(hidden) @ layer.query_key_value).view(count, 3, HEADS, HEAD_DIM)
            _store(cache, pages, start, fresh[:, 1:])
            yield None
            keys, values = _load(cache, index)[:end].permute(1, 2, 0, 3)
            scores = torch.bmm(fresh[:, 0].transpose(0, 1), keys.transpose(1, 2))
            attended = torch.bmm((scores if mask is None else scores + mask).softmax(-1), values)
            hidden = hidden + attended.transpose(0, 1).reshape(count, -1) @ layer.output
            hidden = hidden + functional.silu(_norm(hidden) @ layer.up) @ layer.down
        yield _norm(hidden[-1]) @ self.unembedding


def _load(cache: torch.Tensor | Scaled, index: torch.Tensor) -> torch.Tensor:
    """The keys and values of some pages, [tokens, 2, HEADS, HEAD_DIM]; each rank has some of the heads."""
    if isinstance(cache, Scaled):
        return _load(cache.values, index) * _load(cache.scales, index)
    if cache.dim() == _ONE_RANK:
        return cache.index_select(0, index).flatten(0, 1)
    shares = cache.index_select(1, index)
    return torch.cat([share.flatten(0, 1) for share in shares], dim=2)


def _store(cache: torch.Tensor | Scaled, pages: list[int], start: int, key_value: torch.Tensor) -> None:
    """Write tokens' keys and values into their slots, one copy a page and rank."""
    if isinstance(cache, Scaled):
        scales = _scales(key_value)
        _store(cache.values, pages, start, key_value / scales)
        _store(cache.scales, pages, start, scales)
        return
    if cache.dim() > _ONE_RANK:
        heads = HEADS // len(cache)
        for rank, share in enumerate(cache):
            _store(share, pages, start, key_value[:, :, rank * heads : (rank + 1) * heads])
        return
    page_tokens, done = cache.shape[1], 0
    while done < len(key_value):
        page, slot = divmod(start + done, page_tokens)
        size = min(page_tokens - slot, len(key_value) - done)
        cache[pages[page], slot : slot + size] = key_value[done : done + size]
        done += size


def _scales(key_value: torch.Tensor) -> torch.Tensor:
    """The least power of two above a head's numbers, [tokens, 2, HEADS, 1]."""
    _, exponents = torch.frexp(key_value.abs().amax(-1, keepdim=True))
    return torch.ldexp(torch.ones_like(exponents, dtype=torch.float32), exponents)


def _weight(generator: torch.Generator, inputs: int, outputs: int) -> torch.Tensor:
    return torch.randn(inputs, outputs, generator=generator) / math.sqrt(inputs)


def _norm(hidden: torch.Tensor) -> torch.Tensor:
    """To unit length: the gain of RMSNorm, sqrt(WIDTH), is in the weights that follow."""
    length: torch.Tensor = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True)
    return hidden / length


def _sinusoids(length: int) -> torch.Tensor:
    rates = torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(10_000.0) / WIDTH))
    angles = torch.arange(length)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)

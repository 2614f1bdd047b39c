"""Streams that travel beside the model's own KV (lab `streams`): in the same pages, in blocks of their own.

    scales    of a quantised cache: without its scales the KV of a page means nothing
    draft     the KV of a small model that proposes each token before the model itself computes it; a wrong proposal
              is refused, so nothing but the fingerprints tells when this stream is wrong

Each is reported by itself. They are posted together and arrive together, unless a gate or a fault parts them: then one
of them is late or fails by itself. As upstream engines do it, decode counts
the parts of the KV and commits; that the other streams are complete by then is for a guard to see to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import torch

from racelab.engine.guards import CommitApart, Guards
from racelab.engine.handles import Handle
from racelab.engine.pool import DRAFT_LAYERS, PagePool
from racelab.engine.transformer import Transformer

DRAFT_SEED = 20_27
"""Weights of its own, so that its KV never equals that of the model."""


@dataclass
class Companions:
    """What one attempt still waits for beside its KV: handles, and the stream of each."""

    missing: dict[Handle, str] = field(default_factory=dict)
    failed: dict[Handle, str] = field(default_factory=dict)

    def note(self, handle: Handle, stream: str, *, ok: bool) -> None:
        """News of one of them."""
        self.missing.pop(handle, None)
        if not ok:
            self.failed[handle] = stream

    def apart(self, request: str, attempt: int, guards: Guards) -> bool:
        """Whether they are not all there, and a guard minds."""
        if not self.missing and not self.failed:
            return False
        missing, failed = (tuple(sorted(set(streams.values()))) for streams in (self.missing, self.failed))
        question = CommitApart(request, attempt, None, None, "committed", missing=missing, failed=failed)
        return guards.refuse(question) is not None


class Draft:
    """The draft model over its own stream of a pool's pages."""

    def __init__(self, cache: torch.Tensor) -> None:
        self._cache = cache
        self._model = _draft_model()

    @classmethod
    def of(cls, pool: PagePool) -> Draft | None:
        """The one of a pool whose pages have its stream."""
        return cls(pool.draft) if pool.draft is not None else None

    def fill_by_layer(self, tokens: list[int], start: int, pages: list[int]) -> Iterator[object]:
        """Write the keys and values of `tokens`, a layer each time that it is asked for the next."""
        return self._model.fill_by_layer(tokens, start, self._cache, pages)

    def propose(self, token: int, position: int, pages: list[int]) -> int:
        """What follows the token at a position."""
        return int(self._model.forward([token], position, self._cache, pages).argmax())


@cache
def _draft_model() -> Transformer:
    return Transformer(DRAFT_LAYERS, DRAFT_SEED)

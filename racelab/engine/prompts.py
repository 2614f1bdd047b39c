"""Prompts that depend on the request's salt, its prefix and the run's seed alone, so that equal shapes
never hide a mix-up behind equal bytes and every run of a seed has the same solo answer.
"""

from __future__ import annotations

import random

from racelab.engine.transformer import VOCABULARY


def prompt(salt: str, tokens: int, seed: int, prefix: str | None = None, prefix_tokens: int = 0) -> list[int]:
    """`tokens` token ids in [0, VOCABULARY), of which the first `prefix_tokens` are those of `prefix`."""
    shared = _draw(f"{seed}/prefix/{prefix}", prefix_tokens) if prefix is not None else []
    return shared + _draw(f"{seed}/{salt}", tokens - len(shared))


def _draw(origin: str, tokens: int) -> list[int]:
    source = random.Random(origin)
    return [source.randrange(VOCABULARY) for _ in range(tokens)]

"""Prompts that depend on the request's salt and the run's seed alone, so that equal shapes never
hide a mix-up behind equal bytes and every run of a seed has the same solo answer.
"""

from __future__ import annotations

import random

from racelab.engine.transformer import VOCABULARY


def prompt(salt: str, tokens: int, seed: int) -> list[int]:
    """`tokens` token ids in [0, VOCABULARY)."""
    source = random.Random(f"{seed}/{salt}")
    return [source.randrange(VOCABULARY) for _ in range(tokens)]

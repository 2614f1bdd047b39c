"""The same fingerprint by one Triton kernel: a pass over the memory, with nothing between it and the sums.

Import it only where `available()` says so: Triton comes with torch's CUDA builds and needs a GPU, or
TRITON_INTERPRET=1 to run on a CPU word by word for a test. https://triton-lang.org
"""

from __future__ import annotations

import importlib.util
import os

import torch

from racelab.evidence.page_hash import MULTIPLIER, finish, multipliers, signed

BLOCK_WORDS = 1024
"""8 KiB a program: small batches of pages still fill a GPU."""


def available() -> str | None:
    """None if the kernel can run here, else why not and what would help."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed; it comes with torch's CUDA builds"
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        return "there is no GPU; TRITON_INTERPRET=1 runs the kernel on a CPU, slowly"
    return None


if available() is None:
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def _sums(pages, table, valid, sums, page_words, FACTOR: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        page = tl.program_id(0)
        at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        counted = at < tl.load(valid + page)
        words = tl.load(pages + page.to(tl.int64) * page_words + at, mask=counted, other=0)
        factors = tl.load(table + at, mask=counted, other=0)
        mixed = (words ^ factors) * FACTOR
        mixed = mixed ^ ((mixed >> 32) & 0xFFFFFFFF)
        terms = tl.where(counted, mixed * factors, 0)
        tl.atomic_add(sums + page, tl.sum(terms, 0))  # modulo 2^64, so in any order


def page_hashes(pages: torch.Tensor, words: torch.Tensor | None = None) -> torch.Tensor:
    """As `racelab.evidence.page_hash.page_hashes`, by the kernel; a CUDA graph can hold it.

    pages: int64 [batch, page_words], contiguous. words: int64 [batch], all if left out. Returns int64 [batch].
    """
    batch, page_words = pages.shape
    if words is None:
        words = torch.full((batch,), page_words, dtype=torch.int64, device=pages.device)
    sums = torch.zeros(batch, dtype=torch.int64, device=pages.device)
    table = multipliers(page_words, pages.device)
    grid = (batch, -(-page_words // BLOCK_WORDS))
    _sums[grid](pages, table, words, sums, page_words, FACTOR=signed(MULTIPLIER), BLOCK=BLOCK_WORDS)
    return finish(sums, words)

"""Checks pages where they lie, inside a CUDA graph: what to check and what was found are device buffers.

    watch = PageWatch(rows=..., page_words=..., slots=64)
    watch.expect(0, row=3, words=8192, fingerprint=F)     before a step, in order with the engine's own work
    watch.check(kv)                                       inside the captured graph: no host synchronisation
    found, lost = watch.read()                            later, when somebody asks

A slot is one page's layer that has to have a fingerprint. A finding is a slot that had another one; they
go into a ring, which keeps the latest. Reading says how many were overwritten before.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from racelab.evidence import page_hash, page_hash_triton

_ROW, _WORDS, _EXPECTED = range(3)
_UNUSED = -1


class Mismatch(NamedTuple):
    """A slot's page did not have the fingerprint that it has to have, in that call of `check`."""

    call: int
    slot: int
    row: int
    expected: int
    seen: int


class PageWatch:
    """One for each stream of work. Every tensor is allocated here, at its final address.

    rows: pages times layers of the memory that `check` gets. page_words: 64-bit words of a page's layer.
    findings: how many the ring holds, one call's worth at least.

    Raises:
        ValueError: the ring could not hold what one call finds.
    """

    def __init__(
        self, *, rows: int, page_words: int, slots: int, findings: int = 1024, device: torch.device | str = "cpu"
    ) -> None:
        if findings < slots:
            raise ValueError(f"a ring of {findings} findings is too small for {slots} slots")
        self._rows, self._page_words, self._most = rows, page_words, findings
        on_gpu = torch.device(device).type == "cuda" and page_hash_triton.available() is None
        self._hashes = page_hash_triton.page_hashes if on_gpu else page_hash.page_hashes
        page_hash.multipliers(page_words, device)  # copied to the device before any graph is captured
        self._slots = torch.full((slots, 3), 0, dtype=torch.int64, device=device)
        self._slots[:, _ROW] = _UNUSED
        self._numbers = torch.arange(slots, dtype=torch.int64, device=device)
        self._ring = torch.zeros(findings + 1, len(Mismatch._fields), dtype=torch.int64, device=device)
        """the last row takes what is no finding"""
        self._found = torch.zeros(1, dtype=torch.int64, device=device)
        self._calls = torch.zeros(1, dtype=torch.int64, device=device)
        self._read = 0

    def expect(self, slot: int, *, row: int, words: int, fingerprint: int) -> None:
        """From the next `check` on, the first `words` of `row` have to have this fingerprint (as int64)."""
        if not (0 <= row < self._rows and 0 < words <= self._page_words):
            raise ValueError(f"row {row} with {words} words is not in {self._rows} rows of {self._page_words}")
        values = torch.tensor([row, words, fingerprint], dtype=torch.int64)
        self._slots[slot].copy_(values, non_blocking=True)

    def forget(self, slot: int) -> None:
        """Check this slot no more."""
        self._slots[slot, _ROW] = _UNUSED

    def check(self, memory: torch.Tensor) -> None:
        """Fingerprint every slot's page and note those that differ. memory: int64 [rows, page_words], contiguous."""
        rows, words, expected = self._slots[:, _ROW], self._slots[:, _WORDS], self._slots[:, _EXPECTED]
        seen = self._hashes(memory.index_select(0, rows.clamp(min=0)), words)
        wrong = (rows != _UNUSED) & (seen != expected)
        place = (self._found + wrong.cumsum(0) - 1) % self._most
        place = torch.where(wrong, place, self._most)
        news = torch.stack([self._calls.expand_as(rows), self._numbers, rows, expected, seen], dim=1)
        self._ring.index_copy_(0, place, news)
        self._found += wrong.sum()
        self._calls += 1

    def read(self) -> tuple[list[Mismatch], int]:
        """Findings since the last call, oldest first, and how many more the ring has lost. Waits for the device."""
        found = int(self._found.item())
        first = max(self._read, found - self._most)
        lost = first - self._read
        ring = self._ring.cpu()
        self._read = found
        return [Mismatch(*ring[index % self._most].tolist()) for index in range(first, found)], lost

"""One fingerprint for CPU and GPU: 64 bits, sensitive to position, over whole batches of pages in one call.

Over the 64-bit words w_0..w_n-1 of a page, in arithmetic modulo 2^64 (what int64 does when it wraps):

    x_i = (w_i xor m_i) * M          m_i: odd, and another one at each position
    y_i = x_i xor (x_i >> 32)        the high half reaches the low one; no carry does that
    h   = mix(sum of y_i * m_i, n)

Each word passes a bijection, so a change within one word always shows. Words that are exchanged, and
changes in several words, show by the multipliers: a plain sum of w_i * m_i would not see two flipped
sign bits, since 2^63 * (m_i + m_j) is nothing. The sum may be taken in any order, so a GPU reduces it
as a tree and gets the same bits. Not for adversaries, no more than xxh3 is.

On a CPU xxh3 is faster (benchmarks/fingerprints.py), and stays the default there (docs/evidence.md).
"""

from __future__ import annotations

import torch

WORD_BYTES = 8
MULTIPLIER = 0x9E3779B97F4A7C15
_SEED = 0x243F6A8885A308D3
_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_MASK = (1 << 64) - 1
_LOW_HALF = (1 << 32) - 1

_tables: dict[tuple[int, torch.device], torch.Tensor] = {}


def multipliers(words: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """m_0..m_words-1 as int64 [words], made once a device: splitmix64 of the position, made odd."""
    device = torch.device(device)
    table = _tables.get((words, device))
    if table is None:
        numbers = [signed(_mix(_SEED + index * MULTIPLIER) | 1) for index in range(words)]
        table = _tables[words, device] = torch.tensor(numbers, dtype=torch.int64, device=device)
    return table


def signed(number: int) -> int:
    """The same 64 bits as an int64 has them."""
    number &= _MASK
    return number - (1 << 64) if number >> 63 else number


def _mix(number: int) -> int:
    """splitmix64's last steps (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014)."""
    number &= _MASK
    number = ((number ^ (number >> 30)) * _MIX[0]) & _MASK
    number = ((number ^ (number >> 27)) * _MIX[1]) & _MASK
    return number ^ (number >> 31)


def page_hashes(pages: torch.Tensor, words: torch.Tensor | int | None = None) -> torch.Tensor:
    """The fingerprints of a batch of pages.

    pages: int64 [batch, page_words], contiguous. words: how many of each page count, all or int64 [batch].
    Returns int64 [batch]. Without host synchronisation, so that a CUDA graph can hold it.
    """
    valid = torch.full(pages.shape[:1], pages.shape[1], device=pages.device) if words is None else words
    if isinstance(valid, int):
        pages, valid = pages[:, :valid], torch.full(pages.shape[:1], valid, device=pages.device)
    table = multipliers(pages.shape[1], pages.device)
    if words is None or isinstance(words, int):
        sums = torch.stack([_sum(page, table) for page in pages]) if pages.device.type == "cpu" else _sum(pages, table)
    else:
        counted = torch.arange(pages.shape[1], device=pages.device) < valid[:, None]
        sums = (_terms(pages, table) * counted).sum(-1)
    return finish(sums, valid)


def _terms(pages: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    mixed = pages ^ table
    mixed *= signed(MULTIPLIER)
    shifted = mixed >> 32
    shifted &= _LOW_HALF
    mixed ^= shifted
    mixed *= table
    return mixed


def _sum(pages: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    return _terms(pages, table).sum(-1)


def finish(sums: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """From the sums over the words to the fingerprints: int64 [batch] each."""
    number = sums + words * signed(MULTIPLIER)
    for shift, factor in ((30, _MIX[0]), (27, _MIX[1])):
        number = (number ^ _shifted(number, shift)) * signed(factor)
    return number ^ _shifted(number, 31)


def _shifted(numbers: torch.Tensor, by: int) -> torch.Tensor:
    """To the right, with zeros from the left."""
    return (numbers >> by) & ((1 << (64 - by)) - 1)


def page_hash(data: bytes) -> int:
    """The same of one page, word by word in Python: slow, and what everything else must equal.

    Raises:
        ValueError: it is not made of whole words.
    """
    if len(data) % WORD_BYTES:
        raise ValueError(f"{len(data)} bytes are no whole number of {WORD_BYTES}-byte words")
    words = len(data) // WORD_BYTES
    total = 0
    for index in range(words):
        factor = _mix(_SEED + index * MULTIPLIER) | 1
        word = int.from_bytes(data[index * WORD_BYTES : (index + 1) * WORD_BYTES], "little")
        mixed = ((word ^ factor) * MULTIPLIER) & _MASK
        total += (mixed ^ (mixed >> 32)) * factor
    return _mix(total + words * MULTIPLIER)


def as_words(pages: torch.Tensor) -> torch.Tensor:
    """Pages of any type, [batch, ...] and contiguous, as int64 [batch, page_words]; nothing is copied."""
    return pages.view(pages.shape[0], -1).view(torch.int64)


def digits(number: int) -> str:
    """A fingerprint as histories write it: 16 hex digits."""
    return f"{number & _MASK:016x}"

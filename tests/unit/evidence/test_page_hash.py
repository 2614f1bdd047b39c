"""The fingerprint for CPU and GPU: what it must notice, and that every way to it gives the same bits."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from racelab.evidence import page_hash_triton
from racelab.evidence.page_hash import (
    WORD_BYTES,
    as_words,
    digits,
    multipliers,
    page_hash,
    page_hashes,
    signed,
)

WORDS = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=48)


def data_of(words: list[int]) -> bytes:
    return b"".join(word.to_bytes(WORD_BYTES, "little") for word in words)


def tensor_of(*pages: list[int]) -> torch.Tensor:
    return torch.tensor([[signed(word) for word in page] for page in pages], dtype=torch.int64)


@given(WORDS)
def test_the_batch_equals_plain_python(words: list[int]) -> None:
    assert page_hashes(tensor_of(words)).tolist() == [signed(page_hash(data_of(words)))]


@given(st.lists(st.lists(st.integers(0, 2**64 - 1), min_size=9, max_size=9), min_size=1, max_size=5))
def test_a_page_has_the_same_in_any_company(pages: list[list[int]]) -> None:
    alone = [page_hashes(tensor_of(page)).item() for page in pages]
    assert page_hashes(tensor_of(*pages)).tolist() == alone


@given(WORDS, st.data())
def test_a_prefix_of_a_page_is_as_good_as_a_page(words: list[int], data: st.DataObject) -> None:
    """A page's tail is not looked at where only so many words count."""
    valid = data.draw(st.integers(1, len(words)))
    expected = signed(page_hash(data_of(words[:valid])))
    assert page_hashes(tensor_of(words), torch.tensor([valid])).tolist() == [expected]
    assert page_hashes(tensor_of(words), valid).tolist() == [expected]


@given(WORDS, st.data())
def test_every_single_bit_shows(words: list[int], data: st.DataObject) -> None:
    index, bit = data.draw(st.integers(0, len(words) - 1)), data.draw(st.integers(0, 63))
    other = [*words[:index], words[index] ^ 1 << bit, *words[index + 1 :]]
    assert page_hash(data_of(other)) != page_hash(data_of(words))


@given(WORDS, st.data())
def test_exchanged_words_show(words: list[int], data: st.DataObject) -> None:
    a, b = (data.draw(st.integers(0, len(words) - 1)) for _ in range(2))
    other = list(words)
    other[a], other[b] = other[b], other[a]
    assert (page_hash(data_of(other)) == page_hash(data_of(words))) == (words[a] == words[b])


@given(WORDS)
def test_the_length_shows(words: list[int]) -> None:
    assert len({page_hash(data_of(words + [0] * extra)) for extra in range(4)}) == 4


def test_two_flipped_sign_bits_show_wherever_they_are() -> None:
    """Where a plain multiply-accumulate is blind: 2^63 * (m_i + m_j) is 0 modulo 2^64."""
    words = 64
    page = torch.randint(-(2**62), 2**62, (words,), generator=torch.Generator().manual_seed(1))
    pairs = [(a, b) for a in range(words) for b in range(a)]
    pages = page.repeat(len(pairs), 1)
    for row, (a, b) in enumerate(pairs):
        pages[row, [a, b]] ^= -(2**63)
    assert len(set(page_hashes(pages).tolist()) | {page_hashes(page[None]).item()}) == len(pairs) + 1


def test_multipliers_are_odd_and_no_two_cancel_in_their_low_half() -> None:
    """m_i and m_j that agree up to sign modulo 2^33 would let flipped sign bits at i and j cancel."""
    low = multipliers(8192) & ((1 << 33) - 1)
    folded = torch.minimum(low, (1 << 33) - low)
    assert bool((low & 1).all())
    assert len(set(folded.tolist())) == 8192


def test_no_two_of_many_random_pages_agree() -> None:
    pages = torch.randint(-(2**63), 2**63 - 1, (20_000, 4), generator=torch.Generator().manual_seed(7))
    hashes = page_hashes(pages, torch.full((20_000,), 4))
    assert len(set(hashes.tolist())) == 20_000
    ones = (hashes[:, None] >> torch.arange(64)) & 1
    assert bool(((ones.double().mean(0) - 0.5).abs() < 0.02).all()), "every bit is one about half of the time"


def test_pages_of_floats_are_words_without_a_copy() -> None:
    pages = torch.randn(3, 16, 2, 8)
    words = as_words(pages)
    assert words.data_ptr() == pages.data_ptr()
    assert page_hashes(words)[1].item() == signed(page_hash(pages[1].numpy().tobytes()))


def test_a_part_of_a_word_is_refused() -> None:
    with pytest.raises(ValueError, match="12 bytes"):
        page_hash(b"x" * 12)


def test_digits_are_those_of_a_history() -> None:
    assert digits(-1) == "f" * 16
    assert digits(255) == "00000000000000ff"


_KERNEL = """
import torch
from racelab.evidence import page_hash, page_hash_triton
for words in (1, 7, 1024, 1025, 3000):
    pages = torch.randint(-2**63, 2**63 - 1, (3, words), generator=torch.Generator().manual_seed(words))
    valid = torch.tensor([words, max(words - 1, 0), words // 2])
    assert torch.equal(page_hash.page_hashes(pages), page_hash_triton.page_hashes(pages)), words
    assert torch.equal(page_hash.page_hashes(pages, valid), page_hash_triton.page_hashes(pages, valid)), words
"""


def test_the_kernel_gives_the_same_bits() -> None:
    """Interpreted, in a process of its own: Triton reads TRITON_INTERPRET once."""
    why = page_hash_triton.available()
    if why is not None and "not installed" in why:
        pytest.skip(why)
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", _KERNEL], env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_a_gpu_gives_the_same_bits() -> None:
    pages = torch.randint(-(2**63), 2**63 - 1, (64, 8192), generator=torch.Generator().manual_seed(3))
    expected = page_hashes(pages)
    assert torch.equal(page_hashes(pages.cuda()).cpu(), expected)
    if page_hash_triton.available() is None:
        assert torch.equal(page_hash_triton.page_hashes(pages.cuda()).cpu(), expected)

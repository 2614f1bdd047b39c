"""The paged transformer against a plain one over whole sequences."""

from __future__ import annotations

import pytest
import torch

from racelab.engine.pool import PagePool
from racelab.engine.prompts import prompt
from racelab.engine.transformer import HEAD_DIM, HEADS, TOKEN_BYTES, Transformer

LAYERS = 2
PAGE_TOKENS = 4


@pytest.fixture(scope="module")
def model() -> Transformer:
    return Transformer(LAYERS)


def pool() -> PagePool:
    return PagePool(pages=8, layers=LAYERS, page_tokens=PAGE_TOKENS)


def logits(model: Transformer, tokens: list[int], pages: list[int], chunk: int, memory: PagePool) -> torch.Tensor:
    result = torch.empty(0)
    for start in range(0, len(tokens), chunk):
        result = model.forward(tokens[start : start + chunk], start, memory.kv, pages)
    return result


@pytest.mark.parametrize("chunk", [1, 3, 4, 11])
def test_chunks_and_page_order_do_not_change_the_answer(model: Transformer, chunk: int) -> None:
    tokens = prompt("a", 11, seed=0)
    whole = logits(model, tokens, [0, 1, 2], 11, pool())
    torch.testing.assert_close(logits(model, tokens, [6, 0, 3], chunk, pool()), whole, rtol=1e-4, atol=1e-4)


def test_the_same_call_gives_the_same_bits(model: Transformer) -> None:
    tokens = prompt("a", 11, seed=0)
    first, second = pool(), pool()
    assert torch.equal(logits(model, tokens, [0, 1, 2], 4, first), logits(model, tokens, [0, 1, 2], 4, second))
    assert torch.equal(first.kv, second.kv)


def test_filling_leaves_the_same_pages_as_answering(model: Transformer) -> None:
    tokens = prompt("a", 11, seed=0)
    filled, answered = pool(), pool()
    model.fill(tokens, 0, filled.kv, [0, 1, 2])
    model.forward(tokens, 0, answered.kv, [0, 1, 2])
    assert torch.equal(filled.kv, answered.kv)


def test_only_the_requests_pages_are_touched(model: Transformer) -> None:
    memory = pool()
    memory.refill(7)
    logits(model, prompt("a", 6, seed=0), [2, 5], 6, memory)
    assert memory.foreign([0, 1, 3, 4, 6, 7]) == []
    assert memory.foreign([2, 5]) == [2, 5]


def test_another_requests_page_changes_what_is_answered(model: Transformer) -> None:
    ours, theirs = prompt("a", 9, seed=0), prompt("b", 9, seed=0)
    memory = pool()
    logits(model, ours[:-1], [0, 1, 2], 8, memory)
    logits(model, theirs[:-1], [3, 4, 5], 8, memory)
    right = model.forward(ours[-1:], 8, memory.kv, [0, 1, 2])
    memory.kv[:, 1] = memory.kv[:, 4]
    wrong = model.forward(ours[-1:], 8, memory.kv, [0, 1, 2])
    assert int(right.argmax()) != int(wrong.argmax()) or not torch.allclose(right, wrong)


def test_valid_bytes_are_a_prefix_of_whole_tokens() -> None:
    memory = pool()
    assert TOKEN_BYTES == 2 * HEADS * HEAD_DIM * 4
    assert [memory.valid_bytes(index, tokens=6) // TOKEN_BYTES for index in range(3)] == [4, 2, 0]


def test_a_fingerprint_is_of_the_range_alone() -> None:
    memory = pool()
    before = memory.fingerprint(3, 1, 0, 8)
    memory.kv.view(LAYERS, 8, -1)[1, 3, 2] = 1.0  # byte 8 on
    assert memory.fingerprint(3, 1, 0, 8) == before
    assert memory.fingerprint(3, 1, 0, 12) != pool().fingerprint(3, 1, 0, 12)


def test_prompts_differ_by_salt_and_by_seed() -> None:
    assert prompt("a", 20, seed=0) == prompt("a", 20, seed=0)
    assert prompt("a", 20, seed=0) != prompt("b", 20, seed=0)
    assert prompt("a", 20, seed=0) != prompt("a", 20, seed=1)


def test_prompts_with_one_prefix_start_alike_and_go_on_by_themselves() -> None:
    a = prompt("a", 20, seed=0, prefix="system", prefix_tokens=12)
    b = prompt("b", 30, seed=0, prefix="system", prefix_tokens=12)
    assert a[:12] == b[:12]
    assert a[12:] != b[12:20]
    assert a[12:] == prompt("a", 8, seed=0)
    assert a[:12] != prompt("a", 20, seed=1, prefix="system", prefix_tokens=12)[:12]
    assert a[:12] != prompt("a", 20, seed=0, prefix="other", prefix_tokens=12)[:12]

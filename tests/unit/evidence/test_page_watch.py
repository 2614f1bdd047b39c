"""Checks from a device buffer of slots into a ring of findings."""

from __future__ import annotations

import pytest
import torch

from racelab.evidence.page_hash import page_hashes
from racelab.evidence.page_watch import Mismatch, PageWatch

ROWS, WORDS = 6, 32


@pytest.fixture
def memory() -> torch.Tensor:
    return torch.randint(-(2**63), 2**63 - 1, (ROWS, WORDS), generator=torch.Generator().manual_seed(5))


def watching(memory: torch.Tensor, slots: int = 4, findings: int = 8) -> PageWatch:
    """Slot n wants the first 16 words of row n as they are now; the last slot is unused."""
    watch = PageWatch(rows=ROWS, page_words=WORDS, slots=slots, findings=findings)
    for slot in range(slots - 1):
        watch.expect(slot, row=slot, words=16, fingerprint=int(page_hashes(memory[slot : slot + 1], 16).item()))
    return watch


def test_pages_that_are_as_they_should_be_give_no_finding(memory: torch.Tensor) -> None:
    watch = watching(memory)
    memory[0, 20] += 1  # behind what counts
    memory[5] += 1  # in no slot
    watch.check(memory)
    assert watch.read() == ([], 0)


def test_a_changed_page_is_named_with_its_call_and_both_fingerprints(memory: torch.Tensor) -> None:
    watch = watching(memory)
    expected = int(page_hashes(memory[1:2], 16).item())
    watch.check(memory)
    memory[1, 3] ^= 1
    watch.check(memory)
    found, lost = watch.read()
    assert found == [Mismatch(1, 1, 1, expected, int(page_hashes(memory[1:2], 16).item()))]
    assert lost == 0
    assert watch.read() == ([], 0)


def test_what_is_expected_can_change_between_calls(memory: torch.Tensor) -> None:
    watch = watching(memory)
    memory[2] += 1
    watch.forget(2)
    watch.check(memory)
    watch.expect(2, row=2, words=16, fingerprint=0)
    watch.check(memory)
    watch.expect(2, row=2, words=WORDS, fingerprint=int(page_hashes(memory[2:3]).item()))
    watch.check(memory)
    assert [(each.call, each.row, each.expected) for each in watch.read()[0]] == [(1, 2, 0)]


def test_a_full_ring_keeps_the_latest_and_counts_the_rest(memory: torch.Tensor) -> None:
    watch = watching(memory)
    memory += 1
    for _ in range(5):
        watch.check(memory)
    found, lost = watch.read()
    assert lost == 5 * 3 - 8
    assert [each.call for each in found] == [2, 2, 3, 3, 3, 4, 4, 4]
    watch.check(memory)
    assert [(each.call, each.slot) for each in watch.read()[0]] == [(5, 0), (5, 1), (5, 2)]


def test_nothing_is_allocated_anew_for_the_buffers(memory: torch.Tensor) -> None:
    """A captured graph writes to the addresses of its capture."""
    watch = watching(memory)
    buffers = [value for value in vars(watch).values() if isinstance(value, torch.Tensor)]
    before = [buffer.data_ptr() for buffer in buffers]
    memory[0] += 1
    watch.check(memory)
    watch.expect(0, row=0, words=16, fingerprint=0)
    watch.read()
    now = [value for value in vars(watch).values() if isinstance(value, torch.Tensor)]
    assert [buffer.data_ptr() for buffer in now] == before


def test_a_ring_smaller_than_a_call_is_refused() -> None:
    with pytest.raises(ValueError, match="too small for 4 slots"):
        PageWatch(rows=1, page_words=1, slots=4, findings=3)


@pytest.mark.parametrize("place", [{"row": ROWS, "words": 1}, {"row": 0, "words": WORDS + 1}, {"row": 0, "words": 0}])
def test_a_place_outside_of_the_memory_is_refused(place: dict[str, int]) -> None:
    watch = PageWatch(rows=ROWS, page_words=WORDS, slots=1)
    with pytest.raises(ValueError, match="is not in 6 rows of 32"):
        watch.expect(0, fingerprint=0, **place)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
def test_a_cuda_graph_replays_it(memory: torch.Tensor) -> None:
    memory = memory.cuda()
    watch = PageWatch(rows=ROWS, page_words=WORDS, slots=2, device="cuda")
    watch.expect(0, row=0, words=WORDS, fingerprint=int(page_hashes(memory[:1]).item()))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        watch.check(memory)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        watch.check(memory)
    graph.replay()
    memory[0, 0] += 1
    graph.replay()
    found, lost = watch.read()
    assert len(found) == 1
    assert lost == 0

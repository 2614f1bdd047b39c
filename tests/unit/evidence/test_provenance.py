"""Whose bytes are in a page: two engines fill pages, the test writes over some, and every run is named."""

from __future__ import annotations

import pytest
import torch
from duet import Duet

from racelab.engine.pool import PagePool
from racelab.engine.prompts import prompt
from racelab.engine.transformer import Transformer
from racelab.evidence.fingerprint import CHUNK_BYTES, DIGITS, Dissected, chunk_fingerprints, fingerprint, split
from racelab.evidence.history import History
from racelab.evidence.provenance import Part, Place, Provenance, in_words
from racelab.scenario import Lab, Request

TOKENS = 12
END = TOKENS * CHUNK_BYTES
REQUESTS = {name: Request(prompt_tokens=TOKENS + 1, new_tokens=1) for name in ("r1", "r2")}


class Played:
    """r1 and r2 in turn: each filled one page of two layers, which is still there."""

    def __init__(self) -> None:
        self.duet = Duet(REQUESTS, Lab())
        self.pages = {}
        for name in REQUESTS:
            self.duet.submit(name)
            self.duet.play()
        for event in self.duet.events:
            if event.kind == "posted":
                self.pages[event.request] = event.page
        self.duet.wire.held = True

    def parts(self, page: int, layer: int = 0, start: int = 0, end: int = END) -> list[Part]:
        look = self.duet.look(page, layer, start, end)
        place = Place(look, page, layer, start, end, look.data["fingerprint"])
        return self.history().derived(Provenance).parts(place)

    def history(self) -> History:
        return self.duet.history()


def written_by(request: str) -> torch.Tensor:
    """What a request's prompt fills the first layer of a page with, computed anew."""
    pool = PagePool(1, 2, 16)
    Transformer(2).fill(prompt(request, TOKENS + 1, 0)[:-1], 0, pool.kv, [0])
    return pool.kv[0].view(torch.uint8).flatten()


@pytest.fixture
def played() -> Played:
    """Both requests used the same page: r2's bytes are there, and r1's were."""
    return Played()


def test_a_chunk_string_has_sixteen_digits_a_chunk() -> None:
    data = bytes(range(256)) * 40
    chunks = split(chunk_fingerprints(data))
    assert chunks == [fingerprint(data[at : at + CHUNK_BYTES]) for at in range(0, len(data), CHUNK_BYTES)]
    assert {len(chunk) for chunk in chunks} == {DIGITS}


def test_bytes_that_change_while_they_are_taken_apart_are_no_evidence() -> None:
    class Memory:
        def tobytes(self) -> bytes:
            return b"later"

    seen = Dissected()
    seen.note(fingerprint(b"earlier"), Memory())
    assert seen.of(fingerprint(b"earlier")) is None
    seen.note(fingerprint(b"later"), Memory())
    assert seen.of(fingerprint(b"later")) == chunk_fingerprints(b"later")


def test_what_is_remembered_is_bounded() -> None:
    class Memory:
        def __init__(self, data: bytes) -> None:
            self.tobytes = lambda: data

    seen = Dissected(most=2)
    for data in (b"1", b"2", b"3"):
        seen.note(fingerprint(data), Memory(data))
    assert [seen.of(fingerprint(data)) is not None for data in (b"1", b"2", b"3")] == [True, True, False]


def test_a_whole_page_is_its_writers(played: Played) -> None:
    (part,) = played.parts(played.pages["r2"])
    assert part.writer == "r2 attempt 1 gen 2"
    assert (part.bytes, part.layer, part.chunk, part.offset) == ((0, END), 0, 0, 0)


def test_a_torn_page_names_both_ranges_and_both_writers(played: Played) -> None:
    """Half of the bytes are those that r1 once wrote to the same page."""
    page, tear = played.pages["r2"], 6 * CHUNK_BYTES
    played.duet.memory(page, 0)[:tear] = written_by("r1")[:tear]
    parts = played.parts(page)
    assert [(part.bytes, part.request, part.source) for part in parts] == [
        ((0, tear), "r1", "write"),
        ((tear, END), "r2", "write"),
    ]
    assert in_words(parts).startswith("bytes 0-24575 are r1 attempt 1 gen 1's")
    assert "bytes 24576-49151 are r2 attempt 1 gen 2's" in in_words(parts)


def test_one_wrong_byte_makes_one_chunk_that_nobody_posted(played: Played) -> None:
    page = played.pages["r2"]
    played.duet.memory(page, 1)[5 * CHUNK_BYTES + 17] ^= 1
    parts = played.parts(page, layer=1)
    assert [(part.bytes, part.source) for part in parts] == [
        ((0, 5 * CHUNK_BYTES), "write"),
        ((5 * CHUNK_BYTES, 6 * CHUNK_BYTES), "unknown"),
        ((6 * CHUNK_BYTES, END), "write"),
    ]
    assert "bytes 20480-24575 are never seen" in in_words(parts)


def test_bytes_that_moved_say_where_they_come_from(played: Played) -> None:
    page = played.pages["r2"]
    memory = played.duet.memory(page, 0)
    memory[: 2 * CHUNK_BYTES] = memory[3 * CHUNK_BYTES : 5 * CHUNK_BYTES].clone()
    first = played.parts(page)[0]
    assert (first.bytes, first.offset) == ((0, 2 * CHUNK_BYTES), 3 * CHUNK_BYTES)
    assert "from its byte 12288 on" in first.in_words()


def test_an_untouched_page_holds_the_pattern(played: Played) -> None:
    untouched = next(page for page in range(6) if page not in played.duet.decode.ledger.ever_taken)
    (part,) = played.parts(untouched, end=16 * CHUNK_BYTES)
    assert part.source == "pattern"
    assert part.writer is None


def test_what_was_posted_later_explains_nothing() -> None:
    """The reader saw these bytes before anybody posted them: by chance, or not at all."""
    duet = Duet(REQUESTS, Lab())
    duet.submit("r1")
    duet.play()
    page = next(event.page for event in duet.events if event.kind == "posted")
    assert page is not None
    duet.memory(page, 0)[:END] = written_by("r2")[:END]
    look = duet.look(page, 0, 0, END)
    duet.submit("r2")
    duet.play()
    place = Place(look, page, 0, 0, END, look.data["fingerprint"])
    parts = duet.history().derived(Provenance).parts(place)
    assert [part.source for part in parts] == ["unknown"]


def test_without_chunks_nothing_is_told(played: Played) -> None:
    look = played.duet.look(played.pages["r2"], 0, 0, END)
    place = Place(look, played.pages["r2"], 0, 0, END, "0" * 16)
    assert played.history().derived(Provenance).parts(place) == []

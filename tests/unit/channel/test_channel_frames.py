"""Frames survive any way of cutting the stream; nonsense is refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from racelab.channel.frames import Command, Events, Hello, Reply, Splitter, encode
from racelab.evidence.events import Event

FRAMES = [
    Hello("decode", 7, "token", {"segment": "127.0.0.1:1"}),
    Command(3, "look", {"page": 1}, 12, 99),
    Reply(3, {"x": [1, 2]}, None),
    Events([Event(kind="pool", instance="decode", seq=1, mono_ns=5, hlc=6, after={"conductor": 2})]),
]


@given(st.lists(st.integers(1, 40), min_size=1))
def test_any_cut_gives_the_same_frames(cuts: list[int]) -> None:
    stream = b"".join(encode(frame) for frame in FRAMES)
    splitter, seen, at = Splitter(), [], 0
    while at < len(stream):
        size = cuts[at % len(cuts)]
        seen += splitter.feed(stream[at : at + size])
        at += size
    assert seen == FRAMES


@pytest.mark.parametrize("data", [struct.pack("<I", 1 << 31), struct.pack("<I", 3) + b"abc"])
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="frame"):
        list(Splitter().feed(data))

"""What decode looks at when it reads: everything at first and at last, one piece of a page in turn in between."""

from __future__ import annotations

import pytest
from duet import Duet

from racelab.engine.answering import TOKENS_READ_IN_FULL
from racelab.engine.pool import PIECE_BYTES
from racelab.evidence.events import Event
from racelab.scenario import Lab, Request

TOKENS = 16
LAYERS = 2
PIECES = 3 * LAYERS
"""24 tokens of 4 KiB a layer, 32 KiB each"""

SPOTS = [(0, 100), (0, PIECE_BYTES), (1, 0)]
"""a page, and a byte of it: one in each piece"""


@pytest.fixture
def duet() -> Duet:
    """One request over two pages; each piece of them is looked at once in six tokens."""
    duet = Duet({"r1": Request(prompt_tokens=25, new_tokens=TOKENS)}, Lab(layers=LAYERS))
    duet.submit("r1")
    return duet


def reads(duet: Duet) -> list[Event]:
    return [event for event in duet.events if event.kind == "read"]


def test_an_undisturbed_request_shows_its_pages_at_its_first_and_last_token(duet: Duet) -> None:
    duet.play()
    assert [event.data["token"] for event in reads(duet)] == [0, TOKENS - 1]
    assert {len(event.data["fingerprints"]) for event in reads(duet)} == {2 * LAYERS}


@pytest.mark.parametrize("place", [(page, layer, at) for layer in range(LAYERS) for page, at in SPOTS])
def test_a_change_shows_by_the_time_that_every_piece_had_its_turn(duet: Duet, place: tuple[int, int, int]) -> None:
    seen: dict[str, int] = {}
    step = duet.decode._step

    def disturb() -> None:
        """The step at which a byte changes is the first that nobody looks at in full."""
        request = duet.decode._requests["r1"]
        if len(request.tokens) == TOKENS_READ_IN_FULL and not seen:
            page, layer, at = place
            duet.memory(request.tickets[page].page, layer)[at] ^= 1
            seen["token"] = len(request.tokens)
        step()

    duet.decode._step = disturb  # type: ignore[method-assign]
    duet.play()
    noticed = [event for event in reads(duet) if 0 < event.data["token"] < TOKENS - 1]
    assert len(noticed) == 1
    assert noticed[0].data["token"] < seen["token"] + PIECES
    assert len(noticed[0].data["fingerprints"]) == 2 * LAYERS

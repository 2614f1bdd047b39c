"""What decode looks at when it reads: everything at first and at last, one page's layer in turn in between."""

from __future__ import annotations

import pytest
from duet import Duet

from racelab.engine.answering import TOKENS_READ_IN_FULL
from racelab.evidence.events import Event
from racelab.scenario import Lab, Request

TOKENS = 16
LAYERS = 2


@pytest.fixture
def duet() -> Duet:
    """One request over two pages; each of them is looked at once in four tokens."""
    duet = Duet({"r1": Request(prompt_tokens=25, new_tokens=TOKENS)}, Lab(layers=LAYERS))
    duet.submit("r1")
    return duet


def reads(duet: Duet) -> list[Event]:
    return [event for event in duet.events if event.kind == "read"]


def test_an_undisturbed_request_shows_its_pages_at_its_first_and_last_token(duet: Duet) -> None:
    duet.play()
    assert [event.data["token"] for event in reads(duet)] == [0, TOKENS - 1]
    assert {len(event.data["fingerprints"]) for event in reads(duet)} == {2 * LAYERS}


@pytest.mark.parametrize("place", [(page, layer) for page in range(2) for layer in range(LAYERS)])
def test_a_change_shows_by_the_time_that_every_page_had_its_turn(duet: Duet, place: tuple[int, int]) -> None:
    seen: dict[str, int] = {}
    step = duet.decode._step

    def disturb() -> None:
        """The step at which a byte changes is the first that nobody looks at in full."""
        request = duet.decode._requests["r1"]
        if len(request.tokens) == TOKENS_READ_IN_FULL and not seen:
            page, layer = place
            duet.memory(request.tickets[page].page, layer)[100] ^= 1
            seen["token"] = len(request.tokens)
        step()

    duet.decode._step = disturb  # type: ignore[method-assign]
    duet.play()
    noticed = [event for event in reads(duet) if 0 < event.data["token"] < TOKENS - 1]
    assert len(noticed) == 1
    assert noticed[0].data["token"] < seen["token"] + 2 * LAYERS
    assert len(noticed[0].data["fingerprints"]) == 2 * LAYERS

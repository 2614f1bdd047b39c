"""The executable specification, step by step: what each action leads to, and what each guard changes."""

from __future__ import annotations

from typing import Any

import pytest

from racelab.model.spec.actions import Action, Step, enabled, take
from racelab.model.spec.invariants import INVARIANTS, terminal
from racelab.model.spec.state import (
    CONTROL_CARRIES_GENERATION,
    DRAIN_BEFORE_FREE,
    FAULTS,
    GUARDS,
    PUBLISH_AFTER_COMMIT,
    QUARANTINE_ON_EXPIRY,
    Config,
    Shape,
    State,
    initial,
)


def config(*, without: str | None = None, **changes: Any) -> Config:
    known = {
        "decode_pages": 2,
        "prefill_pages": 2,
        "shapes": {"r1": Shape(1, 1), "r2": Shape(1, 1)},
        "guards": frozenset(GUARDS) - {without},
        "faults": frozenset(FAULTS),
        "attempts_max": 2,
    }
    return Config(**{**known, **changes})


class Story:
    """Takes one action after another; a word such as `Land` takes the only enabled one of that name."""

    def __init__(self, setting: Config) -> None:
        self.config = setting
        self.state: State = initial(setting)
        self.told: list[str] = []

    def take(self, *words: str) -> Story:
        for word in words:
            step = self.step(word)
            self.state = step.state
            self.told = [effect.kind for effect in step.effects]
        return self

    def step(self, word: str) -> Step:
        """The enabled step whose words start like this, such as `Submit(r1` or `Receive(written`."""
        fitting = [step for step in enabled(self.config, self.state) if str(step.action).startswith(word)]
        assert fitting, (word, self.possible())
        return fitting[0]

    def possible(self) -> list[str]:
        return [str(step.action) for step in enabled(self.config, self.state)]

    def violated(self) -> list[str]:
        return [spec for spec, holds in INVARIANTS.items() if not holds(self.config, self.state)]


UP_TO_POST = ("Submit(r1", "Admit(r1", "Receive(reserve", "Accept(r1", "Post(r1")
UP_TO_READ = (*UP_TO_POST, "Land", "Complete(r1, 1, 1 write(s), True", "Receive(written")


def test_a_request_is_served_and_every_page_comes_home() -> None:
    story = Story(config()).take(*UP_TO_READ)
    assert story.told == ["received", "grant-closed", "committed", "sent"]
    story.take("Finish")
    assert story.told == ["finished", "page-free"]
    story.take("Receive(complete")
    assert story.told == ["received", "attempt-ended", "page-free"]
    assert [page.state for side in story.state[:2] for page in side.pages] == ["FREE"] * 4
    assert (story.state.decode.grants, story.state.prefill.grants) == (frozenset(), frozenset())
    assert story.violated() == []
    assert terminal(story.state)


def test_a_page_with_a_write_in_the_network_drains_and_is_quarantined_when_the_drain_runs_out() -> None:
    story = Story(config()).take(*UP_TO_POST, "TimeOut(r1")
    assert story.told == ["timed-out", "refused", "sent", "refused", "page-draining"]
    story.take("Expire(decode")
    assert story.told == ["refused", "page-quarantined"]
    story.take("Land")
    assert story.state.decode.pages[0].state == "QUARANTINED"
    assert story.violated() == []


def test_evidence_that_comes_after_the_quarantine_frees_nothing() -> None:
    story = Story(config()).take(*UP_TO_POST, "TimeOut(r1", "Expire(decode", "Land", "Complete", "Receive(written")
    assert "grant-closed" in story.told
    assert story.state.decode.pages[0].state == "QUARANTINED"
    assert 0 not in story.state.decode.free


def test_a_clean_acknowledgement_frees_a_draining_page() -> None:
    story = Story(config()).take(*UP_TO_POST, "TimeOut(r1", "Land", "Complete", "Receive(abort of", "Receive(abort-ack")
    assert story.told == ["received", "grant-closed", "page-free"]


def test_a_failed_completion_is_no_evidence() -> None:
    story = Story(config()).take(*UP_TO_POST, "TimeOut(r1", "Complete(r1, 1, 1 write(s), False", "Receive(written")
    assert story.told == ["received", "refused"]
    assert story.state.decode.pages[0].state == "DRAINING"
    story.take("Receive(abort of", "Receive(abort-ack")
    assert story.told == ["received"]
    assert "Land(r1/1 page 0 layer 0)" in story.possible()
    assert "Vanish(r1/1 page 0 layer 0)" in story.possible()


@pytest.mark.parametrize(
    ("guard", "steps", "violated"),
    [
        (DRAIN_BEFORE_FREE, (*UP_TO_POST, "TimeOut(r1"), ["conservation"]),
        (DRAIN_BEFORE_FREE, (*UP_TO_POST, "TimeOut(r1", "Land"), ["isolation"]),
        (QUARANTINE_ON_EXPIRY, (*UP_TO_POST, "TimeOut(r1", "Expire(decode"), ["conservation"]),
        (QUARANTINE_ON_EXPIRY, (*UP_TO_POST, "TimeOut(r1", "Expire(decode", "Land"), ["isolation"]),
        (
            CONTROL_CARRIES_GENERATION,
            (*UP_TO_POST, "TimeOut(r1", "Land", "Complete(r1, 1, 1 write(s), True", "Receive(written"),
            ["isolation", "integrity"],
        ),
    ],
)
def test_without_its_guard_the_same_steps_violate(guard: str, steps: tuple[str, ...], violated: list[str]) -> None:
    assert Story(config()).take(*steps).violated() == []
    assert Story(config(without=guard)).take(*steps).violated() == violated


SHARING = {"r1": Shape(1, 1, ("k",)), "r2": Shape(1, 1, ("k",))}


def test_a_published_page_is_found_read_and_evicted() -> None:
    story = Story(config(shapes=SHARING, decode_pages=1)).take(*UP_TO_READ)
    assert story.told == ["received", "grant-closed", "committed", "published", "page-shared", "sent"]
    story.take("Submit(r2", "Join(r2")
    assert story.told == ["cache-hit"]
    story.take("Admit(r2")
    assert story.told == ["admitted", "committed"]  # all of it was there: prefill is not asked
    story.take("Finish(r1")
    assert story.told == ["finished", "reference-dropped"]
    assert not any(action.startswith("Evict") for action in story.possible())
    story.take("Finish(r2")
    assert story.state.decode.pages[0].state == "SHARED"
    assert story.violated() == []


def test_an_unread_page_makes_room_for_other_content() -> None:
    shapes = {"r1": Shape(1, 1, ("k",)), "r2": Shape(1, 1, ("m",))}
    story = Story(config(shapes=shapes, decode_pages=1)).take(*UP_TO_READ, "Finish(r1", "Submit(r2")
    assert "Admit(r2, 1)" not in story.possible()
    story.take("Evict(0")
    assert story.told == ["page-free"]
    assert story.state.cache == frozenset()
    story.take("Admit(r2")
    assert story.state.decode.pages[0].gen == 2


def test_the_same_content_under_two_pages_is_dup_and_goes_with_its_reader() -> None:
    story = Story(config(shapes=SHARING)).take("Submit(r1", "Submit(r2", "Admit(r1", "Admit(r2")
    for request in ("r1", "r2"):
        story.take(f"Receive(reserve of {request}", f"Accept({request}", f"Post({request}", f"Land({request}")
        story.take(f"Complete({request}, 1, 1 write(s), True", f"Receive(written of {request}")
    assert story.told == ["received", "grant-closed", "committed", "page-dup", "sent"]
    assert [page.state for page in story.state.decode.pages] == ["SHARED", "DUP"]
    story.take("Finish(r2")
    assert story.told == ["finished", "reference-dropped", "page-free"]
    assert story.violated() == []


def test_published_before_it_is_committed_a_page_is_found_empty() -> None:
    story = Story(config(shapes=SHARING, without=PUBLISH_AFTER_COMMIT)).take("Submit(r1", "Admit(r1")
    assert story.told[-3:] == ["published", "page-shared", "sent"]
    assert story.violated() == ["integrity"]
    guarded = Story(config(shapes=SHARING)).take("Submit(r1", "Admit(r1")
    assert guarded.told[-2:] == ["refused", "sent"]
    assert guarded.violated() == []


def test_a_second_copy_of_reserve_starts_nothing() -> None:
    story = Story(config()).take("Submit(r1", "Admit(r1", "ReceiveCopy(reserve", "Receive(reserve")
    assert story.told == ["received", "ignored"]
    assert story.state.waiting == (("r1", 1),)


def test_an_action_that_is_not_enabled_is_no_step() -> None:
    setting = config()
    start = initial(setting)
    assert take(setting, start, Action("Admit", ("r1", 1))) is None
    assert take(setting, start, Action("Expire", ("decode", 0))) is None
    assert [str(step.action) for step in enabled(setting, start)] == ["Submit(r1)", "Submit(r2)", "Restart()"]

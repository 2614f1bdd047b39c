"""Shipped files are found, and a missing one is named."""

from __future__ import annotations

import pytest

from racelab.errors import MissingPartError
from racelab.shipped import shipped


def test_a_shipped_file_is_found() -> None:
    assert shipped("scenarios", "models", "PageLifecycle.tla").read_text(encoding="utf-8").startswith("-----")


def test_a_missing_one_is_named_with_what_to_do() -> None:
    with pytest.raises(MissingPartError, match="scenarios/no-such") as caught:
        shipped("scenarios", "no-such")
    assert caught.value.next

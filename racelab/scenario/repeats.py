"""Repetition in a scenario file: many requests from one line, many steps from a few.

    requests:
      chat-<n>: {count: 3, prompt-tokens: 40}     chat-1, chat-2 and chat-3, each with a prompt of its own
    steps:
      - repeat:
          times: 3
          steps:
            - submit: chat-<n>

`<n>` stands for the number of the turn, from 1 on. A scenario is resolved when it is read: what runs,
is kept and is judged are the single requests and steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from racelab.documents import Document, Place

TURN = "<n>"
REPEAT = "repeat"
TURNS_MAX = 10_000

_ASKED = "a repeat has 'times', a number, and 'steps', a list of steps"


def requests(document: Document, data: dict[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Each request as its name, its sizes as they stand there, and the key that it came from."""
    for key, value in data.items():
        if not isinstance(value, dict) or "count" not in value:
            yield key, value, key
            continue
        sizes = {name: item for name, item in value.items() if name != "count"}
        count = _turns(document, value["count"], "requests", key, "count")
        if count and TURN not in key:
            document.problem(f"a request with a count has {TURN} in its name: '{key}-{TURN}'", "requests", key)
        else:
            yield from ((_filled(key, turn), _filled(sizes, turn), key) for turn in range(1, count + 1))


def steps(document: Document, data: list[Any]) -> Iterator[tuple[Any, Place]]:
    """Each step as it stands there, and its place in the file; repeated ones once a turn."""
    for index, item in enumerate(data):
        if not isinstance(item, dict) or list(item) != [REPEAT]:
            yield item, ("steps", index)
            continue
        place: Place = ("steps", index, REPEAT)
        asked = item[REPEAT]
        if not isinstance(asked, dict) or set(asked) != {"times", "steps"} or not isinstance(asked["steps"], list):
            document.problem(_ASKED, *place)
            continue
        for turn in range(1, _turns(document, asked["times"], *place, "times") + 1):
            for number, step in enumerate(asked["steps"]):
                yield _filled(step, turn), (*place, "steps", number)


def _turns(document: Document, value: Any, *place: str | int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= TURNS_MAX:
        return value
    document.problem(f"{place[-1]} must be a number from 1 to {TURNS_MAX:,}, got {value!r}", *place)
    return 0


def _filled(value: Any, turn: int) -> Any:
    """The same with the turn's number in place of `<n>`."""
    if isinstance(value, str):
        return value.replace(TURN, str(turn))
    if isinstance(value, dict):
        return {key: _filled(item, turn) for key, item in value.items()}
    return value

"""Histories without processes: a scenario played on paper.

`play(SCENARIO, guards)` records what the conductor, prefill, decode and both gates would report
for a schedule, with the causal edges that their messages make. It knows no checker and shares no
code with the engine. `changed`, `without`, `with_extra` and `moved` make wrong histories out of right ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from paper_engines import TOKEN_BYTES
from paper_lab import Paper

from racelab import scenario as scenarios
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.scenario import Scenario
from racelab.scenario.steps import Submit

__all__ = ["TOKEN_BYTES", "History", "changed", "kind", "moved", "play", "serving", "with_extra", "without"]

LEDGER = ("drain-before-free", "quarantine-on-expiry", "control-carries-generation")

CLEAN = """
scenario: clean-serving
about: nothing goes wrong
requests:
  r1: {prompt-tokens: 25}
  r2: {prompt-tokens: 40}
steps:
  - submit: r1
  - await: {event: finished, request: r1}
  - submit: r2
  - await: {event: finished, request: r2}
"""

LATE_WRITE = """
scenario: late-write
about: r1's writes land after its pages have gone to r2
spec: isolation
guard: drain-before-free
victim: r2
requests:
  r1: {prompt-tokens: 25}
  r2: {prompt-tokens: 25}
steps:
  - hold: {id: w1, write: {request: r1}, count: 4}
  - submit: r1
  - await: {event: held, hold: w1}
  - advance: 10000
  - await: {event: timed-out, request: r1}
  - await: {event: page-free, request: r1, count: 2}
  - hold: {id: n2, message: {type: written, request: r2}, count: 2}
  - submit: r2
  - await: {event: held, hold: n2}
  - release: w1
  - release: n2
  - await: {event: finished, request: r2}
"""

LATE_INTO_QUARANTINE = """
scenario: late-into-quarantine
about: r1's writes land after the drain of its pages has expired
requests:
  r1: {prompt-tokens: 25}
  r2: {prompt-tokens: 25}
steps:
  - hold: {id: w1, write: {request: r1}, count: 4}
  - submit: r1
  - await: {event: held, hold: w1}
  - advance: 10000
  - advance: 10000
  - submit: r2
  - await: {event: finished, request: r2}
  - release: w1
"""

STALE_MESSAGE = """
scenario: stale-message
about: what prefill says of r1's first attempt arrives while its second is served
requests:
  r1: {prompt-tokens: 25}
steps:
  - hold: {id: m1, message: {type: written, request: r1, attempt: 1}, count: 2}
  - submit: r1
  - await: {event: held, hold: m1}
  - advance: 10000
  - hold: {id: m2, message: {type: written, request: r1, attempt: 2}, count: 2}
  - submit: r1
  - await: {event: held, hold: m2}
  - release: m1
  - release: m2
  - await: {event: finished, request: r1}
"""

ABORTED = """
scenario: aborted
about: the client gives up while the last of prefill's words is on its way
requests:
  r1: {prompt-tokens: 25}
steps:
  - hold: {id: m1, message: {type: written, request: r1}, count: 1}
  - submit: r1
  - await: {event: held, hold: m1}
  - abort: r1
  - release: m1
  - await: {event: aborted, request: r1}
"""

LATE_BUT_RIGHTFUL = """
scenario: slow-network
about: writes are slow, and nobody gives up on them
requests:
  r1: {prompt-tokens: 25}
steps:
  - hold: {id: w1, write: {request: r1}, count: 2}
  - submit: r1
  - await: {event: held, hold: w1}
  - advance: 2000
  - release: w1
  - await: {event: finished, request: r1}
"""

LOST_WRITE = """
scenario: lost-write
about: a connection is reset, and the request fails
requests:
  r1: {prompt-tokens: 25}
steps:
  - hold: {id: w1, write: {request: r1}, count: 1}
  - submit: r1
  - await: {event: held, hold: w1}
  - drop: w1
  - await: {event: failed, request: r1}
"""


def play(scenario: str | Scenario, guards: Iterable[str] = (), policy: str | None = None) -> History:
    """The history of a scenario (YAML, or built already) under these guards."""
    guards = tuple(guards)
    built = scenarios.loads(scenario) if isinstance(scenario, str) else scenario
    return Paper(built, guards, policy or ("ledger" if guards else "eager")).history()


def serving(requests: int) -> Scenario:
    """That many requests one after another, about 40 events each: a scenario of any length."""
    names = [f"q{number}" for number in range(requests)]
    return Scenario(
        scenario="serving",
        about="one request after another",
        requests={name: scenarios.Request(prompt_tokens=17 + index % 24) for index, name in enumerate(names)},
        steps=[Submit(request=name) for name in names],
    )


def kind(name: str, instance: str | None = None, **fields: Any) -> Callable[[Event], bool]:
    """A predicate: events of a kind whose fields or data agree."""

    def agrees(event: Event) -> bool:
        if event.kind != name or (instance is not None and event.instance != instance):
            return False
        return all(getattr(event, key, event.data.get(key)) == value for key, value in fields.items())

    return agrees


# -- making wrong histories out of right ones


def changed(history: History, where: Callable[[Event], bool], **fields: Any) -> History:
    """A copy in which the first event that fits has other fields; `data` is merged."""
    events = [msgspec.structs.replace(event) for event in history.events]
    index = next(number for number, event in enumerate(events) if where(event))
    if "data" in fields:
        fields["data"] = events[index].data | fields["data"]
    events[index] = msgspec.structs.replace(events[index], **fields)
    return History(history.header, events)


def without(history: History, where: Callable[[Event], bool]) -> History:
    """A copy as if these events had never been recorded: the numbers close up, so nothing looks lost."""
    kept = [event for event in history.events if not where(event)]
    return History(history.header, renumbered(kept))


def with_extra(history: History, after: Callable[[Event], bool], **fields: Any) -> History:
    """A copy with one more event behind the last one that fits, made from it by changing fields."""
    events = list(history.events)
    index = max(number for number, event in enumerate(events) if after(event))
    extra = msgspec.structs.replace(events[index], after={}, hlc=events[index].hlc + 1, **fields)
    return History(history.header, renumbered([*events[: index + 1], extra, *events[index + 1 :]]))


def moved(history: History, what: Callable[[Event], bool], behind: Callable[[Event], bool]) -> History:
    """A copy in which the first event that fits `what` comes right behind the last that fits `behind`."""
    events = list(history.events)
    event = events.pop(next(number for number, one in enumerate(events) if what(one)))
    index = max(number for number, one in enumerate(events) if behind(one))
    events.insert(index + 1, event)
    return History(history.header, renumbered(events))


def numbered(history: History) -> History:
    """The same history, its events numbered anew."""
    return History(history.header, renumbered(history.events))


def renumbered(events: list[Event]) -> list[Event]:
    """The same events in this order, numbered anew, with their causal edges carried over."""
    new: dict[tuple[str, int], int] = {}
    counts: dict[str, int] = {}
    result = []
    for position, event in enumerate(events):
        counts[event.instance] = counts.get(event.instance, 0) + 1
        new.setdefault((event.instance, event.seq), counts[event.instance])
        after = {name: _latest(new, name, seq) for name, seq in event.after.items()}
        result.append(
            msgspec.structs.replace(
                event, seq=counts[event.instance], hlc=(1_000_000 + position * 100) << 12, after=after
            )
        )
    return result


def _latest(new: dict[tuple[str, int], int], name: str, seq: int) -> int:
    known = [(old, fresh) for (instance, old), fresh in new.items() if instance == name and old <= seq]
    return max(known)[1] if known else 0

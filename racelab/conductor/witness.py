"""What the conductor has seen so far in a run: every event, by kind, and what follows from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from racelab.conductor.flight import Flight
from racelab.evidence.events import TERMINAL_KINDS, Event
from racelab.scenario.steps import Await


class Witness:
    """Takes events as they arrive; `observe` is told of each, for whoever watches the run live."""

    def __init__(self, observe: Callable[[Event], None], *, one_sided: bool = False) -> None:
        self.events: list[Event] = []
        self.flight = Flight(one_sided=one_sided)
        self._by_kind: dict[str, list[Event]] = defaultdict(list)
        self._observe = observe

    def see(self, event: Event) -> None:
        """Take note of an event."""
        self.events.append(event)
        self._by_kind[event.kind].append(event)
        self.flight.see(event)
        self._observe(event)

    def of(self, kind: str) -> list[Event]:
        """Events of a kind, in the order in which they arrived."""
        return self._by_kind[kind]

    def matching(self, step: Await, since: int = 0) -> list[Event]:
        """Events that an await asks for, among those after the first `since` of their kind."""
        return [event for event in self.of(step.event)[since:] if _agrees(event, step)]

    def refusal(self, kind: str, request: str | None, since: int = 0, guard: str | None = None) -> Event | None:
        """A guard's refusal (of this guard, if one is given), after the first `since`, of what would have been
        an event `kind`.

        A refused message names its own attempt, not that which it would have changed, so the
        attempt is not compared.
        """
        for event in self.of("refused")[since:]:
            right = guard in (None, event.data["guard"])
            if right and event.data["refuses"] == kind and request in (None, event.request):
                return event
        return None

    def held(self, hold: str) -> list[Event]:
        """What stopped under a hold, in order: the thing itself, or the news that it has landed."""
        return [
            event for kind in ("held", "withheld", "work-held") for event in self.of(kind) if event.data["hold"] == hold
        ]

    def gone(self, hold: str, kinds: Iterable[str]) -> set[str]:
        """Of the things held, those with an event of one of `kinds`."""
        return {event.data["what"] for kind in kinds for event in self.of(kind) if event.data["hold"] == hold}

    def receiver(self, access: str) -> str:
        """Whose memory a write or a read changes."""
        posted = next(event for event in self.of("posted") if event.data["write"] == access)
        return str(posted.data.get("to", posted.instance))

    def pages(self, request: str) -> list[set[tuple[str, int]]]:
        """The pages of each attempt of a request, and whose: a decode's."""
        return self._taken("admitted", request)

    def sources(self, request: str) -> list[set[tuple[str, int]]]:
        """The same of a prefill's pages."""
        return self._taken("accepted", request)

    def _taken(self, kind: str, request: str) -> list[set[tuple[str, int]]]:
        pages: dict[int | None, set[tuple[str, int]]] = {}
        for event in self.of(kind):
            if event.request == request:
                pages[event.attempt] = {(event.instance, page) for page, _ in event.data["tickets"]}
        for event in self.of("grown") if kind == "admitted" else ():
            if event.request == request:
                pages[event.attempt].add((event.instance, event.page or 0))
        return list(pages.values())

    def unposted(self) -> dict[str, list[str]]:
        """By instance, the fingerprints of its pages that are not those of any posted write."""
        posted = {event.data["fingerprint"] for event in self.of("posted")}
        seen: dict[str, dict[str, None]] = defaultdict(dict)
        for kind in ("committed", "published", "read"):
            for event in self.of(kind):
                news = (row[5] for row in event.data["fingerprints"] if row[5] not in posted)
                seen[event.instance].update(dict.fromkeys(news))
        for event in self.of("look"):
            if event.data["fingerprint"] not in posted:
                seen[event.instance][event.data["fingerprint"]] = None
        return {instance: list(found) for instance, found in seen.items() if found}

    def attempts(self, request: str) -> int:
        """How often a request was submitted."""
        return sum(event.request == request for event in self.of("submitted"))

    def retractions(self, request: str) -> int:
        """How often its pages were taken back."""
        return sum(event.request == request for kind in ("retracted", "requeued") for event in self.of(kind))

    def ended(self, request: str) -> bool:
        """Whether every attempt of the request is terminal, or gone with the process that served it."""
        deaths = {event.data["peer"]: event for event in self.of("killed")}
        served = [event for event in self.of("submitted") if event.request == request]
        open_attempts = {
            event.attempt for event in served if event.instance not in deaths or event.hlc > deaths[event.instance].hlc
        }
        ends = {event.attempt for kind in TERMINAL_KINDS for event in self.of(kind) if event.request == request}
        return open_attempts <= ends

    def known(self, instance: str) -> int:
        """The number of the latest event of an instance that anybody has heard of."""
        heard = (event.after.get(instance, 0) for event in self.events)
        return max(max(heard, default=0), max((e.seq for e in self.events if e.instance == instance), default=0))


def _agrees(event: Event, step: Await) -> bool:
    if step.request is not None and event.request != step.request:
        return False
    if step.attempt is not None and event.attempt != step.attempt:
        return False
    if step.instance is not None and event.instance != step.instance:
        return False
    return step.hold is None or event.data.get("hold") == step.hold

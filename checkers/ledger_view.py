"""The page ledger as a history tells it: every generation of every page, its owner and its grants.

Built from `pool`, `page-*`, `granted` and `grant-closed` alone, with no code of the engine's, so
that an engine that keeps its books wrongly does not also check them. What contradicts the rules
of the state machine is kept in `faults`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.naming import attempt_name

STOP_EVIDENCE = ("completions", "acknowledged")
"""The values of `grant-closed`'s `evidence` that prove that no access can still take effect:
successful completions of every write of the grant with posting closed, or the writer's
acknowledgement that follows them. An error completion, an API's return, a time-out and the
writer's death prove nothing, whatever an engine calls them."""


@dataclass(slots=True)
class Grant:
    """A peer's right to a generation, from its advertisement to stop evidence, if that came."""

    opened: Event
    closed: Event | None = None
    excuse: Event | None = None

    @property
    def writer(self) -> str:
        """Who may write under it."""
        return attempt_name(self.opened.request, self.opened.attempt, self.opened.gen)


@dataclass(slots=True)
class Life:
    """One generation of one page: from PRIVATE to FREE."""

    instance: str
    page: int
    gen: int
    born: Event
    state: str = "PRIVATE"
    changed: Event | None = None
    ended: Event | None = None
    grants: list[Grant] = field(default_factory=list)

    @property
    def owner(self) -> str:
        """`r2 attempt 1 gen 2`."""
        return attempt_name(self.born.request, self.born.attempt, self.gen)

    def owned_by(self, event: Event) -> bool:
        """Whether the event is of the attempt that the page was given to."""
        return self.born.request == event.request and self.born.attempt == event.attempt

    def grants_of(self, event: Event) -> list[Grant]:
        """The grants to the attempt of `event`."""
        return [
            grant
            for grant in self.grants
            if grant.opened.request == event.request and grant.opened.attempt == event.attempt
        ]

    def granted_bytes(self, event: Event) -> int:
        """How much of each layer the attempt of `event` was granted; 0 if it was granted nothing."""
        size = 0
        for grant in self.grants:
            opened = grant.opened
            if opened.request == event.request and opened.attempt == event.attempt:
                size = max(size, opened.data["bytes"])
        return size

    def open_at_end(self) -> list[Grant]:
        """Grants without stop evidence when the generation ended."""
        end = self.ended.seq if self.ended is not None else None
        return [grant for grant in self.grants if end is not None and (grant.closed is None or grant.closed.seq > end)]


@dataclass(slots=True)
class Fault:
    """A transition that the ledger's rules do not allow."""

    event: Event
    life: Life | None
    what: str


class Ledger:
    """All generations of all instances. `history.derived(Ledger)` gives the shared one."""

    def __init__(self, history: History) -> None:
        self.pools: dict[str, Event] = {}
        self.lives: dict[tuple[str, int, int], Life] = {}
        self.pages: dict[tuple[str, int], list[Life]] = defaultdict(list)
        self.faults: list[Fault] = []
        self.frees = 0
        self._births: dict[tuple[str, int], list[int]] = defaultdict(list)
        handlers = {
            "pool": self._pool,
            "page-private": self._private,
            "page-draining": self._draining,
            "page-quarantined": self._quarantined,
            "page-free": self._free,
            "granted": self._granted,
            "refused": self._refused,
            "admitted": self._holds,
            "accepted": self._holds,
            "grant-closed": self._closed,
        }
        for event in history.of(*handlers):
            handlers[event.kind](event)

    def __iter__(self) -> Iterator[Life]:
        for lives in self.pages.values():
            yield from lives

    def life(self, instance: str, page: int | None, gen: int | None) -> Life | None:
        """The generation `gen` of a page, if it ever began."""
        return self.lives.get((instance, page, gen)) if page is not None and gen is not None else None

    def at(self, instance: str, page: int, seq: int) -> Life | None:
        """The generation that is alive when `instance` records its event number `seq`."""
        key = (instance, page)
        index = bisect_right(self._births[key], seq) - 1
        if index < 0:
            return None
        life = self.pages[key][index]
        return life if life.ended is None or life.ended.seq > seq else None

    def last(self, instance: str, page: int) -> Life | None:
        """The latest generation of a page."""
        lives = self.pages.get((instance, page))
        return lives[-1] if lives else None

    # -- transitions

    def _pool(self, event: Event) -> None:
        if event.instance in self.pools:  # a new incarnation: its memory is registered anew
            for (instance, _), lives in self.pages.items():
                if instance == event.instance and lives[-1].ended is None:
                    lives[-1].ended = event
        self.pools[event.instance] = event

    def _private(self, event: Event) -> None:
        page, gen = event.page or 0, event.gen or 0
        last = self.last(event.instance, page)
        if last is not None and last.ended is None:
            self._fault(event, last, f"page {page} is given to {_who(event)} while it is {last.state} of {last.owner}")
            last.ended = event
        if last is not None and gen <= last.gen and last.born.incarnation == event.incarnation:
            self._fault(event, last, f"page {page} begins gen {gen} after gen {last.gen}: not a fresh generation")
        if event.data["from"] != "FREE":
            self._fault(event, last, f"page {page} goes to PRIVATE from {event.data['from']}")
        life = Life(event.instance, page, gen, event)
        self.lives[event.instance, page, gen] = life
        self.pages[event.instance, page].append(life)
        self._births[event.instance, page].append(event.seq)

    def _draining(self, event: Event) -> None:
        self._move(event, "DRAINING", ("PRIVATE", "SHARED", "DUP"))

    def _quarantined(self, event: Event) -> None:
        self._move(event, "QUARANTINED", ("DRAINING",))

    def _move(self, event: Event, to: str, allowed: tuple[str, ...]) -> None:
        life = self._named(event)
        if life is None:
            return
        if life.state not in allowed or event.data["from"] != life.state:
            self._fault(
                event,
                life,
                f"page {life.page} gen {life.gen} goes to {to} from {event.data['from']}, while it is {life.state}",
            )
        if not life.owned_by(event):
            self._fault(event, life, f"page {life.page} gen {life.gen} of {life.owner} is moved by {_who(event)}")
        life.state = to
        life.changed = event

    def _free(self, event: Event) -> None:
        self.frees += 1
        page = event.page or 0
        life = self.lives.get((event.instance, page, event.gen or 0))
        last = self.last(event.instance, page)
        if life is None:
            self._fault(event, last, f"page {page} gen {event.gen} becomes FREE, a generation that never began")
        elif life.ended is not None:
            self._fault(event, last, f"page {page} gen {life.gen} becomes FREE a second time")
        else:
            self._end(event, life)
            return
        if last is not None and last.ended is None:  # the stale release frees whoever holds the page now
            last.ended = last.changed = event
            last.state = "FREE"

    def _end(self, event: Event, life: Life) -> None:
        if life.state == "QUARANTINED":
            self._fault(
                event,
                life,
                f"page {life.page} gen {life.gen} leaves quarantine, which lasts for the life of the incarnation",
            )
        elif event.data["from"] != life.state:
            self._fault(
                event,
                life,
                f"page {life.page} gen {life.gen} becomes FREE from {event.data['from']}, while it is {life.state}",
            )
        if event.request is not None and not life.owned_by(event):
            self._fault(event, life, f"page {life.page} gen {life.gen} of {life.owner} is released by {_who(event)}")
        life.state = "FREE"
        life.ended = life.changed = event

    def _granted(self, event: Event) -> None:
        life = self._named(event)
        if life is not None:
            if not life.owned_by(event):
                self._fault(event, life, f"page {life.page} of {life.owner} is granted on behalf of {_who(event)}")
            life.grants.append(Grant(event))

    def _refused(self, event: Event) -> None:
        """A refusal moves nothing; it may be of a generation that has ended, but not of one that never was."""
        life = self.life(event.instance, event.page, event.gen)
        if event.page is not None and (life is None or not life.owned_by(event)):
            whose = f"of {life.owner}" if life is not None else "which never began"
            self._fault(event, life, f"a refusal to {_who(event)} about page {event.page} gen {event.gen}, {whose}")

    def _holds(self, event: Event) -> None:
        """An attempt has its pages."""
        for page, gen in event.data["tickets"]:
            life = self.life(event.instance, page, gen)
            if life is None or life.ended is not None or not life.owned_by(event):
                self._fault(event, life, f"{_who(event)} has page {page} gen {gen}, which was not given to it")

    def _closed(self, event: Event) -> None:
        life = self.life(event.instance, event.page, event.gen)
        grants = life.grants_of(event) if life is not None else []
        if not grants:
            self._fault(
                event,
                life,
                f"evidence for a grant of page {event.page} gen {event.gen} to {_who(event)}, which was never given",
            )
        for grant in grants:
            if event.data["evidence"] not in STOP_EVIDENCE:
                grant.excuse = event
            elif grant.closed is None:
                grant.closed = event

    def _named(self, event: Event) -> Life | None:
        """The live generation that the event names; a fault if there is none."""
        life = self.life(event.instance, event.page, event.gen)
        if life is None or life.ended is not None:
            gone = "has ended" if life is not None else "never began"
            self._fault(event, life, f"{event.kind} of page {event.page} gen {event.gen}, which {gone}")
            return None
        return life

    def _fault(self, event: Event, life: Life | None, what: str) -> None:
        self.faults.append(Fault(event, life, what))


def _who(event: Event) -> str:
    return attempt_name(event.request, event.attempt, event.gen)

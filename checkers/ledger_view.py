"""The page ledger as a history tells it: every generation of every page, its owner and its grants.

Built from `pool`, `page-*`, `cache-hit`, `reference-dropped`, `granted` and `grant-closed` alone, with
no code of the engine's, so that an engine that keeps its books wrongly does not also check them. What
contradicts the rules of the state machine is kept in `faults`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from checkers.lives import Fault, Grant, Life
from checkers.references import References
from racelab import fences
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.naming import attempt_name

STOP_EVIDENCE = ("completions", "acknowledged")
"""The values of `grant-closed`'s `evidence` that prove that no access can still take effect on any transport:
successful completions of every write of the grant with posting closed, or the writer's
acknowledgement that follows them. A fence counts besides where the fence table has one (racelab.fences).
An error completion, an API's return, a time-out and the writer's death prove nothing, whatever an engine
calls them."""

SAID = False
"""Of a fault: the events that are there say it by themselves, whatever else was lost."""


class Ledger:
    """All generations of all instances. `history.derived(Ledger)` gives the shared one."""

    def __init__(self, history: History) -> None:
        self.pools: dict[str, Event] = {}
        self.lives: dict[tuple[str, int, int], Life] = {}
        self.pages: dict[tuple[str, int], list[Life]] = defaultdict(list)
        self.faults: list[Fault] = []
        fenced = [kind for kind, event in fences.BY_EVIDENCE.items() if fences.is_fenced(history.header, event)]
        self._stop_evidence = {*STOP_EVIDENCE, *fenced}
        self.frees = 0
        self._births: dict[tuple[str, int], list[int]] = defaultdict(list)
        handlers = {
            "pool": self._pool,
            "page-private": self._private,
            "page-shared": self._shared,
            "page-dup": self._shared,
            "cache-hit": self._hit,
            "reference-dropped": self._dropped,
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
            self._fault(event, last, f"page {page} begins gen {gen} after gen {last.gen}: not a fresh generation", SAID)
        if event.data["from"] != "FREE":
            self._fault(event, last, f"page {page} goes to PRIVATE from {event.data['from']}", SAID)
        life = Life(event.instance, page, gen, event)
        self.lives[event.instance, page, gen] = life
        self.pages[event.instance, page].append(life)
        self._births[event.instance, page].append(event.seq)

    def _shared(self, event: Event) -> None:
        life = self._move(event, "SHARED" if event.kind == "page-shared" else "DUP", ("PRIVATE",))
        if life is not None:
            life.shared = References(event, life.born)

    def _hit(self, event: Event) -> None:
        life = self._named(event)
        if life is not None and (life.state != "SHARED" or life.shared is None):
            self._fault(event, life, f"{_who(event)} takes page {life.page}, which is {life.state} of {life.owner}")
        elif life is not None and life.shared is not None:
            life.shared.take(event)

    def _dropped(self, event: Event) -> None:
        life = self._named(event)
        if life is not None and (life.shared is None or not life.shared.drop(event)):
            self._fault(event, life, f"{_who(event)} drops a reference to page {life.page} that it does not hold")

    def _draining(self, event: Event) -> None:
        self._move(event, "DRAINING", ("PRIVATE", "SHARED", "DUP"))

    def _quarantined(self, event: Event) -> None:
        self._move(event, "QUARANTINED", ("DRAINING",))

    def _move(self, event: Event, to: str, allowed: tuple[str, ...]) -> Life | None:
        life = self._named(event)
        if life is None:
            return None
        if life.state not in allowed or event.data["from"] != life.state:
            self._fault(
                event,
                life,
                f"page {life.page} gen {life.gen} goes to {to} from {event.data['from']}, while it is {life.state}",
            )
        if not life.owned_by(event):
            self._fault(event, life, f"page {life.page} gen {life.gen} of {life.owner} is moved by {_who(event)}", SAID)
        self._check_unread(event, life)
        life.state = to
        life.changed = event
        return life

    def _check_unread(self, event: Event, life: Life) -> None:
        if life.shared is not None and life.shared.holders:
            readers = ", ".join(sorted(attempt_name(*reader) for reader in life.shared.holders))
            self._fault(event, life, f"{event.kind} of page {life.page} gen {life.gen} while {readers} may read it")

    def _free(self, event: Event) -> None:
        self.frees += 1
        page = event.page or 0
        life = self.lives.get((event.instance, page, event.gen or 0))
        last = self.last(event.instance, page)
        if life is None:
            self._fault(event, last, f"page {page} gen {event.gen} becomes FREE, a generation that never began")
        elif life.ended is not None:
            self._fault(event, last, f"page {page} gen {life.gen} becomes FREE a second time", SAID)
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
                SAID,
            )
        elif event.data["from"] != life.state:
            self._fault(
                event,
                life,
                f"page {life.page} gen {life.gen} becomes FREE from {event.data['from']}, while it is {life.state}",
            )
        if event.request is not None and not life.owned_by(event):
            what = f"page {life.page} gen {life.gen} of {life.owner} is released by {_who(event)}"
            self._fault(event, life, what, SAID)
        self._check_unread(event, life)
        life.state = "FREE"
        life.ended = life.changed = event

    def _granted(self, event: Event) -> None:
        life = self._named(event)
        if life is not None:
            if not life.owned_by(event):
                what = f"page {life.page} of {life.owner} is granted on behalf of {_who(event)}"
                self._fault(event, life, what, SAID)
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
            if life is None or life.ended is not None or not life.held_by(event):
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
            if event.data["evidence"] not in self._stop_evidence:
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

    def _fault(self, event: Event, life: Life | None, what: str, may_lack: bool = True) -> None:
        self.faults.append(Fault(event, life, what, may_lack))


def _who(event: Event) -> str:
    return attempt_name(event.request, event.attempt, event.gen)

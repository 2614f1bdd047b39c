"""Replays a history through the executable specification, one event after another.

An event begins an action, or is what the action in progress on its instance must report next, or
is an observation. The handlers of an instance are atomic: an action takes place as a whole at its
first event, for nothing that other instances do meanwhile can reach it.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass

from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.model import boundary
from racelab.model.numbers import Numbers
from racelab.model.refusal import Refusal, Refused, difference_of, say
from racelab.model.spec.actions import Action, Step, enabled, take
from racelab.model.spec.state import (
    DECODE,
    LOCAL_WORK_BEFORE_GRANT,
    PREFILL,
    RECEIVE_WATCHDOG,
    Effect,
    Message,
    Side,
    State,
    Write,
    initial,
)


@dataclass(frozen=True)
class Taken:
    """An action that explains events: the first of them, None if no event shows it."""

    step: Step
    event: Event | None


@dataclass
class _Due:
    """What an action has yet to report; `cause` names the message or batch that began it."""

    effects: list[Effect]
    cause: str | None
    of: str


class Replay:
    """`run` gives the number of accepted boundary events and the refusal, if there is one; `taken` is the way."""

    def __init__(self, history: History) -> None:
        self.config = boundary.config_of(history)
        self.state: State = initial(self.config)
        self.taken: list[Taken] = []
        self.accepted = 0
        self.not_enabled: Action | None = None
        """the action that the refused event would have begun"""
        self._history = history
        self._due: dict[str, list[_Due]] = defaultdict(list)
        self._writes: dict[str, Write] = {}
        self._landed: set[str] = set()
        self._reported: dict[str, deque[tuple[Action, Event]]] = defaultdict(deque)
        self._messages: dict[str, Message] = {}
        self._to_come = Counter(map(_about, history.by_kind["received"]))
        self._numbers = Numbers(history)
        self._pools: set[str] = set()
        self._beyond = boundary.beyond(history)
        self._late = {_work(event) for event in history.by_kind["work-done"]}
        self._claimed = {
            (event.request, event.attempt): event.data.get("made_for")
            for event in history.by_kind["sent"]
            if event.data["type"] == "claim"
        }

    def run(self) -> Refused | None:
        """Replay everything, or up to the first event that is refused."""
        for event in self._history.events:
            try:
                self._numbers.check(event)
                if event.kind in boundary.ASIDE:
                    if event.kind == "lost":
                        raise Refusal("harness gap", f"the recorder lost {event.data['count']} event(s)")
                    if event.kind == "work-done":
                        self._work_done(event)
                    continue
                if not boundary.is_boundary(event.kind):
                    raise Refusal("specification gap", f"the specification knows no event {event.kind!r}")
                if self._beyond is not None:
                    raise Refusal("specification gap", self._beyond)
                if event.kind in boundary.RETRACTED:
                    raise Refusal("specification gap", boundary.NO_RETRACTIONS)
                if not boundary.is_of_another_guard(self.config, event):
                    self._accept(event)
            except Refusal as refusal:
                return self._refused(event, refusal)
            self.accepted += 1
        try:
            for instance in (DECODE, PREFILL):
                self._begin_reported(instance, None)
        except Refusal as refusal:
            return self._refused(None, refusal)
        for instance, due in self._due.items():
            if due:
                unfinished = Refusal(
                    "harness gap", f"the history ends, and {instance} has not reported {say(due[-1].effects[0])}"
                )
                return self._refused(None, unfinished)
        return None

    # -- one event

    def _accept(self, event: Event) -> None:
        if event.data.get("type") == boundary.RENEW:
            return
        if event.kind == "sent" and event.data["type"] == "hello":
            self._hello(event)
            return
        due = self._due[event.instance]
        if due and self._is_due(event, due):
            return
        queues = event.kind == "completed" and all(pending.of in ("Complete", "CompleteRead") for pending in due)
        nests = event.kind in boundary.NESTED and (not due or self._may_nest(event))
        if not due and not queues and not nests and self._begin_reported(event.instance, event):
            return
        if due and not queues and not nests:
            raise Refusal("engine bug", f"{event.instance} must report {say(due[-1].effects[0])} first")
        begin = _BEGIN.get(event.kind)
        if begin is not None:
            begin(self, event)
        elif event.kind in _OBSERVE:
            _OBSERVE[event.kind](self, event)
        else:
            raise Refusal("engine bug", f"no action reports {event.kind} here")

    def _may_nest(self, event: Event) -> bool:
        """Whether the event can begin an action amid another: an admission does, and the evictions for it."""
        if self._due[event.instance][-1].of in boundary.ADMISSION:
            return False
        if event.kind in ("refused", "page-free"):
            pages = self.state.decode.pages
            return event.page is not None and event.page < len(pages) and pages[event.page].state == "SHARED"
        return event.kind in boundary.NESTED

    def _is_due(self, event: Event, due: list[_Due]) -> bool:
        """Whether the event is the next effect of the action in progress; writes may be posted in any order."""
        if event.kind == "posted":
            seen = boundary.effect(event, boundary.posted(self.config, event))
        elif event.kind in boundary.DETAILS:
            seen = boundary.effect(event, boundary.DETAILS[event.kind](event))
        else:
            return False
        effects = due[-1].effects
        place = 0
        while effects[place] != seen:
            if seen.kind != "posted" or effects[place].kind != "posted" or place + 1 == len(effects):
                return False
            place += 1
        if event.kind == "grant-closed" and event.data["by"] != due[-1].cause:
            raise Refusal("engine bug", f"the evidence is {due[-1].cause}")
        del effects[place]
        if not effects:
            due.pop()
        self._note(event)
        return True

    def _note(self, event: Event) -> None:
        """Remember under which name a write or a message goes from now on."""
        if event.kind == "posted":
            name = event.data["write"]
            if name in self._writes:
                raise Refusal("harness gap", f"{name} was posted before")
            self._writes[name] = self._write(event)
        elif event.kind == "sent":
            name = event.data["id"]
            if name in self._messages:
                raise Refusal("harness gap", f"{name} was sent before")
            self._messages[name] = next(message for message in self.state.net if _key(message) == _about(event))

    def _write(self, event: Event) -> Write:
        layer = boundary.layer_of(self.config, event)
        if layer == self.config.layers:
            place: tuple[int | None, int | None] = (event.data["slot"], 0)
        else:
            place = (event.page, event.gen)
        wanted = (event.request, event.attempt, *place, layer, self.state.prefill.epoch)
        return next(
            write
            for write in self.state.wire
            if (write.request, write.attempt, write.page, write.gen, write.layer, write.epoch) == wanted
        )

    def _hello(self, event: Event) -> None:
        """A prefill that has taken another one's place says so."""
        hello = Message("hello", "", 1)
        if event.instance != PREFILL or hello not in self.state.net:
            raise Refusal("specification gap", "decode has been replaced")
        self._messages[event.data["id"]] = hello

    # -- actions

    def _take(self, action: Action, event: Event | None) -> None:
        """Take an action whose first effect is the event; the others are due after it."""
        try:
            step = take(self.config, self.state, action)
        except (KeyError, IndexError):
            step = None
        if step is None:
            self.not_enabled = action
            raise Refusal("engine bug", f"{action} is not enabled here")
        self.state = step.state
        self.taken.append(Taken(step, event))
        if event is None or not step.effects:
            return
        due = self._due[event.instance]
        if event.kind == "completed":  # reported already
            if len(step.effects) > 1:
                due.append(_Due(list(step.effects[1:]), event.data["batch"], action.name))
            return
        due.append(_Due(list(step.effects), event.data.get("id"), action.name))
        if not self._is_due(event, due):
            raise Refusal("engine bug", f"{action} reports {say(step.effects[0])}")

    def _begin_own(self, event: Event, name: str) -> None:
        self._take(Action(name, (event.request, event.attempt)), event)
        about = (event.request, event.attempt)
        advertised = not self.config.guarded(LOCAL_WORK_BEFORE_GRANT)
        if name == "Admit" and advertised and ("zero-fill", *about, None) not in self._late:
            self._take_if_enabled(Action("Fill", about))
        if name in ("Admit", "Fill") and ("register", *about, None) not in self._late:
            self._take_if_enabled(Action("Register", about))

    def _submitted(self, event: Event) -> None:
        if not self.config.pulls:
            self._take(Action("Submit", (event.request,)), event)
        elif event.instance == PREFILL:
            self._take(Action("Request", (event.request,)), event)
        else:
            of = self._claimed.get((event.request, event.attempt))
            self._take(Action("Present", (event.request, of)), event)

    def _ends(self, event: Event) -> None:
        """A client's time or patience ends: with prefill, as long as it has its request."""
        name = {"timed-out": "TimeOut", "aborted": "Abort"}[event.kind]
        self._begin_own(event, f"{name}Away" if event.instance == PREFILL else name)

    def _batched(self, event: Event) -> None:
        """A request is in the batch: the specification has it there at once, if nobody else is answered or waits."""
        attempts = self.state.attempts[self.config.place.get(event.request or "", 0)]
        if not any(number == event.attempt and attempt.running for number, attempt in enumerate(attempts, 1)):
            self._take(Action("Enter", (event.request, event.attempt)), event)

    def _attempt_ended(self, event: Event) -> None:
        if event.data["why"].startswith("aborted by the router"):
            raise Refusal("specification gap", "the specification has no word for a router that aborts at prefill")
        self._begin_own(event, "GiveUpOffer")

    def _page_private(self, event: Event) -> None:
        self._begin_own(event, "Admit" if event.instance == DECODE else "Accept")

    def _received(self, event: Event) -> None:
        message = self._message(event, event.data["id"])
        key = _key(message)
        self._to_come[key] -= 1
        self._take(Action("ReceiveCopy" if self._to_come[key] > 0 else "Receive", (message,)), event)

    def _granted(self, event: Event) -> None:
        if event.instance != PREFILL:
            self._begin_own(event, "Fill")
            return
        place = self.config.place.get(event.request or "", 0)
        jobs = self.state.jobs[place] if self.state.jobs else ()
        posted = jobs[(event.attempt or 0) - 1].posted if 0 < (event.attempt or 0) <= len(jobs) else 0
        if ("forward", event.request, event.attempt, posted) not in self._late:
            self._take_if_enabled(Action("Compute", (event.request, event.attempt, posted)))
        self._take(Action("Post", (event.request, event.attempt, posted)), event)

    def _work_done(self, event: Event) -> None:
        """Local work that had to wait has run."""
        op, request, attempt, chunk = _work(event)
        if op == "forward" and event.instance == PREFILL:
            self._take_if_enabled(Action("Compute", (request, attempt, chunk)))
        elif op == "register":
            self._take_if_enabled(Action("Register", (request, attempt)))
        elif op == "zero-fill" and not self.config.guarded(LOCAL_WORK_BEFORE_GRANT):
            self._take_if_enabled(Action("Fill", (request, attempt)))

    def _take_if_enabled(self, action: Action) -> None:
        if self._is_enabled(action):
            self._take(action, None)

    def _completed(self, event: Event) -> None:
        ok = event.data["status"] == "ok"
        writes = [self._posted(event, name) for name in event.data["writes"]]
        if any((write.request, write.attempt) != (event.request, event.attempt) for write in writes):
            raise Refusal("engine bug", "the writes are of another attempt")
        for name, write in zip(event.data["writes"], writes, strict=True):
            if ok and write in self.state.wire:
                self._take(self._landing(write), None)
                self._landed.add(name)
        done = frozenset((write.nth, write.layer) for write in writes)
        name = "CompleteRead" if event.instance == DECODE else "Complete"
        action = Action(name, (event.request, event.attempt, done, ok))
        reported = self._reported[event.instance]
        twice = any(action.args[:2] == other.args[:2] and done & other.args[2] for other, _ in reported)
        if twice or not self._is_enabled(action):
            self.not_enabled = action
            raise Refusal("engine bug", f"{action} is not enabled here")
        reported.append((action, event))

    def _landing(self, write: Write) -> Action:
        return Action("LandSlot" if write.layer == self.config.layers else "Land", (write,))

    def _begin_reported(self, instance: str, event: Event | None) -> bool:
        """Begin what was reported as completed, up to the one that the event is of; whether there is one.

        A transport may report several batches before the engine looks at the first, and admissions
        may be between them.
        """
        due, reported = self._due[instance], self._reported[instance]
        while reported and not due:
            self._take(*reported.popleft())
        return event is not None and bool(due) and self._is_due(event, due)

    def _is_enabled(self, action: Action) -> bool:
        try:
            return take(self.config, self.state, action) is not None
        except (KeyError, IndexError):
            return False

    def _retire(self, event: Event) -> None:
        """A page goes without its holder's doing: its drain has run out, or it is evicted. Or a watchdog objects."""
        if event.kind == "refused" and event.data["guard"] == RECEIVE_WATCHDOG:
            self._begin_own(event, "GiveUp" if event.instance == DECODE else "GiveUpSource")
            return
        if event.page is None or not 0 <= event.page < len(self._side(event).pages):
            raise Refusal("engine bug", f"no action reports {event.kind} here")
        if event.instance == DECODE and self.state.decode.pages[event.page].state == "SHARED":
            self._take(Action("Evict", (event.page,)), event)
        else:
            self._take(Action("Expire", (event.instance, event.page)), event)

    def _side(self, event: Event) -> Side:
        return self.state.decode if event.instance == DECODE else self.state.prefill

    def _landed_at_gate(self, event: Event) -> None:
        write = self._posted(event, event.data["what"])
        name = event.data["what"]
        if name in self._landed:
            self._landed.remove(name)  # its completion told of it already
        else:
            self._take(self._landing(write), event)

    def _dropped(self, event: Event) -> None:
        name = event.data.get("of", event.data["what"])
        if name in self._messages:
            if "of" in event.data:
                return  # a copy: the message itself has passed
            self._take(Action("Lose", (self._message(event, name),)), event)
        else:
            self._posted(event, name)

    # -- observations

    def _pool(self, event: Event) -> None:
        side = self._side(event)
        if event.instance in self._pools:
            self._restarted(event)
            side = self._side(event)
        self._pools.add(event.instance)
        if tuple(event.data["free"]) != side.free:
            raise Refusal("specification gap", f"the allocator's first order is {list(side.free)}")

    def _restarted(self, event: Event) -> None:
        """Prefill has died, with what it had yet to report, and another takes its place."""
        if event.instance != PREFILL or self.state.prefill.epoch:
            what = "decode is replaced" if event.instance != PREFILL else "prefill is replaced twice"
            raise Refusal("specification gap", f"the specification has no word for a run in which {what}")
        self._due[PREFILL].clear()
        self._reported[PREFILL].clear()
        self._take(Action("Restart"), None)

    def _queued(self, event: Event) -> None:
        shape = self.config.shapes[event.request or ""]
        side, needs = self._side(event), shape.pages if event.instance == DECODE else shape.granted
        queue = self.state.queue if event.instance == DECODE else self.state.waiting
        if queue[:1] != ((event.request, event.attempt),):
            raise Refusal("engine bug", f"the first in the queue is {queue[0] if queue else 'nobody'}")
        if event.data["needs"] != needs or event.data["free"] != len(side.free):
            raise Refusal("engine bug", f"it needs {needs} pages and {len(side.free)} are free")
        if take(self.config, self.state, Action("Admit" if event.instance == DECODE else "Accept", queue[0])):
            raise Refusal("engine bug", "it could be admitted")

    def _at_gate(self, event: Event) -> None:
        message = event.data.get("of", event.data["what"])
        if message in self._messages:
            self._message(event, message)
        else:
            self._posted(event, event.data["what"])

    def _quiesced(self, event: Event) -> None:
        side = self._side(event)
        states = Counter(page.state for page in side.pages if page.state != "FREE")
        states["FREE"] = len(side.free)
        if event.data["states"] != dict(states):
            raise Refusal("engine bug", f"the pages are {dict(states)}")

    def _message(self, event: Event, name: str) -> Message:
        message = self._messages.get(name)
        if message is None:
            raise Refusal("harness gap", f"no message {name} has been sent")
        if message.type != "hello" and (message.request, message.attempt) != (event.request, event.attempt):
            raise Refusal("harness gap", f"{name} is of {message.request}/{message.attempt}")
        return message

    def _posted(self, event: Event, name: str) -> Write:
        write = self._writes.get(name)
        if write is None:
            raise Refusal("harness gap", f"no write {name} has been posted")
        subject = (write.request, write.attempt, write.page, write.gen)
        if event.page is not None and subject != (event.request, event.attempt, event.page, event.gen):
            raise Refusal(
                "harness gap", f"{name} is of {write.request}/{write.attempt} to page {write.page} gen {write.gen}"
            )
        return write

    def _refused(self, event: Event | None, refusal: Refusal) -> Refused:
        due = self._due[event.instance] if event else [pending for rest in self._due.values() for pending in rest]
        if due:
            expected: tuple[str, ...] = (say(due[-1].effects[0]),)
        else:
            expected = tuple(str(step.action) for step in enabled(self.config, self.state))
        difference = () if event is None else difference_of(self.config, self.state, event)
        return Refused(event, refusal.gap, refusal.why, expected, difference)


def _work(event: Event) -> tuple[str, str | None, int | None, int | None]:
    return event.data["op"], event.request, event.attempt, event.data.get("chunk")


_Key = tuple[str, str | None, int | None, int | None, int]


def _about(event: Event) -> _Key:
    """Which message a `sent` or `received` is of."""
    return event.data["type"], event.request, event.attempt, event.data.get("chunk"), event.data.get("rank") or 0


def _key(message: Message) -> _Key:
    return message.type, message.request, message.attempt, message.chunk, message.rank


_BEGIN = {
    "submitted": Replay._submitted,
    "cache-hit": lambda replay, event: replay._begin_own(event, "Join"),
    "reference-dropped": lambda replay, event: replay._begin_own(event, "Unjoin"),
    "page-private": Replay._page_private,
    "admitted": lambda replay, event: replay._begin_own(event, "Admit"),
    "received": Replay._received,
    "timed-out": Replay._ends,
    "aborted": Replay._ends,
    "failed": lambda replay, event: replay._begin_own(event, "Orphan"),
    "attempt-ended": Replay._attempt_ended,
    "offered": lambda replay, event: replay._begin_own(event, "Offer"),
    "referenced": lambda replay, event: replay._begin_own(event, "Refer"),
    "forwarded": lambda replay, event: replay._begin_own(event, "Forward"),
    "lease-expired": lambda replay, event: replay._begin_own(event, "Lapse"),
    "read": lambda replay, event: replay._begin_own(event, "Read"),
    "batched": Replay._batched,
    "finished": lambda replay, event: replay._begin_own(event, "Finish"),
    "granted": Replay._granted,
    "completed": Replay._completed,
    "refused": Replay._retire,
    "page-free": Replay._retire,
    "landed": Replay._landed_at_gate,
    "torn": Replay._landed_at_gate,
    "dropped": Replay._dropped,
}

_OBSERVE = {
    "pool": Replay._pool,
    "queued": Replay._queued,
    "held": Replay._at_gate,
    "released": Replay._at_gate,
    "delivered": Replay._at_gate,
    "unlanded": Replay._at_gate,
    "quiesced": Replay._quiesced,
}

"""A slow judge of histories, obviously right: everything that must be there, looked for one by one.

`complaints(history)` lists what is wrong or what no evidence is there for, in words; an empty list says that
all four specifications hold. It shares no code with the checkers: happened-before is a set of ancestors for
each event, and each rule of docs/specifications.md is a search through all events. For histories of a few
hundred events in which no gate tore, dropped or failed anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from racelab.evidence.events import Event
from racelab.evidence.history import History

ENDS = ("finished", "timed-out", "aborted", "failed")
CONSUMED = ("committed", "published", "read")
MOVES = {"page-shared": "SHARED", "page-dup": "DUP", "page-draining": "DRAINING", "page-quarantined": "QUARANTINED"}
LEAVES = {
    "page-shared": ("PRIVATE",),
    "page-dup": ("PRIVATE",),
    "page-draining": ("PRIVATE", "SHARED", "DUP"),
    "page-quarantined": ("DRAINING",),
    "page-free": ("PRIVATE", "SHARED", "DUP", "DRAINING"),
}
Who = tuple[str | None, int | None]


def complaints(history: History) -> list[str]:
    """Everything that is not as it must be."""
    oracle = Oracle(history)
    rules = (
        oracle.numbers,
        oracle.witnesses,
        oracle.states,
        oracle.references,
        oracle.grants,
        oracle.returns,
        oracle.writes,
        oracle.consumption,
        oracle.complete,
        oracle.messages,
        oracle.ends,
        oracle.rest,
    )
    return [f"{rule.__name__}: {words}" for rule in rules for words in rule()]


def who(event: Event) -> Who:
    return event.request, event.attempt


def ticket(event: Event) -> tuple[str, int | None, int | None]:
    return event.instance, event.page, event.gen


class Oracle:
    """All events, and for each the set of those that happened before it."""

    def __init__(self, history: History) -> None:
        self.header = history.header
        self.events = sorted(history.events, key=lambda event: event.hlc)
        self.past: list[set[int]] = []
        for index, event in enumerate(self.events):
            heard: set[int] = set()
            for earlier in range(index):
                other = self.events[earlier]
                same = other.instance == event.instance
                if same or other.seq <= event.after.get(other.instance, 0):
                    heard |= {earlier} | self.past[earlier]
            self.past.append(heard)
        self.place = {id(event): index for index, event in enumerate(self.events)}

    def all(self, *kinds: str) -> list[Event]:
        return [event for event in self.events if event.kind in kinds]

    def before(self, a: Event, b: Event) -> bool:
        return self.place[id(a)] in self.past[self.place[id(b)]]

    def earlier(self, a: Event, b: Event) -> bool:
        return self.place[id(a)] < self.place[id(b)]

    # -- the file

    def numbers(self) -> Iterator[str]:
        last: dict[str, int] = {}
        for event in self.events:
            if event.seq != last.get(event.instance, event.seq - 1) + 1:
                yield f"{event.instance} goes on with {event.seq}"
            last[event.instance] = event.seq
            for other, seq in event.after.items():
                if seq > last.get(other, 0):
                    yield f"{event.kind} knows {other}:{seq}, which comes later or not at all"

    def witnesses(self) -> Iterator[str]:
        """Who speaks of one thing says the same of it."""
        for received in self.all("received", "ignored"):
            for sent in self.all("sent"):
                if sent.data["id"] == received.data["id"]:
                    told = [(who(event), event.data["type"], event.data.get("chunk")) for event in (sent, received)]
                    if told[0] != told[1]:
                        yield f"message {sent.data['id']}"
                    if received.kind == "received" and not self.before(sent, received):
                        yield f"message {sent.data['id']} came before it was sent"
        for gate in self.all("held", "released", "landed"):
            for posted in self.all("posted"):
                same = (who(posted), posted.page, posted.gen) == (who(gate), gate.page, gate.gen)
                if posted.data["write"] == gate.data["what"] and not same:
                    yield f"write {posted.data['write']} at the gate"
        for completed in self.all("completed"):
            for posted in self.all("posted"):
                mine = completed.request in (None, posted.request) and completed.attempt in (None, posted.attempt)
                if posted.data["write"] in completed.data["writes"] and not mine:
                    yield f"whose write {posted.data['write']} is"
        for event in self.all("admitted", "committed", "read", *ENDS):
            if not any(who(first) == who(event) and self.before(first, event) for first in self.all("submitted")):
                yield f"{event.kind} of {who(event)}, which was never submitted"
        for event in self.all("accepted", "attempt-ended"):
            asked = [
                told for told in self.all("received") if told.data["type"] == "reserve" and who(told) == who(event)
            ]
            if not any(self.before(told, event) for told in asked):
                yield f"{event.kind} of {who(event)}, which was never reserved"
        ended = Counter((event.instance, who(event)) for event in self.all("attempt-ended"))
        yield from (f"{attempt} is done with twice" for attempt, count in ended.items() if count > 1)

    # -- pages

    def pool(self, instance: str) -> dict[str, int]:
        """What is known of an instance's pool; nothing if it never reported one."""
        return next((pool.data for pool in self.all("pool") if pool.instance == instance), {})

    def births(self, instance: str, page: int | None, gen: int | None) -> list[Event]:
        return [event for event in self.all("page-private") if ticket(event) == (instance, page, gen)]

    def end(self, born: Event) -> Event | None:
        """Where a generation ends."""
        frees = [event for event in self.all("page-free") if ticket(event) == ticket(born) and self.before(born, event)]
        return frees[0] if frees else None

    def life(self, event: Event, page: int | None, gen: int | None, instance: str | None = None) -> Event | None:
        """The generation that is alive when `event` happens, on its instance."""
        for born in self.births(instance or event.instance, page, gen):
            end = self.end(born)
            if self.earlier(born, event) and (end is None or self.earlier(event, end)):
                return born
        return None

    def state(self, event: Event) -> str:
        """Of the page of an event, right before it."""
        state = "FREE"
        for other in self.events[: self.place[id(event)]]:
            if (other.instance, other.page) == (event.instance, event.page):
                if other.kind == "page-private":
                    state = "PRIVATE"
                elif other.kind == "page-free":
                    state = "FREE"
                else:
                    state = MOVES.get(other.kind, state)
        return state

    def states(self) -> Iterator[str]:
        """The state machine, step by step."""
        for event in self.all("page-private"):
            older = [
                other.gen or 0
                for other in self.all("page-private")
                if (other.instance, other.page) == (event.instance, event.page) and self.earlier(other, event)
            ]
            if self.state(event) != "FREE" or event.data["from"] != "FREE" or (event.gen or 0) <= max(older, default=0):
                yield f"page-private of {ticket(event)} from {self.state(event)}"
        for event in self.all(*LEAVES):
            born, state = self.life(event, event.page, event.gen), self.state(event)
            if event.kind == "page-free":
                born = next((one for one in self.births(*ticket(event)) if self.end(one) is event), None)
            if born is None or state not in LEAVES[event.kind] or event.data["from"] != state:
                yield f"{event.kind} of {ticket(event)} from {state}"
            elif event.request is not None and who(event) != who(born):
                yield f"{event.kind} of {ticket(event)} by {who(event)}"
            elif event.kind not in ("page-shared", "page-dup") and self.readers(event, event.page, event.gen):
                yield f"{event.kind} of {ticket(event)} under its readers"
        for event in self.all("admitted", "accepted"):
            for page, gen in event.data["tickets"]:
                if not self.may_read(event, page, gen):
                    yield f"{event.kind} with page {page} gen {gen} of somebody else"
        for event in self.all("refused"):
            if event.page is not None and not any(who(born) == who(event) for born in self.births(*ticket(event))):
                yield f"a refusal about {ticket(event)} to {who(event)}"

    def readers(self, event: Event, page: int | None, gen: int | None) -> set[Who]:
        """Who has a reference to a published page right before an event."""
        holders: set[Who] = set()
        for other in self.events[: self.place[id(event)]]:
            if ticket(other) == (event.instance, page, gen):
                if other.kind in ("page-shared", "page-dup"):
                    holders |= {who(born) for born in self.births(*ticket(other))}
                elif other.kind == "cache-hit":
                    holders.add(who(other))
                elif other.kind == "reference-dropped":
                    holders.discard(who(other))
        return holders

    def may_read(self, event: Event, page: int | None, gen: int | None) -> bool:
        born = self.life(event, page, gen)
        if born is None:
            return False
        published = [
            other
            for other in self.all("page-shared", "page-dup")
            if ticket(other) == ticket(born) and self.earlier(other, event)
        ]
        return who(event) in self.readers(event, page, gen) if published else who(event) == who(born)

    def references(self) -> Iterator[str]:
        for event in self.all("cache-hit"):
            keys = [
                key
                for other in self.all("published")
                for page, gen, key in other.data["keys"]
                if (other.instance, page, gen) == ticket(event)
            ]
            if self.state(event) != "SHARED" or self.life(event, event.page, event.gen) is None:
                yield f"cache-hit of {ticket(event)}, {self.state(event)}"
            if keys[-1:] != [event.data["key"]]:
                yield f"cache-hit of {ticket(event)} by another key"
        for event in self.all("reference-dropped"):
            born = self.life(event, event.page, event.gen)
            if born is None or who(event) not in self.readers(event, event.page, event.gen):
                yield f"reference-dropped of {ticket(event)} by {who(event)}"

    def grants(self) -> Iterator[str]:
        for event in self.all("granted"):
            born = self.life(event, event.page, event.gen)
            if born is None or who(born) != who(event):
                yield f"granted {ticket(event)} to {who(event)}"
        for event in self.all("grant-closed"):
            given = [one for one in self.all("granted") if ticket(one) == ticket(event) and who(one) == who(event)]
            if not any(self.before(one, event) for one in given):
                yield f"grant-closed of {ticket(event)} to {who(event)}, never given"

    def written(self, grant: Event) -> list[Event]:
        """The writes under a grant: into the page, or for the local NIC out of it."""
        if grant.data["to"] != "nic":
            return [
                one
                for one in self.all("posted")
                if (who(one), one.page, one.gen) == (who(grant), grant.page, grant.gen)
                and one.instance == grant.data["to"]
            ]
        return [
            one
            for one in self.all("posted")
            if one.instance == grant.instance
            and one.data["source_page"] == grant.page
            and self.life(one, grant.page, grant.gen) is not None
        ]

    def landed(self, write: Event) -> list[Event]:
        """Events that the landing of a write surely precedes."""
        done = [one for one in self.all("completed") if write.data["write"] in one.data["writes"]][:1]
        gate = [one for one in self.all("landed") if one.data["what"] == write.data["write"]]
        held = [one for one in self.all("held") if one.data["what"] == write.data["write"]]
        done = [one for one in done if one.data["status"] == "ok"]
        if held:
            done = [one for one in done if gate and self.earlier(gate[0], one)]
        return gate + done

    def arrived(self, write: Event, by: Event) -> bool:
        return any(self.before(one, by) for one in self.landed(write))

    def succeeded(self, write: Event, by: Event) -> bool:
        done = [one for one in self.all("completed") if write.data["write"] in one.data["writes"]][:1]
        return any(one in self.landed(write) and self.before(one, by) for one in done)

    def returns(self) -> Iterator[str]:
        """Every page-free has true stop evidence for every grant of its generation."""
        for born in self.all("page-private"):
            end = self.end(born)
            given = [one for one in self.all("granted") if ticket(one) == ticket(born)]
            out = [
                one
                for one in self.all("posted")
                if one.instance == born.instance
                and one.data["source_page"] == born.page
                and self.life(one, born.page, born.gen) is born
            ]
            if end is None:
                continue
            if not given and not all(self.succeeded(write, end) for write in out):
                yield f"{ticket(born)} freed under its own writes"
            for grant in given:
                closed = [
                    one for one in self.all("grant-closed") if ticket(one) == ticket(grant) and who(one) == who(grant)
                ]
                closed = [one for one in closed if one.data["evidence"] in ("completions", "acknowledged")]
                if not closed or not self.earlier(closed[0], end):
                    yield f"{ticket(born)} freed without evidence"
                else:
                    yield from self.evidence(grant, closed[0])

    def evidence(self, grant: Event, closed: Event) -> Iterator[str]:
        writes = self.written(grant)
        if not all(self.succeeded(write, closed) for write in writes):
            yield f"evidence for {ticket(grant)} while a write is on its way"
        layers = self.pool(grant.instance).get("layers", 0)
        if closed.data["evidence"] == "completions":
            if grant.data["bytes"] and len({write.data["layer"] for write in writes}) < layers:
                yield f"evidence for {ticket(grant)} while a layer is to come"
            return
        told = [one for one in self.all("sent") if one.data["id"] == closed.data["by"]]
        if not any(
            one.data["type"] in ("abort-ack", "complete", "release-source")
            and who(one) == who(closed)
            and one.data.get("clean", True)
            and not any(write.instance == one.instance and self.before(one, write) for write in writes)
            for one in told
        ):
            yield f"no acknowledgement for {ticket(grant)}"

    # -- writes and reads

    def place_of(self, write: Event) -> tuple[str, int, int, int, int] | None:
        """Instance, layer, page, start and end within it, if a write lies in one page."""
        for peer in dict.fromkeys(one.instance for one in self.all("granted") if one.data["to"] == write.instance):
            size = self.pool(peer).get("page_bytes", 1)
            for region in self.all("region"):
                offset = write.data["address"] - region.data["address"]
                if region.instance == peer and 0 <= offset < region.data["bytes"]:
                    page, start = divmod(offset, size)
                    if start + write.data["bytes"] <= size:
                        return peer, region.data["layer"], page, start, start + write.data["bytes"]
        return None

    def writes(self) -> Iterator[str]:
        """Each from a page of one's own, to where one was granted, and landed before the generation ended."""
        for write in self.all("posted"):
            name, place = write.data["write"], self.place_of(write)
            source = [
                born
                for born in self.all("page-private")
                if born.instance == write.instance
                and born.page == write.data["source_page"]
                and who(born) == who(write)
                and self.life(write, born.page, born.gen) is born
            ]
            if not source:
                yield f"{name} from a page of somebody else"
            if place is None or place[1:3] != (write.data["layer"], write.page):
                yield f"{name} to another place"
                continue
            given = [
                one
                for one in self.all("granted")
                if ticket(one) == (place[0], write.page, write.gen)
                and who(one) == who(write)
                and one.data["bytes"] >= place[4]
            ]
            if not given:
                yield f"{name} without a grant"
            for born in self.births(place[0], write.page, write.gen):
                end = self.end(born)
                if end is not None and not self.arrived(write, end):
                    yield f"{name} not landed when its generation ended"

    def content(self, event: Event, row: list[object]) -> list[Event]:
        """The writes that bring what a row of a reader shows: its own, or the publisher's."""
        page, gen, layer, start, end, _ = row
        born = self.life(event, page, gen)  # type: ignore[arg-type]
        owners = {who(event)} | ({who(born)} if born is not None and self.may_read(event, page, gen) else set())  # type: ignore[arg-type]
        return [
            write
            for write in self.all("posted")
            if who(write) in owners
            and (write.page, write.gen) == (page, gen)
            and (self.place_of(write) or ())[1:] == (layer, page, start, end)
        ]

    def consumption(self) -> Iterator[str]:
        """Each row is the reader's to read, equals what was sent there and, when committed, had arrived."""
        for event in self.all(*CONSUMED):
            for row in event.data["fingerprints"]:
                sent = self.content(event, row)
                about = f"{event.kind} of page {row[0]} gen {row[1]} layer {row[2]} by {who(event)}"
                if not self.may_read(event, row[0], row[1]):
                    yield f"{about}, which is not its own"
                elif not any(write.data["fingerprint"] == row[5] for write in sent):
                    yield f"{about}: other bytes"
                elif event.kind != "read" and not any(self.arrived(write, event) for write in sent):
                    yield f"{about}: not arrived"
        posts = self.all("posted")
        for one in posts:
            for other in posts:
                same = (who(one), one.page, one.gen, self.place_of(one)) == (
                    who(other),
                    other.page,
                    other.gen,
                    self.place_of(other),
                )
                if same and one.data["fingerprint"] != other.data["fingerprint"]:
                    yield f"{one.data['write']} and {other.data['write']} bring different bytes to one place"

    def complete(self) -> Iterator[str]:
        """Whoever finished had everything shown that it was granted or found."""
        for finished in self.all("finished"):
            layers = self.pool(finished.instance).get("layers", 0)
            mine = [
                one
                for one in self.all("granted", "cache-hit")
                if one.instance == finished.instance and who(one) == who(finished)
            ]
            for kind in ("committed", "read"):
                shown = [one for one in self.all(kind) if who(one) == who(finished)][:1]
                rows = [tuple(row[:5]) for one in shown for row in one.data["fingerprints"]]
                wanted = [
                    (one.page, one.gen, layer, 0, one.data["bytes"])
                    for one in mine
                    for layer in range(layers)
                    if one.data["bytes"]
                ]
                if not shown or not set(wanted) <= set(rows):
                    yield f"{who(finished)} finished without having {kind} all"

    # -- messages, requests, rest

    def messages(self) -> Iterator[str]:
        """None changes another attempt's state."""
        for told in self.all("received"):
            mine = [event for event in self.events if event.instance == told.instance]
            at = mine.index(told)
            after = mine[at + 1 :]
            until = next((place for place, one in enumerate(after) if one.kind == "received"), len(after))
            effects = after[:until]
            obeyed = not any(one.kind in ("refused", "ignored") and who(one) == who(told) for one in effects)
            if told.data["type"] == "written" and obeyed and self.live(mine[:at], told) not in (None, told.attempt):
                yield f"{told.data['id']} is obeyed while another attempt is live"
            for one in effects:
                if one.kind == "attempt-ended" and one.request == told.request and one.attempt != told.attempt:
                    yield f"{told.data['id']} ends another attempt"
            for closed in self.all("grant-closed"):
                if (closed.instance, closed.data["by"]) == (told.instance, told.data["id"]) and who(closed) != who(
                    told
                ):
                    yield f"{told.data['id']} closes a grant of another attempt"

    def live(self, earlier: list[Event], told: Event) -> int | None:
        attempt = None
        for event in earlier:
            if event.request == told.request:
                if event.kind in ("admitted", "accepted"):
                    attempt = event.attempt
                elif event.kind in ("attempt-ended", *ENDS) and event.attempt == attempt:
                    attempt = None
        return attempt

    def ends(self) -> Iterator[str]:
        lab = self.header.scenario.lab
        for first in self.all("submitted"):
            over = [event for event in self.all(*ENDS) if who(event) == who(first)]
            if len(over) != 1 or over[0].clock_ms - first.clock_ms > lab.request_timeout_ms + lab.drain_timeout_ms:
                yield f"{who(first)} ended {len(over)} times, or too late"
            probes = [phase for phase in self.all("phase") if phase.data["phase"] == "probe"][:1]
            waited = first.request != "probe" and any(self.earlier(first, phase) for phase in probes)
            if waited and over and self.earlier(probes[0], over[0]):
                yield f"{who(first)} ended only after the drain"
            for event in self.all("committed", "read"):
                if (
                    over
                    and who(event) == who(first)
                    and event.instance == over[0].instance
                    and self.before(over[0], event)
                ):
                    yield f"{who(first)} goes on after its end"
        for draining in self.all("page-draining"):
            over = [one for one in self.all("page-free", "page-quarantined") if ticket(one) == ticket(draining)]
            if not over or over[-1].clock_ms - draining.clock_ms > lab.drain_timeout_ms:
                yield f"{ticket(draining)} drains too long"

    def rest(self) -> Iterator[str]:
        for born in self.all("page-private"):
            if not self.pool(born.instance):
                yield f"{born.instance} never reported a pool"
        for pool in self.all("pool"):
            mine = [event for event in self.all("quiesced") if event.instance == pool.instance]
            if not mine:
                yield f"{pool.instance} never at rest"
                continue
            seen: Counter[str] = Counter()
            for page in range(pool.data["pages"]):
                state = "FREE"
                for event in self.events:
                    if (event.instance, event.page) == (pool.instance, page):
                        state = {"page-private": "PRIVATE", "page-free": "FREE", **MOVES}.get(event.kind, state)
                seen[state] += 1
            if {name: count for name, count in mine[-1].data["states"].items() if count} != dict(seen):
                yield f"{pool.instance} at rest counts {mine[-1].data['states']}, not {dict(seen)}"
            if any(mine[-1].data["leftovers"].values()):
                yield f"{pool.instance} has something left"

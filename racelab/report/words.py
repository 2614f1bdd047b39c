"""Every event of a history in words: one short phrase a kind, shared by the story and the page.

The phrases name what the event's own process saw or did, never what it means: that is the
verdict's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from racelab.evidence.events import Event

CLIENT = "conductor"
NETWORK = ("wire", "verbs", "packets", "bus")
UNREAD_STATES = ("DRAINING", "QUARANTINED")


def who(event: Event) -> str:
    """`r1`, or `r1 attempt 2` from the second attempt on."""
    return request_name(event.request, event.attempt)


def request_name(request: str | None, attempt: int | None) -> str:
    """A request, with its attempt where there was more than one."""
    if request is None:
        return "nobody"
    return f"{request} attempt {attempt}" if attempt is not None and attempt > 1 else request


def ticket(event: Event) -> str:
    """`page 5 gen 2`, as much of it as the event says."""
    parts = [f"page {event.page}"] if event.page is not None else []
    parts += [f"gen {event.gen}"] if event.gen is not None else []
    return " ".join(parts)


def size(count: int) -> str:
    """A number of bytes: `64 KiB` when it is whole, else with its thousands marked."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count:,} B"


def milliseconds(value: float) -> str:
    """`0.42 ms`, `12.3 ms`, `1,204 ms`: three figures that matter."""
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f} ms"


def count_of(number: int, thing: str) -> str:
    """`1 write`, `4 writes`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def listed(items: Iterable[Any]) -> str:
    """`5`, `5 and 4`, `5, 4 and 3`."""
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"


def shown(value: Any) -> str:
    """Plain data on one line, for people."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {shown(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(f"[{shown(item)}]" if isinstance(item, (list, tuple)) else shown(item) for item in value)
    if isinstance(value, float):
        return f"{value:,.2f}"
    return "nothing" if value is None else str(value)


def access(event: Event) -> str:
    """What a one-sided access is: a `write`, or a `read` into its reader's page."""
    return str(event.data.get("op", "write"))


def _access(event: Event) -> str:
    """A one-sided access with the page that it changes."""
    return f"a {access(event)} of {who(event)} {'into' if access(event) == 'read' else 'to'} {ticket(event)}"


def _named(data: dict[str, Any]) -> str:
    """The source pages in a reference."""
    pages = [int(page) for page, _ in data["reference"]["pages"]]
    return f"page{'s' if len(pages) > 1 else ''} {listed(pages)}"


def thing(event: Event) -> str:
    """What a gate stopped or let go: a write with its destination, or a message."""
    if event.page is not None:
        return _access(event)
    kind = event.data.get("type")
    if kind and "of" in event.data:
        return f"a copy of the message {kind!r} of {who(event)}"
    if kind:
        return f"the message {kind!r} of {who(event)}"
    return f"{event.data.get('what', 'something')} of {who(event)}" if event.request else str(event.data.get("what"))


def phrase(event: Event) -> str:
    """The event in words, without its instance; a kind without a phrase says its name and data."""
    teller = _PHRASES.get(event.kind)
    if teller is None:
        return plain(event)
    return teller(event, event.data)


def told(event: Event) -> str:
    """The event in words with the process that recorded it: `decode: r1 timed out after 10,001 ms`."""
    return f"{event.instance}: {phrase(event)}"


def deed(event: Event) -> str:
    """What a guard refuses, as a deed: `to free`, `to commit`; other events by their name."""
    return _DEEDS.get(str(event.data.get("refuses")), str(event.data.get("refuses")))


_DEEDS = {
    "page-free": "to free",
    "committed": "to commit",
    "page-private": "to give away",
    "page-shared": "to publish",
    "read": "to read",
}


def plain(event: Event) -> str:
    """The kind, whom it concerns and its data, as they are."""
    subject = " ".join(part for part in (who(event) if event.request else "", ticket(event)) if part)
    return " ".join(part for part in (event.kind, subject, shown(event.data)) if part)


def _moved(state: str) -> Callable[[Event, dict[str, Any]], str]:
    def tell(event: Event, data: dict[str, Any]) -> str:
        why = f" ({data['why']})" if data.get("why") else ""
        owner = f" of {who(event)}" if event.request else ""
        return f"{ticket(event)}{owner}: {data.get('from')} -> {state}{why}"

    return tell


def _completed(event: Event, data: dict[str, Any]) -> str:
    code = f" (code {data['code']})" if data.get("code") else ""
    posted = count_of(_length(data.get("writes")), "work request")
    return f"the transport's API returned {data.get('status')}{code} for {posted}"


def _released(event: Event, data: dict[str, Any]) -> str:
    changed = f" with byte {data['corrupt']:,} changed" if data.get("corrupt") is not None else ""
    if data.get("tear") is not None:
        changed = f" as far as byte {data['tear']:,}"
    return f"lets {thing(event)} go on{changed}"


def _dropped(event: Event, data: dict[str, Any]) -> str:
    if data.get("tear") is not None:
        return f"{thing(event)} broke off after {size(int(data['tear']))}, and was lost"
    how = " with a byte changed" if data.get("corrupt") is not None else ""
    return f"{thing(event)} was lost{how}"


def _killed(event: Event, data: dict[str, Any]) -> str:
    known = "it had reported all that it did" if data.get("idle") else "it was at work: what it did last is not known"
    return f"{data.get('peer')} (process {data.get('pid')}) is dead; {known}"


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (list, tuple, str)) else int(value or 0)


def _scanned(data: dict[str, Any]) -> str:
    foreign = data.get("foreign")
    found = f"page(s) {listed(foreign)} hold another run's bytes" if foreign else "nobody else's bytes are there"
    return f"looks at the {count_of(_length(data.get('pages')), 'page')} that nobody was given: {found}"


_AS = {"completed": "has completed", "lost": "was lost"}


def _share(data: dict[str, Any]) -> str:
    """`layer 1`, or `scales layer 1 rank 0`."""
    stream = f"{data['stream']} " if "stream" in data else ""
    rank = f" rank {data['rank']}" if "rank" in data else ""
    return f"{stream}layer {data.get('layer')}{rank}"


_PHRASES: dict[str, Callable[[Event, dict[str, Any]], str]] = {
    "run-started": lambda e, d: f"run {d.get('run')} starts with seed {d.get('seed')}",
    "phase": lambda e, d: f"phase: {d.get('phase')}",
    "step": lambda e, d: f"step {d.get('n')}: {d.get('text')}",
    "step-done": lambda e, d: f"step {d.get('n')} is over: {d.get('why')}",
    "blocked": lambda e, d: f"step {d.get('n')} was stopped by the guard {d.get('guard')}",
    "gave-up": lambda e, d: f"step {d.get('n')} cannot go on, {d.get('why')}: {d.get('what')}",
    "died": lambda e, d: f"{d.get('peer')} died during {d.get('doing')}",
    "halted": lambda e, d: f"step {d.get('n')} ends at the first violation of the ledger, as was asked",
    "stopped": lambda e, d: f"{d.get('peer')} (process {d.get('pid')}) stands still, with all its threads",
    "continued": lambda e, d: f"{d.get('peer')} (process {d.get('pid')}) goes on",
    "killed": _killed,
    "restarted": lambda e, d: (
        f"process {d.get('pid')} takes the place of {d.get('peer')} ({d.get('was_pid')}) at {d.get('segment')}"
    ),
    "unmapped": lambda e, d: f"has nothing mapped at {size(int(d['bytes']))} of its registered memory any more",
    "unregistered": lambda e, d: f"takes {size(int(d['bytes']))} of its memory back from the transport",
    "region": lambda e, d: f"registers {size(int(d['bytes']))} with the transport: {_share(d)}",
    "offered": lambda e, d: f"{who(e)} arrives from the router: {d.get('prompt_tokens')} prompt tokens",
    "scan": lambda e, d: _scanned(d),
    "slot-taken": lambda e, d: f"{who(e)} has metadata slot {d.get('slot')}",
    "slot-freed": lambda e, d: f"metadata slot {d.get('slot')} of {who(e)} is free again",
    "slot-read": lambda e, d: (
        f"{who(e)} takes token {d.get('token')} from metadata slot {d.get('slot')}, written for"
        f" {request_name(d.get('owner'), d.get('owner_attempt'))}"
    ),
    "page-private": lambda e, d: f"{ticket(e)} goes to {who(e)}",
    "page-draining": _moved("DRAINING"),
    "page-quarantined": _moved("QUARANTINED"),
    "page-free": _moved("FREE"),
    "granted": lambda e, d: f"{ticket(e)} of {who(e)} is granted to {d.get('to')}",
    "grant-closed": lambda e, d: f"the grant on {ticket(e)} is closed: {d.get('evidence')}",
    "refused": lambda e, d: f"{d.get('guard')} refuses {deed(e)} {ticket(e) or who(e)}: {d.get('why')}",
    "sent": lambda e, d: f"sends {d.get('type')!r} of {who(e)} to {d.get('to')}",
    "received": lambda e, d: f"receives {d.get('type')!r} of {who(e)} from {d.get('from')}",
    "ignored": lambda e, d: f"ignores {d.get('type')!r} of {who(e)}: {d.get('why')}",
    "submitted": lambda e, d: f"{who(e)} arrives: {d.get('prompt_tokens')} prompt tokens",
    "grown": lambda e, d: f"page {e.page} gen {e.gen} goes to {who(e)} as well, for token {d.get('token')}",
    "preempted": lambda e, d: f"{who(e)} gives its pages up for {d.get('needed_by')} ({d.get('answered')} tokens on)",
    "batched": lambda e, d: f"{who(e)} is in step {d.get('step')}, with {(d.get('size') or 1) - 1} other(s)",
    "retried": lambda e, d: f"{who(e)} goes to {d.get('to')} in place of {d.get('before')}, into the same pages",
    "queued": lambda e, d: f"{who(e)} waits: it needs {d.get('needs')} pages and {d.get('free')} are free",
    "retracted": lambda e, d: f"{who(e)} gives its pages back and waits again, as attempt {d.get('again')}",
    "requeued": lambda e, d: f"{who(e)} gives its pages back and waits again, as the same attempt",
    "forwarded": lambda e, d: f"{who(e)} arrives with its reference",
    "referenced": lambda e, d: f"{who(e)} is computed, and its client gets a reference to {_named(d)}",
    "lease-expired": lambda e, d: f"the lease of {who(e)}'s pages ends: {d.get('lease_ms', 0):,} ms without news",
    "admitted": lambda e, d: f"{who(e)} has its pages",
    "accepted": lambda e, d: f"takes up {who(e)}",
    "committed": lambda e, d: f"{who(e)}: the KV is taken as complete",
    "read": lambda e, d: f"attention reads the pages of {who(e)} for token {d.get('token')}",
    "finished": lambda e, d: f"{who(e)} answers {shown(d.get('tokens'))}",
    "timed-out": lambda e, d: f"{who(e)} timed out after {d.get('waited_ms', 0):,} ms",
    "aborted": lambda e, d: f"the client gave up on {who(e)}",
    "abort-ignored": lambda e, d: f"ignores the abort of {who(e)}: {d.get('why')}",
    "failed": lambda e, d: f"{who(e)} failed: {d.get('why')}",
    "attempt-ended": lambda e, d: f"is done with {who(e)}: {d.get('why')}",
    "posted": lambda e, d: f"posts {_access(e)}, {_share(d)}, {size(d['bytes'])}",
    "completed": _completed,
    "look": lambda e, d: f"looks at {ticket(e)}, layer {d.get('layer')}: {d.get('why')}",
    "chunks": lambda e, d: (
        f"takes apart what it saw as {d.get('fingerprint')}: {_length(d.get('chunks')) // 16} chunks"
    ),
    "pool": lambda e, d: (
        f"has a pool of {d.get('pages')} pages, {d.get('layers')} layers of {size(int(d['page_bytes']))}"
    ),
    "armed": lambda e, d: f"watches for {d.get('hold')}",
    "held": lambda e, d: f"holds {thing(e)}",
    "released": _released,
    "page-shared": _moved("SHARED"),
    "page-dup": _moved("DUP"),
    "published": lambda e, d: f"{who(e)}: {count_of(_length(d.get('keys')), 'page')} can be found in the prefix cache",
    "cache-hit": lambda e, d: f"{who(e)} takes {ticket(e)} from the prefix cache",
    "reference-dropped": lambda e, d: f"{who(e)} is done with {ticket(e)}; {d.get('references')} still read it",
    "ledger-violation": lambda e, d: f"{d.get('transition')} of {ticket(e)} by {d.get('caller')}: {d.get('rule')}",
    "landed": lambda e, d: f"{thing(e)} landed",
    "torn": lambda e, d: f"{thing(e)} broke off: its first {size(int(d['tear']))} landed, the rest is lost",
    "unreadable": lambda e, d: f"is told something that is no message: {d.get('why')}",
    "delivered": lambda e, d: f"{thing(e)} was delivered",
    "dropped": _dropped,
    "unlanded": lambda e, d: f"{thing(e)} could not be delivered: {d.get('why')}",
    "passed": lambda e, d: f"lets {thing(e)} pass",
    "withheld": lambda e, d: f"{thing(e)} landed, and its writer is not told",
    "told": lambda e, d: f"the writer of {thing(e)} is told that it {_AS[d['as']]}",
    "work-held": lambda e, d: f"{d.get('op')} of {who(e)} is stopped on its stream",
    "work-released": lambda e, d: f"{d.get('op')} of {who(e)} may start",
    "work-done": lambda e, d: f"{d.get('op')} of {who(e)} has run, late",
    "lost": lambda e, d: f"lost {d.get('count')} events",
}

"""The short words in a diagram: which events share a label, and what it says."""

from __future__ import annotations

from racelab.evidence.events import Event
from racelab.report.words import access, count_of, deed, listed

_UNLABELLED = frozenset(["received", "released", "landed", "delivered", "held"])
_STEP_KINDS = ("step", "step-done", "blocked", "gave-up", "died", "phase")


def tag(event: Event) -> str:
    """`r1`, or `r1 #2` for its second attempt."""
    return (
        f"{event.request} #{event.attempt}" if event.attempt is not None and event.attempt > 1 else str(event.request)
    )


def group_key(event: Event) -> object | None:
    """Neighbours in a lane with the same key share one label; None for an event without one."""
    if event.kind in _UNLABELLED:
        return None
    if event.kind in _STEP_KINDS:
        return (event.kind, event.seq)
    data = event.data
    if event.kind == "sent":
        return (event.kind, event.request, event.attempt, data.get("type"), data.get("to"))
    if event.kind == "completed":
        return (event.kind, event.request, data.get("status"))
    return (event.kind, event.request, event.attempt, data.get("guard"), data.get("from"), data.get("why"))


def step_lines(event: Event, cause: Event | None) -> list[str]:
    """What stands in the column of steps; `cause` let a step go. Wrapped by whoever places it."""
    data = event.data
    match event.kind:
        case "step":
            return [str(data["text"])]
        case "step-done" if cause is not None and cause.instance != event.instance:
            return [f"{cause.instance}: {short(cause)}"]
        case "step-done":
            return [str(data["why"])]
        case "blocked":
            return [f"stopped: {data['guard']} refused"]
        case "gave-up":
            return [f"gave up, {data['why']}: {data['what']}"]
        case "died":
            return [f"{data['peer']} died"]
    return []


def group_label(events: list[Event], chars: int) -> str:
    """One short line for the whole group."""
    return clipped(_label(events), chars)


def short(event: Event) -> str:
    """The event in two or three words."""
    data = event.data
    match event.kind:
        case "armed":
            return f"watches for {data['hold']}"
        case "held" | "released" | "landed" | "torn" | "delivered" | "dropped" | "withheld" | "told":
            what = access(event) if event.page is not None else f"{data.get('type', 'message')}"
            where = f", page {event.page}" if event.page is not None else ""
            return f"{event.kind} {what} of {tag(event)}{where}"
        case "received":
            return f"{data['type']} of {tag(event)} came"
    return _label([event])


def clipped(text: str, chars: int) -> str:
    """The text, with an ellipsis where it is cut."""
    return text if len(text) <= chars else text[: chars - 1].rstrip() + "…"


def _label(events: list[Event]) -> str:
    event = events[0]
    data = event.data
    match event.kind:
        case "phase":
            return str(data.get("phase"))
        case "submitted":
            return f"{tag(event)} arrives"
        case "queued":
            return f"{tag(event)} waits for pages"
        case "accepted":
            return f"takes up {tag(event)}"
        case "attempt-ended":
            return f"done with {tag(event)}"
        case "sent":
            return f"{data['type']} {tag(event)}{_times(events)}"
        case "ignored":
            return f"ignores {data['type']} {tag(event)}"
        case "posted":
            return f"posts {count_of(len(events), access(event))} of {tag(event)}"
        case "completed":
            return f"API: {data.get('status')}"
        case "page-private":
            return f"{tag(event)} takes {_pages(events)}"
        case "page-free":
            return f"{_pages(events)} free"
        case "page-shared":
            return f"publishes {_pages(events)} of {tag(event)}"
        case "page-dup":
            return f"{_pages(events)} of {tag(event)}: a duplicate"
        case "cache-hit":
            return f"{tag(event)} finds {_pages(events)}"
        case "page-draining":
            return f"{_pages(events)} draining"
        case "page-quarantined":
            return f"{_pages(events)} quarantined"
        case "grant-closed":
            return f"stop evidence, {_pages(events)}"
        case "refused":
            return f"refuses {deed(event)}{_times(events)}"
        case "read":
            return f"reads the KV of {tag(event)}{_times(events)}"
        case "committed":
            return f"takes the KV of {tag(event)}"
        case "finished":
            return f"{tag(event)} answers"
        case "timed-out":
            return f"{tag(event)} timed out"
        case "retracted":
            return f"{tag(event)} retracted"
        case "requeued":
            return f"{tag(event)} waits again"
        case "aborted":
            return f"{tag(event)} aborted"
        case "failed":
            return f"{tag(event)} failed"
        case "dropped":
            return f"{count_of(len(events), 'thing')} of {tag(event)} lost"
        case "withheld":
            return f"the news of {count_of(len(events), 'write')} of {tag(event)} is kept back"
        case "told":
            return f"the writer of {tag(event)} is told"
        case "unlanded":
            return f"{tag(event)}: not delivered"
    return event.kind


def _times(events: list[Event]) -> str:
    return f" x{len(events)}" if len(events) > 1 else ""


def _pages(events: list[Event]) -> str:
    pages = list(dict.fromkeys(event.page for event in events))
    return f"page{'s' if len(pages) > 1 else ''} {listed(pages)}"

"""Could a real network do that? The label of a run, worked out from its virtual time.

Every hold lasts from the post of a write (or the sending of a message) to its landing. That span
must fit the mechanism that the hold names, and the transport's own deadlines: where virtual time
passes one, the deadline's effect has to be in the history too.

    default-timers                                       reachable with everybody's defaults
    shortened: request-timeout-ms 10000 -> 500           a timer was set below its default
    synthetic: hold w1 lasts 40,000 ms; ...              no network does that (or: changes a byte)
"""

from __future__ import annotations

from bisect import bisect_right

from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.writes import Write, Writes
from racelab.scenario import Lab
from racelab.scenario.steps import Armed

WHAT_CHECKSUMS_DO = "every link and TCP itself find a single changed byte, and only hosts and middleboxes can leave one"
"""A one's complement sum differs for every single changed byte (RFC 1071). What changes bytes in memory,
before the sum is taken or after it was compared, is not found (Stone and Partridge, SIGCOMM 2000)."""

WHAT_QOS_0_DOES = "a broker delivers what is sent at QoS 0 once at most (MQTT 3.1.1, 4.3.1)"

WHAT_A_STATUS_SAYS = (
    "over TCP the target itself sends the status once it has them; what is stood in for is memory behind a NIC or a "
    "GPU in which an acknowledged write is not visible yet"
)

DEFAULT_TIMERS = "default-timers"
SHORTENED = "shortened"
SYNTHETIC = "synthetic"

TRANSPORT_DEADLINES_MS: dict[str, dict[str, int]] = {
    "tcp": {"MC_TRANSFER_TIMEOUT": 30_000, "MC_TCP_PROGRESS_TIMEOUT_SEC": 30_000},
    "rdma": {"MC_TRANSFER_TIMEOUT": 30_000},
}
"""After which the transport gives a write up, by transport: Mooncake 0.3.13's defaults. Each is one
environment variable (in seconds there); the effect of either is a completion that is not `ok`."""

ENGINE_TIMERS = (
    "request_timeout_ms",
    "drain_timeout_ms",
    "receive_timeout_ms",
    "source_hold_ms",
    "bootstrap_timeout_ms",
)
"""The scenario's timers that have a default of the engine's own to be compared with."""


def label(history: History) -> str:
    """The label of the whole run: the worst of its holds, else its shortened timers, if any."""
    holds = history.header.scenario.holds().values()
    labels = [hold_label(history, hold) for hold in holds]
    labels += [process_label(history, fault) for fault in history.header.scenario.process_faults()]
    synthetic = [one for one in labels if one.startswith(SYNTHETIC)]
    if synthetic:
        return synthetic[0]
    parts = [*history.header.shortened, *_shortened_timers(history.header.scenario.lab)]
    parts += [one.removeprefix(f"{SHORTENED}: ") for one in labels if one.startswith(SHORTENED)]
    return f"{SHORTENED}: {', '.join(dict.fromkeys(parts))}" if parts else DEFAULT_TIMERS


def hold_label(history: History, hold: Armed) -> str:
    """The label of one hold, by the spans of what it held and by what was done to it."""
    changed = [event for event in history.by_kind["released"] if event.data["hold"] == hold.id]
    if any(event.data.get("corrupt") is not None for event in changed):
        return f"{SYNTHETIC}: hold {hold.id} changes a byte; {WHAT_CHECKSUMS_DO}"
    if hold.action == "pass":
        return DEFAULT_TIMERS
    if hold.action == "early-success":
        return f"{SYNTHETIC}: hold {hold.id} reports success before the bytes have landed; {WHAT_A_STATUS_SAYS}"
    if any(event.data.get("qos") == 0 for event in history.by_kind["held"] if _under(event, hold)):
        return f"{SYNTHETIC}: hold {hold.id} repeats a message; {WHAT_QOS_0_DOES}"
    mechanism = history.header.mechanisms.get(hold.id)
    overtaken = sum(event.data.get("overtaken", 0) for event in history.by_kind["delivered"] if _under(event, hold))
    if overtaken:
        passed = f"{overtaken} later message(s) of its topic pass"
        return f"{SYNTHETIC}: hold {hold.id} lets {passed}, and MQTT keeps their order"
    shortened: list[str] = []
    for held in history.of("held", "withheld", "work-held"):
        if not _under(held, hold):
            continue
        lasted_ms = _lasted_ms(history, held)
        if mechanism is not None and lasted_ms > mechanism["bound_ms"]:
            name, bound_ms = mechanism["mechanism"], mechanism["bound_ms"]
            return f"{SYNTHETIC}: hold {hold.id} lasts {lasted_ms:,} ms; {name} lasts {bound_ms:,} ms at most"
        write = history.derived(Writes).by_id.get(held.data["what"])
        if write is None:
            continue
        for deadline, default_ms in TRANSPORT_DEADLINES_MS.get(history.header.transport, {}).items():
            if lasted_ms >= default_ms and not _gave_up(write):
                return (
                    f"{SYNTHETIC}: hold {hold.id} lasts {lasted_ms:,} ms, past {deadline} "
                    f"({default_ms:,} ms), and the write is not given up"
                )
        if held.kind == "held" and _gave_up_early(history, write, lasted_ms):
            shortened.append(f"MC_TRANSFER_TIMEOUT 30000 -> {max(lasted_ms, 1)}")
    return f"{SHORTENED}: {shortened[0]}" if shortened else DEFAULT_TIMERS


def process_label(history: History, fault: str) -> str:
    """The label of what a step did to a process: a stop lasts no longer than its mechanism says."""
    mechanism = history.header.mechanisms.get(fault)
    clock = history.derived(VirtualTime)
    for stopped in history.by_kind["stopped"]:
        if stopped.data["fault"] != fault or mechanism is None:
            continue
        ends = (event for event in history.of("continued", "killed") if event.data["peer"] == stopped.data["peer"])
        until = next((event.hlc for event in ends if event.hlc > stopped.hlc), 1 << 64)
        lasted_ms = clock.at(until) - clock.at(stopped.hlc)
        if lasted_ms > mechanism["bound_ms"]:
            name, bound_ms = mechanism["mechanism"], mechanism["bound_ms"]
            return f"{SYNTHETIC}: {fault} lasts {lasted_ms:,} ms; {name} lasts {bound_ms:,} ms at most"
    return DEFAULT_TIMERS


def _under(event: Event, hold: Armed) -> bool:
    return bool(event.data["hold"] == hold.id)


def _shortened_timers(lab: Lab) -> list[str]:
    defaults = Lab()
    return [
        f"{timer.replace('_', '-')} {getattr(defaults, timer)} -> {getattr(lab, timer)}"
        for timer in ENGINE_TIMERS
        if getattr(lab, timer) is not None and getattr(lab, timer) < getattr(defaults, timer)
    ]


def _lasted_ms(history: History, held: Event) -> int:
    """Virtual time from the post or the sending of a held thing to where it went on, or to the end."""
    what = held.data["what"]
    write = history.derived(Writes).by_id.get(what)
    start = write.posted if write is not None else history.derived(_sent).get(what, held)
    over = history.derived(_over).get(what)
    clock = history.derived(VirtualTime)
    return max(clock.at(over.hlc if over is not None else 1 << 64) - clock.at(start.hlc), 0)


def _sent(history: History) -> dict[str, Event]:
    return {event.data["id"]: event for event in history.by_kind["sent"]}


def _over(history: History) -> dict[str, Event]:
    """Where each held thing went on or was lost."""
    ends = history.of("released", "work-released", "landed", "torn", "delivered", "dropped", "unlanded", "told")
    return {event.data["what"]: event for event in ends}


def _gave_up(write: Write) -> bool:
    return write.completed is not None and not write.succeeded


def _gave_up_early(history: History, write: Write, lasted_ms: int) -> bool:
    """A held write that failed before its default deadline, and not by a reset: the deadline was set lower."""
    if write.held is not None and write.held.data.get("action") == "ghost":
        return False
    if not _gave_up(write) or write.completed is None or write.lost is not None:
        return False
    let_go = write.released is None or write.completed.hlc < write.released.hlc
    deadlines = TRANSPORT_DEADLINES_MS.get(history.header.transport, {})
    return let_go and bool(deadlines) and lasted_ms < min(deadlines.values())


class VirtualTime:
    """The lab's virtual clock along the merged history. It is one clock: every instance advances alike."""

    def __init__(self, history: History) -> None:
        self._marks: list[int] = []
        self._values: list[int] = []
        now_ms = 0
        for event in history.events:
            if event.clock_ms > now_ms:
                now_ms = event.clock_ms
                self._marks.append(event.hlc)
                self._values.append(now_ms)

    def at(self, hlc: int) -> int:
        """Milliseconds at a point of the merge order."""
        index = bisect_right(self._marks, hlc) - 1
        return self._values[index] if index >= 0 else 0

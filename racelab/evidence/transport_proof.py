"""Whether a gate's own counts and the kernel's or the device's prove what carried the writes.

Each question is answered with what is missing or contradicts, in words; None if nothing does.
"""

from __future__ import annotations

from racelab.evidence.absence import uncounted
from racelab.evidence.events import Event
from racelab.evidence.history import History
from racelab.evidence.writes import Writes


def counted(history: History, gate: str) -> Event | None:
    """A gate's last word on its byte counts."""
    found = [event for event in history.by_kind["counted"] if event.data["gate"] == gate]
    return found[-1] if found else None


def counts_agree(event: Event | None) -> bool:
    """Whether each count that has a kernel's beside it equals it; of requests that the responder or the queue pair
    refused (`_refused`, where a wire counts packets) any part may have left."""
    counts = event.data["counts"] if event is not None else {}
    unknown = {name: value - counts.get(f"{name}_kernel", value) for name, value in counts.items()}
    return all(0 <= more <= counts.get(f"{name}_refused", 0) for name, more in unknown.items())


def count_problems(gate: str, event: Event) -> list[str]:
    """What in a gate's counts says that something passed that it does not know."""
    counts = event.data["counts"]
    wrong = []
    if not counts_agree(event):
        wrong.append(f"the {gate} gate's counts differ from the kernel's: {counts}")
    passed = [f"{counts[name]} {name} write(s) passed the {gate} gate" for name in _STRANGE if counts.get(name)]
    return wrong + passed


_STRANGE = ("unannounced", "ambiguous")


def transport_problem(history: History) -> str | None:
    """Why it is not proven that the writes went by the transport that is claimed, and by nothing else."""
    return _devices_problem(history) if history.header.transport == "rdma" else _sockets_problem(history)


def _devices_problem(history: History) -> str | None:
    """Mooncake falls back to TCP without a word: only the device's own count shows what it wrote."""
    rails = {event.instance: event for event in history.by_kind["rails"]}
    for writer in sorted({write.posted.instance for write in history.derived(Writes)}):
        if writer not in rails:
            return f"{writer} gave no count of its RDMA devices"
        landed, expected = rails[writer].data["landed"], rails[writer].data["expected"]
        failed = _failed_bytes(history, writer)  # any part of them may have come to the responder, which refused it
        if landed is None:
            return f"nothing counts what {writer}'s RDMA devices wrote for it"
        at_most = landed if uncounted(history) else expected + failed  # what went to a dead process came to nobody
        if not expected <= landed <= at_most:
            more = f", and its failed requests {failed:,}" if failed else ""
            return f"{writer}'s RDMA devices wrote {landed:,} bytes, its completed writes are {expected:,}{more}"
    return None


def _failed_bytes(history: History, writer: str) -> int:
    """Of requests that left a writer's devices and ended in an error."""
    requests = (event.data for event in history.by_kind["work-request"] if event.data["owner"] == writer)
    return sum(data["bytes"] for data in requests if data["move"] == "completed" and data["status"])


def _sockets_problem(history: History) -> str | None:
    direct = (write for write in history.derived(Writes) if write.posted.data["lane"] == "direct")
    writers = {write.posted.instance for write in direct}
    sockets = {event.instance: event for event in history.by_kind["sockets"]}
    for writer in sorted(writers):
        if writer not in sockets:
            return f"{writer} gave no count of its data connections"
    for event in sockets.values():
        acked, expected = event.data["acked"], event.data["expected"]
        if acked is None:
            return f"the kernel does not tell what went over {event.instance}'s data connections"
        if acked != expected:
            return f"{event.instance}'s data connections carried {acked:,} bytes, its writes are {expected:,}"
    return None

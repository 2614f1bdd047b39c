"""What a command leaves behind: processes, ports, shared memory, temporary folders."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

SETTLE_BOUND_S = 15.0


@dataclass(frozen=True)
class Traces:
    """A snapshot of what a lab could leave."""

    processes: frozenset[str]
    ports: frozenset[str]
    memory: frozenset[str]
    folders: frozenset[str]

    def beyond(self, before: Traces) -> dict[str, list[str]]:
        """What is here and was not before."""
        kinds = ("processes", "ports", "memory", "folders")
        fresh = {kind: sorted(getattr(self, kind) - getattr(before, kind)) for kind in kinds}
        return {kind: found for kind, found in fresh.items() if found}


def look() -> Traces:
    """Take a snapshot of this machine."""
    return Traces(
        processes=frozenset(_processes()),
        ports=frozenset(_listening()),
        memory=frozenset(os.listdir("/dev/shm")),
        folders=frozenset(name for name in os.listdir(tempfile.gettempdir()) if name.startswith(("rl-", "ray"))),
    )


def left_since(before: Traces) -> dict[str, list[str]]:
    """What is left of what came after `before`; polls until nothing is, up to a bound."""
    deadline = time.monotonic() + SETTLE_BOUND_S
    while (left := look().beyond(before)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def _processes() -> list[str]:
    """`pid command` of every live process that could be ours."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = folder.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if any(word in command for word in ("racelab", "injectors.", "ray", "gcs_server")) and "pytest" not in command:
            found.append(f"{folder.name} {command[:120]}")
    return found


def _listening() -> list[str]:
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return [row.split()[1] for row in rows if row.split()[3] == "0A"]

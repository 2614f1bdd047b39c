"""Which process a scenario's steps may act on, and what they leave it in: running, stopped or dead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from racelab.documents import nearest

FREEZE = "frozen-process"
CRASH = "crash"
"""The mechanisms of a stop and of a kill if a scenario names none (injectors/process.py has them)."""

_FROM = {"stop": "running", "continue": "stopped", "restart": "dead", "unregister": "running", "unmap": "running"}
_TO = {
    "stop": "stopped",
    "continue": "running",
    "kill": "dead",
    "restart": "running",
    "unregister": "running",
    "unmap": "running",
}


class Condition:
    """The condition of each process along a schedule: those of the system under test."""

    def __init__(self, instances: Iterable[str]) -> None:
        self.instances = list(instances)
        self._is = dict.fromkeys(self.instances, "running")

    def after(self, verb: str, instance: str) -> Iterator[str]:
        """A step acts on a process; yields why it cannot."""
        now = self._is.get(instance)
        if now is None:
            yield f"no process {instance!r}{nearest(instance, self.instances)}"
            return
        if now == "dead" and verb == "kill":
            yield f"{instance} is dead already"
        elif now != _FROM.get(verb, now):
            yield f"{verb}: {instance} is {now}, and must be {_FROM[verb]}"
        self._is[instance] = _TO[verb]

    def asked(self, instance: str, *, stopped: str = "") -> Iterator[str]:
        """A step asks something of a process; yields why nobody takes it. `stopped`: what to do if it stands still."""
        now = self._is.get(instance)
        if now == "dead":
            yield f"{instance} is dead here: restart it first"
        elif now == "stopped" and stopped:
            yield f"{instance} is stopped here, and takes no hold: {stopped}"

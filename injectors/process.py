"""Process faults: an instance stalls and goes on, or dies.

    python -m injectors.process --hub HOST:PORT --instance process

It runs beside the instances and signals them by id. An id is only believed if the process that has
it was started as that instance of a lab (its environment says so), and it is held as a descriptor from then on
(pidfd_open(2)), so that a process that gets the same id later is never meant. Each command returns once
/proc shows what was asked for: every thread stopped, every thread going again, or the process gone.
Whatever is stopped when the conductor goes away is let go.

An instance of a cluster with a machine is two processes: the engine here, and its agent there with the memory and
Mooncake. A fault takes both: the machine's supervisor signals the agent, which it has started itself.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from injectors import entry
from racelab.errors import BoundError, LabError
from racelab.evidence.recorder import Recorder
from racelab.gates import INSTANCE_VARIABLE, Injector, Mechanism
from racelab.vm.client import Supervisor, machine

SIGNAL_BOUND_S = 10.0
POLL_S = 0.0005
"""Between two looks at /proc, which cannot be waited for. It orders nothing."""

INJECTOR = Injector(
    name="process",
    subject="process",
    module="injectors.process",
    means="signals to an instance's process: SIGSTOP, SIGCONT, SIGKILL",
    stage="the whole process",
    payload="at-release",
    mechanisms={
        "frozen-process": Mechanism(
            means=(
                "nothing of the process runs while its kernel and its NIC go on: a frozen container, a paused "
                "virtual machine, swapping, a debugger. What watches over containers ends one that does not answer, "
                "by default after 3 probes 10 s apart; without a liveness probe there is no bound"
            ),
            bound_ms=30_000,
            source="Kubernetes, Configure Liveness, Readiness and Startup Probes: periodSeconds 10, failureThreshold 3",
        ),
        "crash": Mechanism(
            means=(
                "the process is gone at once: killed for memory, a fault, an operator. Its kernel ends its queue "
                "pairs, closes its sockets, and still sends what it had taken, for tcp_orphan_retries (8) "
                "retransmissions"
            ),
            bound_ms=102_200,
            source="signal(7), SIGKILL; Linux Documentation/networking/ip-sysctl.rst, tcp_orphan_retries",
        ),
    },
)


class Instance:
    """One process of the lab."""

    def __init__(self, name: str, pid: int) -> None:
        try:
            self._descriptor = os.pidfd_open(pid)
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError as error:
            raise LabError(f"{name} has no process {pid} on this machine: {error.strerror}") from None
        if f"{INSTANCE_VARIABLE}={name}".encode() not in environment:
            os.close(self._descriptor)
            raise LabError(f"process {pid} of this machine is not {name} of a lab, and is left alone")
        self.name = name
        self.pid = pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process and to no other."""
        try:
            signal.pidfd_send_signal(self._descriptor, number)
        except ProcessLookupError:
            raise LabError(f"{self.name} ({self.pid}) has ended already") from None

    def threads(self) -> list[str]:
        """The state of each thread, as in proc_pid_stat(5)."""
        states = []
        for stat in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            try:
                states.append(_fields(stat)[0])
            except OSError:
                continue  # it has ended meanwhile
        return states

    def wait_for(self, done: Callable[[list[str]], bool], what: str) -> list[str]:
        """Wait until its threads' states are as `done` says; those states.

        Raises:
            BoundError: they are not within the bound.
        """
        deadline = time.monotonic() + SIGNAL_BOUND_S
        while not done(states := self.threads()):
            if time.monotonic() > deadline:
                raise BoundError(f"waited {SIGNAL_BOUND_S:.0f} s for {self.name} to {what}: {''.join(states)}")
            time.sleep(POLL_S)
        return states

    def wait_gone(self) -> int | None:
        """Wait for its end; the status that it leaves for its parent (waitpid(2)), if that has not taken it yet."""
        if not select.select([self._descriptor], [], [], SIGNAL_BOUND_S)[0]:
            raise BoundError(f"waited {SIGNAL_BOUND_S:.0f} s for {self.name} ({self.pid}) to end")
        try:
            fields = _fields(Path(f"/proc/{self.pid}/stat"))
        except OSError:
            return None
        return int(fields[-1])

    def close(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)


def _fields(stat: Path) -> list[str]:
    """What follows the name in /proc/PID/stat: the state first, the exit status last."""
    return stat.read_text().rpartition(")")[2].split()


class Agent:
    """The part of an instance that is in the machine; None stands for an instance that has no such part."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._supervisor = Supervisor(machine())

    def send(self, number: signal.Signals) -> dict[str, Any]:
        """Signal it; what of it there is to record, once that has taken effect.

        Raises:
            LabError: no such agent runs there, or it does not follow.
        """
        said = self._supervisor.ask("signal", pid=self.pid, signal=number.name)
        return {"agent": self.pid} | {f"agent_{name}": said[name] for name in ("threads", "state", "status")}

    def close(self) -> None:
        """Let go of it."""
        self._supervisor.close()


class Faults:
    """The commands; each is answered when it has taken effect."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._stopped: dict[str, tuple[Instance, Agent | None]] = {}

    def handlers(self) -> dict[str, Callable[..., Any]]:
        """What the conductor may ask, see racelab.gates."""
        return {"stop": self.stop, "continue": self.resume, "kill": self.kill, "reset": self.reset}

    def stop(self, fault: str, peer: str, pid: int, agent: int | None = None) -> None:
        """SIGSTOP; over when every thread is stopped."""
        instance, beyond = self._stopped[peer] = Instance(peer, pid), Agent(agent) if agent is not None else None
        instance.send(signal.SIGSTOP)
        states = instance.wait_for(lambda states: bool(states) and set(states) <= {"T", "t"}, "stop")
        there = beyond.send(signal.SIGSTOP) if beyond is not None else {}
        self._recorder.record("stopped", fault=fault, peer=peer, pid=pid, threads=len(states), state="T", **there)

    def resume(self, fault: str, peer: str, pid: int, agent: int | None = None) -> None:
        """SIGCONT; over when no thread is stopped any more."""
        instance, beyond = self._stopped.pop(peer)
        # Before the signal, as whatever the process does next is its effect.
        there: dict[str, Any] = {"agent": agent} if agent is not None else {}
        self._recorder.record("continued", fault=fault, peer=peer, pid=pid, threads=len(instance.threads()), **there)
        if beyond is not None:
            beyond.send(signal.SIGCONT)
            beyond.close()
        instance.send(signal.SIGCONT)
        instance.wait_for(lambda states: not set(states) & {"T", "t"}, "go on")
        instance.close()

    def kill(self, fault: str, peer: str, pid: int, idle: bool, agent: int | None = None) -> None:
        """SIGKILL, of a stopped process too; over when it is gone. `idle`: it had nothing to do and nothing to say."""
        if peer in self._stopped:
            instance, beyond = self._stopped.pop(peer)
        else:
            instance, beyond = Instance(peer, pid), Agent(agent) if agent is not None else None
            if beyond is not None:
                beyond.send(signal.SIGSTOP)  # it would end by itself, and not by the signal, once its engine is gone
        instance.send(signal.SIGKILL)
        status = instance.wait_gone()
        instance.close()
        there: dict[str, Any] = {}
        if beyond is not None:
            there = beyond.send(signal.SIGKILL)
            beyond.close()
        self._recorder.record("killed", fault=fault, peer=peer, pid=pid, status=status, idle=idle, **there)

    def reset(self, incarnation: int) -> dict[str, Any]:
        """Begin an incarnation; the processes that are still stopped."""
        self._recorder.incarnation = incarnation
        return {"held": [f"{name}, stopped" for name in self._stopped], "armed": 0}

    def close(self) -> None:
        """Let everything go that is stopped: a stopped process could not see that its lab has ended."""
        for both in self._stopped.values():
            for each in both:
                with suppress(LabError):  # it has ended
                    if each is not None:
                        each.send(signal.SIGCONT)


def main() -> None:
    """Parse the arguments, connect, and serve until the conductor is gone."""
    options = entry.parser("injectors.process", INJECTOR.means).parse_args()
    speaker = entry.Speaker(options.instance)
    faults = Faults(speaker.recorder)
    try:
        speaker.connect(options.hub, {}).serve(faults.handlers())
    finally:
        faults.close()


if __name__ == "__main__":
    entry.run(main)

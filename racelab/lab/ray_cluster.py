"""Ray places the instances and watches them; everything else has channels of its own.

A private Ray is started with a token of its own in the environment (never a file), in a temporary
folder that goes with it. A running Ray is joined by address and left as it was.
"""

from __future__ import annotations

import importlib
import logging
import os
import secrets
import shutil
import signal
import tempfile
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from racelab.errors import BoundError, LabError
from racelab.gates import INSTANCE_VARIABLE
from racelab.lab.cluster import Cluster
from racelab.lab.environment import environment
from racelab.lab.nursery import Nursery
from racelab.transport.mooncake import variables as transport_variables

# Ray reads its authentication mode once, when it is imported, and caches the token that it meets first.
_TOKEN = secrets.token_hex(32)
_AUTHENTICATION = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _TOKEN}
_QUIET = {"RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
with environment(_AUTHENTICATION if "RAY_AUTH_MODE" not in os.environ else {}):
    import ray
    from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

PLACE_BOUND_S = 60.0
END_BOUND_S = 10.0
RENEW_BOUND_S = 3.0
OBJECT_STORE_BYTES = 80 << 20


@ray.remote(num_cpus=0, max_restarts=0)
class InstanceActor:
    """The process of one instance, or the parent of one after the other."""

    def pids(self) -> list[int]:
        """The process ids of this, once it is up."""
        return [os.getpid()]

    def run(self, entry: str, name: str, options: dict[str, Any]) -> str | None:
        """Be the instance until the conductor hangs up; the reason if it could not."""
        module, _, function = entry.partition(":")
        try:
            getattr(importlib.import_module(module), function)(name, **options)
        except Exception as error:  # crosses the process boundary as one line
            return f"{type(error).__name__}: {error}"
        return None

    def prepare(self, entry: str) -> list[int]:
        """Have a process import what an instance needs; the ids of both."""
        self._nursery = Nursery(entry)
        return [os.getpid(), self._nursery.pid]

    def fork(self, role: str, options: dict[str, Any], variables: dict[str, str]) -> str | None:
        """Have that process fork an instance, and wait until it has ended; the reason if it could not start."""
        return self._nursery.fork(role, options, variables)


@dataclass(frozen=True)
class Placed:
    """An instance: its actor, what that will answer when the instance has ended, and its ids when it has begun."""

    actor: Any
    ended: Any
    pids: Any


class RayCluster:
    """The Ray side of a lab: `spawn` instances, `check` that none ended early, `close`.

    An actor whose instances are forked has one after the other of them; any other actor is its instance.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._folder: Path | None = None
        self._environment = ExitStack()
        self._group: PlacementGroup | None = None
        self._instances: dict[str, Placed] = {}
        self._parents: dict[str, Placed] = {}
        """by role, an actor that forks instances; what it answers to `ended` is of its last one"""

    def start(self) -> None:
        """Start a private Ray or join the one named, and reserve a bundle for each instance."""
        self._environment.enter_context(environment(_QUIET))
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
        on_terminate = signal.getsignal(signal.SIGTERM)
        if self._cluster.ray == "local":
            self._environment.enter_context(environment(_AUTHENTICATION))
            self._folder = Path(tempfile.mkdtemp(prefix="rl-"))
            resources: dict[str, float] = {}
            for place in self._cluster.instances.values():
                for name, amount in place.resources.items():
                    resources[name] = resources.get(name, 0) + amount
            ray.init(
                address="local",
                num_cpus=2,
                resources=resources,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                _temp_dir=str(self._folder),
                **quiet,
            )
        else:
            try:
                ray.init(address=self._cluster.ray, **quiet)
            except ConnectionError as error:
                raise LabError(
                    f"no Ray answers at {self._cluster.ray}: {error}", next="start it, or use `ray: local`"
                ) from None
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_terminate)  # Ray puts its own in its place
        _silence()
        bundles = [place.resources or {"CPU": 1.0} for place in self._cluster.instances.values()]
        self._group = placement_group(bundles, strategy="PACK" if self._cluster.ray == "local" else "SPREAD")
        if not self._group.wait(PLACE_BOUND_S):
            raise BoundError(
                f"Ray could not place {bundles} in {PLACE_BOUND_S:.0f} s",
                next="compare the resources in the cluster file with `ray status`",
            )

    def spawn(
        self, entry: str, role: str, options: dict[str, Any], variables: dict[str, str], *, forks: bool = False
    ) -> None:
        """Start the instance's process with these environment variables; it connects to the hub by itself.

        With `forks` it is a fork of one that has imported its entry, which is there from the first time on.
        """
        if forks:
            if role not in self._parents:
                actor = self._actor(role, {INSTANCE_VARIABLE: role})  # what /proc says of a fork is its parent's
                self._parents[role] = Placed(actor, None, actor.prepare.remote(entry))
            parent = self._parents[role]
            own = variables | self._cluster.place(role).environment
            self._instances[role] = replace(parent, ended=parent.actor.fork.remote(role, options, own))
        else:
            actor = self._actor(role, variables)
            pids = actor.pids.remote()
            self._instances[role] = Placed(actor, actor.run.remote(entry, role, options), pids)

    def _actor(self, role: str, variables: dict[str, str]) -> Any:
        assert self._group is not None, "start comes before spawn"
        place = self._cluster.place(role)
        there: dict[str, Any] = {}
        if role in self._cluster.instances:  # else it goes beside the others, and reserves nothing
            index = list(self._cluster.instances).index(role)
            bundle = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=index)
            there = {"resources": place.resources, "scheduling_strategy": bundle}
        return InstanceActor.options(  # type: ignore[attr-defined]  # ray.remote adds it
            **there,
            runtime_env={"env_vars": transport_variables(self._cluster.transport) | variables | place.environment},
        ).remote()

    def lose(self, role: str) -> None:
        """The end of this instance's process is wanted; `spawn` may start another in its place."""
        self._instances.pop(role, None)

    def check(self) -> None:
        """Raise what an instance said if it has ended."""
        for role, instance in self._instances.items():
            ready, _ = ray.wait([instance.ended], timeout=0)
            if ready:
                try:
                    said = ray.get(ready[0])
                except ray.exceptions.RayError as error:
                    said = str(error).splitlines()[0]
                raise LabError(f"{role} could not start: {said}", next="racelab doctor")

    def renew(self) -> None:
        """See that every instance ends, whose hub has hung up; who can fork another stays."""
        for role in [role for role in self._instances if role in self._parents]:
            instance = self._instances.pop(role)
            gone, _ = ray.wait([instance.ended], timeout=RENEW_BOUND_S)
            if not gone:
                self._end({role: self._parents.pop(role)})
        self._end(self._instances)

    def end(self) -> None:
        """End every instance and wait until its process is gone."""
        self._end(self._parents | {role: each for role, each in self._instances.items() if role not in self._parents})
        self._instances.clear()
        self._parents.clear()

    def _end(self, placed: dict[str, Placed]) -> None:
        pids = {role: _pids(each.pids) for role, each in placed.items()}
        for each in placed.values():
            ray.kill(each.actor)
        if self._cluster.ray == "local":
            for role, known in pids.items():
                for pid in known:
                    _wait_gone(role, pid)
        placed.clear()

    def close(self) -> None:
        """End the instances, leave or stop Ray, and put the environment back."""
        try:
            if ray.is_initialized():
                self.end()
                if self._group is not None:
                    remove_placement_group(self._group)
        finally:
            ray.shutdown()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None
            self._environment.close()


def _silence() -> None:
    """Ray prints to standard output that a worker has died, whatever it was told about logs; `check` says it too."""
    ray_worker: Any = importlib.import_module("ray._private.worker")
    if hasattr(ray_worker, "print_to_stdstream"):
        ray_worker.print_to_stdstream = lambda data, ignore_prefix: None


def _pids(promised: Any) -> list[int]:
    """The process ids that an actor promised to tell, if it has lived to do so."""
    ready, _ = ray.wait([promised], timeout=0)
    if not ready:
        return []
    try:
        return list(ray.get(ready[0]))
    except ray.exceptions.RayError:
        return []


def _wait_gone(role: str, pid: int) -> None:
    """`ray.kill` is asynchronous: poll until the kernel has no such process."""
    deadline = time.monotonic() + END_BOUND_S
    while _alive(pid):
        if time.monotonic() > deadline:
            raise BoundError(f"waited {END_BOUND_S:.0f} s for the process of {role} ({pid}) to end")
        time.sleep(0.005)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"

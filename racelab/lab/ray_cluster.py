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
from pathlib import Path
from typing import Any

from racelab.errors import BoundError, LabError
from racelab.lab.cluster import Cluster
from racelab.lab.environment import environment
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
OBJECT_STORE_BYTES = 80 << 20


@ray.remote(num_cpus=0, max_restarts=0)
class InstanceActor:
    """The process of one instance."""

    def pid(self) -> int:
        """Its process id, once it is up."""
        return os.getpid()

    def run(self, entry: str, role: str, options: dict[str, Any]) -> str | None:
        """Be the instance until the conductor hangs up; the reason if it could not."""
        module, _, function = entry.partition(":")
        try:
            getattr(importlib.import_module(module), function)(role, **options)
        except Exception as error:  # crosses the process boundary as one line
            return f"{type(error).__name__}: {error}"
        return None


class RayCluster:
    """The Ray side of a lab: `spawn` instances, `check` that none ended early, `close`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._folder: Path | None = None
        self._environment = ExitStack()
        self._group: PlacementGroup | None = None
        self._actors: dict[str, tuple[Any, Any, Any]] = {}

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

    def spawn(self, entry: str, role: str, options: dict[str, Any], variables: dict[str, str]) -> None:
        """Start the instance's process with these environment variables; it connects to the hub by itself."""
        assert self._group is not None, "start comes before spawn"
        place = self._cluster.instances[role]
        index = list(self._cluster.instances).index(role)
        actor = InstanceActor.options(  # type: ignore[attr-defined]  # ray.remote adds it
            resources=place.resources,
            scheduling_strategy=PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=index),
            runtime_env={"env_vars": transport_variables(self._cluster.transport) | variables | place.environment},
        ).remote()
        pid = actor.pid.remote()
        self._actors[role] = (actor, actor.run.remote(entry, role, options), pid)

    def lose(self, role: str) -> None:
        """The end of this instance's process is wanted; `spawn` may start another in its place."""
        self._actors.pop(role, None)

    def check(self) -> None:
        """Raise what an instance said if it has ended."""
        for role, (_, ended, _) in self._actors.items():
            ready, _ = ray.wait([ended], timeout=0)
            if ready:
                try:
                    said = ray.get(ready[0])
                except ray.exceptions.RayError as error:
                    said = str(error).splitlines()[0]
                raise LabError(f"{role} could not start: {said}", next="racelab doctor")

    def end(self) -> None:
        """End every instance and wait until its process is gone."""
        pids = {role: _pid(promised) for role, (_, _, promised) in self._actors.items()}
        for actor, _, _ in self._actors.values():
            ray.kill(actor)
        if self._cluster.ray == "local":
            for role, pid in pids.items():
                if pid is not None:
                    _wait_gone(role, pid)
        self._actors.clear()

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


def _pid(promised: Any) -> int | None:
    """The process id that an actor promised to tell, if it has lived to do so."""
    ready, _ = ray.wait([promised], timeout=0)
    if not ready:
        return None
    try:
        return int(ray.get(ready[0]))
    except ray.exceptions.RayError:
        return None


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

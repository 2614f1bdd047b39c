"""The cluster file: where a lab's processes run and over which transport.

`racelab list clusters` shows those that are there; a path to a file of your own works as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from racelab import documents
from racelab.errors import UsageError
from racelab.gates import Injector
from racelab.instances import ROLES, role_of
from racelab.shipped import shipped

RETRIES = 7
"""How often a queue pair of Mooncake's tries again (0.3.13, rdma_endpoint.cpp); rdma_rxe takes 7 as for ever."""

MACHINES = {"softroce": "kernel verbs on rdma_rxe, a software NIC in a VM: no RDMA hardware"}
"""What carries the transfers of a cluster with a machine of its own, as every result says it."""

ENDLESS = (
    f"rdma_rxe takes a retry_cnt of {RETRIES}, which is Mooncake's, as for ever (Linux, drivers/infiniband/sw/rxe/"
    f"rxe_comp.c: COMPST_ERROR_RETRY does not count it down)"
)

BUILT_IN = "injectors."


class Placement(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Where one instance goes: Ray `resources`, the `host` that its transport binds, a NIC, environment."""

    host: str
    resources: dict[str, float] = {}
    device: str = ""
    environment: dict[str, str] = {}


class Cluster(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """`ray` is `local` (a private Ray is started) or the address of a running one; `broker` is
    `embedded` or HOST:PORT; `hub-host` is the address at which processes reach the conductor. With
    `simulated` a software device of so many `rails` stands in for each instance's NICs. With `machine` their
    memory and transfer engines are in that machine; `queue-pair-retries` is how often a requester there tries
    again (7 if left out, which is Mooncake's). `write-gate` names the gate of writes, if not the transport's own."""

    cluster: str
    about: str = ""
    transport: Literal["tcp", "rdma"] = "tcp"
    simulated: Literal["", "softhca"] = ""
    rails: int = 2
    machine: Literal["", "softroce"] = ""
    queue_pair_retries: int | None = None
    write_gate: str = ""
    hub_host: str = "127.0.0.1"
    ray: str = "local"
    broker: str = "embedded"
    gate_ports: dict[str, int] = {}
    instances: dict[str, Placement]

    def check_room(self, names: Iterable[str]) -> None:
        """Whether every instance of a lab has a place here: of its own, or on this machine beside its namesake.

        Raises:
            UsageError: one has none.
        """
        homeless = [name for name in names if name not in self.instances]
        if homeless and self.machine:
            raise UsageError(
                f"cluster {self.cluster} has no place for {homeless[0]}: its machine has two agents",
                next="use a cluster without a machine, such as --cluster local or softhca",
            )
        if homeless and self.ray != "local":
            raise UsageError(
                f"cluster {self.cluster} has no place for {homeless[0]}",
                next="add it under instances in the cluster file",
            )

    def place(self, name: str) -> Placement:
        """Where an instance goes."""
        return self.instances.get(name) or self.instances[role_of(name)]

    @property
    def machine_in_words(self) -> str | None:
        """What carries the transfers where that is neither this host nor hardware."""
        return MACHINES[self.machine] if self.machine else None

    @property
    def shortened(self) -> list[str]:
        """Deadlines that are lower here than by default, in words."""
        if self.queue_pair_retries is None or self.queue_pair_retries >= RETRIES:
            return []
        return [f"retry_cnt {RETRIES} -> {self.queue_pair_retries}"]

    def gates(self, injectors: Iterable[Injector]) -> list[Injector]:
        """Those with a place here, each with what it can do here; of the gates of writes one.

        Raises:
            UsageError: the cluster names a gate that has no place here.
        """
        here = [each for each in injectors if each.serves(self.transport, self.machine)]
        here.sort(key=lambda each: not each.module.startswith(BUILT_IN))  # what is installed beside is to be named
        write_gates = [each.name for each in here if each.subject == "write"]
        wanted = self.write_gate or next(
            (each.name for each in here if each.subject == "write" and not each.machines), ""
        )
        if self.write_gate and self.write_gate not in write_gates:
            raise UsageError(
                f"cluster {self.cluster} wants its writes held by {self.write_gate!r}",
                next=f"its write-gate may be: {', '.join(write_gates)}",
            )
        kept = [each for each in here if each.subject != "write" or each.name == wanted]
        if self.machine and not self.shortened:
            kept = [each.without_end(ENDLESS) for each in kept]
        return [each if self.simulated else each.on_a_real_device() for each in kept]


def load(name: str) -> Cluster:
    """A cluster by name or path.

    Raises:
        UsageError: there is no such cluster.
        DocumentError: the file has problems; all are listed.
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = shipped("clusters") / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in shipped("clusters").glob("*.yaml")))
        raise UsageError(f"unknown cluster {name!r}", next=f"one of: {known}; or a path to a YAML file")
    document = documents.read(path)
    data: dict[str, Any] = document.data if isinstance(document.data, dict) else {}
    given = data.get("instances")
    instances = given if isinstance(given, dict) else {}
    placements = {role: document.build(Placement, value, "instances", role) for role, value in instances.items()}
    for role in ROLES:
        if role not in placements:
            document.problem(f"missing instance {role!r}", "instances")
    cluster = document.build(Cluster, document.data | {"instances": {}} if data else document.data)
    document.finish(next="docs/clusters.md lists every key")
    assert cluster is not None
    return msgspec.structs.replace(
        cluster, instances={role: place for role, place in placements.items() if place is not None}
    )

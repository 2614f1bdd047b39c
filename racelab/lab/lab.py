"""The lab: the running processes of a scenario, started once and proven clean between runs.

conductor (here) -- hub -- prefill, decode (Ray actors), broker, bus gate, and the gate of the transport's
writes (wire or verbs)
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from racelab.channel.hub import Hub, Peer
from racelab.errors import DirtyLabError, MissingPartError
from racelab.evidence.recorder import Recorder
from racelab.gates import INSTANCE_VARIABLE, Injector
from racelab.instances import ROLES
from racelab.lab.children import Child
from racelab.lab.cluster import Cluster
from racelab.lab.ray_cluster import RayCluster
from racelab.scenario import Lab as Shape
from racelab.targets.target import Target
from racelab.transport import ports
from racelab.vm import client

START_BOUND_S = 60.0
MACHINE_START_BOUND_S = 150.0
"""Python and Mooncake start some twenty times slower in an emulated machine."""

BROKER = "broker"
TARGETS = ("decode", "prefill")
"""Whose memory a gate of writes stands before, in the order of its doors: what is written to, what is read from."""
NUMBERS_APART = 1000
"""More events than an instance can have recorded that nobody but its peers has heard of."""


class Lab:
    """`with Lab(...) as lab:` starts everything; leaving the block ends everything, whatever happened."""

    def __init__(self, cluster: Cluster, target: Target, injectors: Iterable[Injector], logs: Path) -> None:
        self.target = target
        self.cluster = cluster
        here = {injector.name: injector for injector in cluster.gates(injectors)}
        self.gates = {name: each for name, each in here.items() if each.subject in ("write", "message")}
        self._of_processes = next((each for each in here.values() if each.subject == "process"), None)
        self.engines: list[str] = list(ROLES)
        """the instances of the run"""
        self._instances: list[str] = list(ROLES)
        """all that were started: a run may need fewer than one before it"""
        self.recorder = Recorder("conductor")
        self.hub = Hub(self.recorder, cluster.hub_host)
        self.phases_s: dict[str, float] = {}
        self.incarnation = 0
        self._logs = logs
        self.segments: dict[str, str] = {}
        """by instance, the transport's address of its process"""
        self._windows: dict[str, range] = {}
        self._asked: dict[str, Any] = {}
        self._numbers_from: dict[str, int] = {}
        """by instance that another process was before, from where it counts its events"""
        self._children: dict[str, Child] = {}
        self._ray = RayCluster(cluster)
        self._lease: client.Supervisor | None = None
        self._replaced = 0
        """how many instances have taken others' places since all were started"""

    def __enter__(self) -> Lab:
        try:
            if self.cluster.machine:
                self._lease = client.lease(f"process {os.getpid()}")
            with self._phase("broker"):
                self._start_bus()
            with self._phase("ray"):
                self._ray.start()
            self._start_instances()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name, of everything that has said hello."""
        return {name: peer.pid for name, peer in self.hub.peers.items()}

    @property
    def facts(self) -> dict[str, dict[str, Any]]:
        """What each process said of itself: addresses, versions."""
        return {name: peer.facts for name, peer in self.hub.peers.items()}

    # -- start and end

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self.hub.doing = f"start of {name}"
        started = time.monotonic()
        yield
        self.phases_s[name] = time.monotonic() - started

    def _start_bus(self) -> None:
        if self.cluster.broker == "embedded":
            self._spawn(BROKER, "racelab.lab.broker", ["--host", self.cluster.hub_host])
            self._wait_for(BROKER)
            address = str(self.hub.peers[BROKER].facts["mqtt"])
        else:
            address = self.cluster.broker
        self._spawn_gate("bus", ["--broker", address])
        self._wait_for("bus")

    def _start_instances(self) -> None:
        """Instances and the gate of their writes: the gate first if it preloads, else once it knows its target."""
        gate = self._write_gate
        if gate.preloads:
            with self._phase("gates"):
                simulated = ["--simulated", self.cluster.simulated] if self.cluster.simulated else []
                beyond = ["--beyond", self._short_name] if self.cluster.machine else []
                self._spawn_gate(gate.name, [*simulated, *beyond, "--rails", str(self.cluster.rails)])
                self._wait_for(gate.name)
        with self._phase("instances"):
            for name in self._instances:
                self._spawn_instance(name, gate)
            self._wait_for(*self._instances)
        with self._phase("introductions"):
            if not gate.preloads:
                segments = (str(self.hub.peers[name].facts["segment"]) for name in self._targets)
                self._spawn_gate(gate.name, [each for segment in segments for each in ("--target", segment)])
                self._wait_for(gate.name)
            self._introduce(self._instances, gate)

    def _add(self, names: list[str]) -> None:
        """Start instances that the lab does not have yet, and have those that it has know of them."""
        gate = self._write_gate
        for name in names:
            self._spawn_instance(name, gate)
        self._wait_for(*names)
        self._instances += names
        if not gate.preloads:
            targets = [str(self.hub.peers[name].facts["segment"]) for name in names]
            self.hub.peers[gate.name].facts["segments"] |= self.hub.call(gate.name, "add_targets", targets=targets)
        self._introduce(names, gate)
        others = [name for name in self._instances if name not in names]
        self._tell_of_gate(others, gate)

    def _spawn_instance(self, role: str, gate: Injector, port: int | None = None) -> None:
        """Start an instance's process, at the transport's `port` if it has to be that one."""
        place = self.cluster.place(role)
        preloaded = self.hub.peers[gate.name].facts["environment"] if gate.preloads else {}
        options: dict[str, Any] = {
            "hub": self.hub.address,
            "token": self.hub.token,
            "host": place.host,
            "transport": self.cluster.transport,
            "device": place.device,
        }
        variables = preloaded | {INSTANCE_VARIABLE: role}
        options |= {"port": port} if port is not None else {}
        if self.cluster.machine:  # what is preloaded is for the agent there, not for the process here
            self.hub.call(gate.name, "expect", name=role)
            options["machine"] = self._agent(role, variables)
            variables = {INSTANCE_VARIABLE: role}
        elif self.cluster.ray == "local":
            variables |= self._window(role, place.host, port)
        forks = self.target.forks and not gate.preloads  # what is preloaded speaks for one process alone
        self._ray.spawn(self.target.entry, role, options, variables, forks=forks)

    def _window(self, role: str, host: str, port: int | None) -> dict[str, str]:
        """Ports of the transport that stay an instance's, whatever process it is."""
        if port is None:
            self._windows[role] = ports.free_window(host, self.cluster.transport)
        else:
            ports.free_again(host, port)
        return ports.variables(self._windows[role])

    def _introduce(self, names: list[str], gate: Injector) -> None:
        """Have instances join the bus, and know the gate of what they write and read."""
        bus = self.hub.peers["bus"].facts["mqtt"]
        self.hub.call_all(names, "join_bus", address=bus, lab=self._short_name)
        self.segments |= {name: str(self.hub.peers[name].facts.get("segment", "")) for name in names}
        self._tell_of_gate(names, gate)

    def _tell_of_gate(self, names: list[str], gate: Injector) -> None:
        facts = self.hub.peers[gate.name].facts
        self.hub.call_all(names, "use_gate", segments=facts.get("segments", {}), announce=facts["announce"])

    @property
    def _targets(self) -> list[str]:
        """Whom the gate of writes stands for, in the order in which it was told."""
        return [*TARGETS, *(name for name in self._instances if name not in TARGETS)]

    @property
    def _write_gate(self) -> Injector:
        return next(gate for gate in self.gates.values() if gate.subject == "write")

    @property
    def _short_name(self) -> str:
        return self.hub.token[:8]

    def _agent(self, role: str, variables: dict[str, str]) -> dict[str, Any]:
        """What the agent of an instance is started with."""
        retries = self.cluster.queue_pair_retries
        shortened = {"RACELAB_VERBS_RETRIES": str(retries)} if retries is not None else {}
        window = ports.variables(self._windows.setdefault(role, ports.any_window(self.cluster.transport)))
        kept = {"kept": f"{self._short_name}-{role}", "kept_variable": "RACELAB_VERBS_GATE"}
        return {"environment": variables | window | shortened | self.cluster.place(role).environment} | kept

    def _spawn_gate(self, name: str, arguments: list[str]) -> None:
        port = self.cluster.gate_ports.get(name)
        fixed = ["--port", str(port)] if port is not None else []
        self._spawn(name, self.gates[name].module, ["--host", self.cluster.hub_host, *arguments, *fixed])

    def _spawn(self, name: str, module: str, arguments: list[str]) -> None:
        everywhere = ["--hub", self.hub.address]
        if name != BROKER:
            everywhere += ["--instance", name]
        self._children[name] = Child(name, module, everywhere + arguments, self.hub.token, self._logs)

    def _wait_for(self, *names: str) -> None:
        bound_s = MACHINE_START_BOUND_S if self.cluster.machine else START_BOUND_S
        self.hub.wait_for(*names, bound_s=bound_s, alive=self._check)

    def _check(self) -> None:
        for child in self._children.values():
            child.check()
        self._ray.check()

    # -- processes that a schedule stops, kills and restarts

    def act_on_process(self, command: str, name: str, **args: Any) -> None:
        """Have an instance's process stopped, continued or killed; it is when this returns."""
        injector = self._of_processes
        if injector is None:
            raise MissingPartError("no installed injector acts on processes", next="racelab list injectors")
        if injector.name not in self.hub.peers:
            self._spawn(injector.name, injector.module, ["--host", self.cluster.hub_host])
            self._wait_for(injector.name)
            self.hub.call(injector.name, "reset", incarnation=self.incarnation)
        agent = self.hub.peers[name].facts.get("agent")
        self.hub.call(injector.name, command, peer=name, **args, **({"agent": agent} if agent is not None else {}))

    def lose(self, name: str) -> None:
        """From now on the death of an instance is wanted."""
        self.hub.part_with(name)
        self._ray.lose(name)

    def replace(self, name: str, segment: str) -> Peer:
        """Start another process of an instance at `segment`, the transport's address of the dead one.

        Raises:
            LabError: its address is not free, or it is on another machine.
        """
        self.hub.forget(name)
        self._spawn_instance(name, self._write_gate, int(segment.rpartition(":")[2]))
        self._wait_for(name)
        self._introduce([name], self._write_gate)
        self._replaced += 1
        return self.hub.peers[name]

    @property
    def is_worn(self) -> bool:
        """Whether so many instances were replaced that those who stay, each of which keeps an engine for every one
        that it knew, would soon have no port for another."""
        return self._replaced >= ports.REPLACED_MAX

    def tell_of_replacement(self, names: list[str], segment: str) -> None:
        """All others learn that another process is at an address that they know, those too that this run is without:
        a prefill writes there, a decode reads there, in this run or a later one."""
        for name in (*names, *(each for each in self._instances if each not in self.engines)):
            self.hub.call(name, "peer_replaced", segment=segment)

    def begin(self, name: str, numbers_from: int, generations_from: int) -> None:
        """Have a replaced instance join the run: a new incarnation, which counts on from where the dead one was."""
        self.incarnation += 1
        asked = self._asked | {"incarnation": self.incarnation, "epoch": self.incarnation}
        self.hub.call(name, "reset", **asked, numbers_from=numbers_from, generations_from=generations_from)

    def _end_processes(self, *names: str) -> None:
        """Hang up on them: each ends by itself, those that are not Ray's within a bound."""
        self.hub.part_with(*names)
        self.hub.forget(*names)
        for name in names:
            if name in self._children:
                self._children.pop(name).end()

    def close(self) -> None:
        """End everything, in an order in which nobody misses anybody."""
        try:
            self._end_processes(*self.hub.peers)
            for child in self._children.values():  # that never said hello
                child.end()
        finally:
            self._ray.close()
            self.hub.close()
            if self._lease is not None:
                self._lease.close()

    def renew(self) -> None:
        """Replace every instance. A gate that can be told of other targets stays, and with it bus and broker,
        which know nothing of a transfer; otherwise all of them are replaced, and Ray stays.

        Instances that take others' places number their events from beyond what anybody can have heard of those:
        who stays, and has heard of an event of the last run, cannot mean one of the next.
        """
        gate = self._write_gate
        if not gate.retargets:
            self._instances = list(self.engines)
            self._end_processes(*self.hub.peers)
            self._ray.end()
            self._replaced = 0
            self._start_bus()
            self._start_instances()
            return
        known = {name: self.hub.heard.get(name, 0) for name in self._instances}
        self._end_processes(*known)
        self._replaced = 0
        self._ray.renew()
        for name in self._instances:
            self._spawn_instance(name, gate)
        self._wait_for(*self._instances)
        targets = [str(self.hub.peers[name].facts["segment"]) for name in self._targets]
        self.hub.peers[gate.name].facts |= self.hub.call(gate.name, "retarget", targets=targets)
        self._introduce(self._instances, gate)
        self._numbers_from = {name: known[name] + NUMBERS_APART for name in known}

    # -- between runs

    def _form(self, names: list[str]) -> None:
        """The instances of the next run, and no other, take part in it."""
        missing = [name for name in names if name not in self._instances]
        if missing:
            self._add(missing)
        for name in self.engines:
            if name not in names:
                self.hub.call(name, "retire")
        self.engines = names

    def _counts_from(self, name: str) -> dict[str, int]:
        return {"numbers_from": self._numbers_from[name]} if name in self._numbers_from else {}

    def reset(self, shape: Shape, guards: list[str], seed: int, glue_fault: str | None = None) -> None:
        """Begin a new incarnation of every process, or say what of the last one is left.

        Raises:
            DirtyLabError: a gate still holds something; `renew` helps.
        """
        self._form(shape.instances)
        self.incarnation += 1
        present = [name for name in self._children if name != BROKER]
        asked = {gate: self.hub.send(gate, "reset", incarnation=self.incarnation) for gate in present}
        self.recorder.incarnation = self.incarnation
        self._asked = {
            "incarnation": self.incarnation,
            "epoch": self.incarnation,
            "shape": msgspec.structs.asdict(shape),
            "guards": guards,
            "seed": seed,
        }
        self._asked |= {"glue_fault": glue_fault} if glue_fault is not None else {}
        sent = {name: self.hub.send(name, "reset", **self._asked, **self._counts_from(name)) for name in self.engines}
        for name, identity in sent.items():
            self.hub.collect(identity, name, "reset")
        for gate, identity in asked.items():
            held = self.hub.collect(identity, gate, "reset")["held"]
            if held:
                raise DirtyLabError(f"{gate} still holds {', '.join(held)} of the last run")

"""The home of an instance whose page memory and engines are in the machine, with its agent."""

from __future__ import annotations

from collections.abc import Mapping

from racelab.transport.mooncake import variables
from racelab.vm.agent import Agent, AgentEngine, AgentMemory
from racelab.vm.client import Supervisor, machine
from racelab.vm.wire import carried, end_of

_AGENT_VARIABLES = {"RDMAV_HUGEPAGES_SAFE": "1"}
"""libibverbs marks registered memory by its real page size; it refuses a part of a huge page otherwise."""


class MachineHome:
    """`host` and `device` are the agent's end of the wire, at `port` if it takes a dead one's place; the rest is the
    gate's (racelab.lab.lab)."""

    def __init__(
        self,
        role: str,
        host: str,
        device: str,
        port: int | None = None,
        *,
        environment: Mapping[str, str],
        kept: str,
        kept_variable: str,
    ) -> None:
        self._host = host
        self._device = device
        self._port = port
        everything = variables("rdma") | _AGENT_VARIABLES | dict(environment)
        self._supervisor = Supervisor(machine())
        self._agent = Agent(role, everything, kept, kept_variable)
        self._devices = WireDevices(self._agent, self._supervisor, end_of(host))

    @property
    def facts(self) -> dict[str, int]:
        """The agent's process, in the machine."""
        return {"agent": self._agent.pid}

    def engine(self) -> AgentEngine:
        """One more TransferEngine in the agent; the first one at the port of one's choice, if one was given."""
        port, self._port = self._port, None
        return AgentEngine(self._agent, self._host, self._device, port)

    def devices(self) -> WireDevices:
        """The agent's, and the wire behind them."""
        return self._devices

    def memory(self, size: int) -> AgentMemory:
        """The agent's memory, mapped here."""
        return self._agent.memory(size)

    def close(self) -> None:
        """The agent ends."""
        self._agent.close()
        self._supervisor.close()


class WireDevices:
    """The agent's rxe device. It has no counts of one process, but the wire is this lab's alone, and counts."""

    def __init__(self, agent: Agent, supervisor: Supervisor, end: int) -> None:
        self._agent = agent
        self._supervisor = supervisor
        self._end = end
        self._before = carried(supervisor)[end]

    def rails(self) -> int:
        """RDMA devices that the agent has open."""
        return int(self._agent.ask("rails"))

    def landed(self) -> int | None:
        """Payload that arrived where it was to go: at the other end, or here in answer to reads."""
        since = carried(self._supervisor)[self._end].since(self._before)
        return since.arrived_bytes + since.read_bytes

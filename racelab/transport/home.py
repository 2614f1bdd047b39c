"""Where an instance's page memory and transfer engines are: in its own process, or in a machine of their own.

The transport and the page pool ask a home for what they need and do not know which it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy
from numpy.typing import NDArray

from racelab.transport.softhca import Fabric


class Memory(Protocol):
    """A block of memory that can be registered: its `bytes` are at `address` for the transport."""

    bytes: NDArray[numpy.uint8]
    address: int

    def check(self) -> None:
        """`bytes` and `address` still mean the same memory.

        Raises:
            LabError: they do not.
        """


class Devices(Protocol):
    """The RDMA devices of an instance: how many are open, and what they wrote."""

    def rails(self) -> int:
        """Devices that the process with the engines has open."""

    def landed(self) -> int | None:
        """Bytes that they have written to peers since they were opened; None if nothing counts them."""


class Home(Protocol):
    """One instance's."""

    @property
    def facts(self) -> dict[str, int]:
        """What the conductor has to know of it: the process with the engines (`agent`), if that is another one."""

    def engine(self) -> Any:
        """One more TransferEngine, running.

        Raises:
            LabError: it does not start.
            MissingPartError: Mooncake cannot be loaded.
        """

    def devices(self) -> Devices:
        """Its RDMA devices."""

    def memory(self, size: int) -> Memory | None:
        """Memory for pages; None if any memory of this process will do."""

    def close(self) -> None:
        """Nothing of it is needed any more."""


class SoftwareDevices:
    """Those of the software device, which counts in a file that every process on it shares."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    def rails(self) -> int:
        """Ports that this process has open."""
        return sum(port.pid == os.getpid() for port in self._fabric.ports())

    def landed(self) -> int | None:
        """As the device counted."""
        mine = (port for port in self._fabric.ports() if port.pid == os.getpid())
        return sum(port.landed_bytes + port.read_bytes for port in mine)


class KernelDevices:
    """Those that this process opened through the kernel: a NIC has no counts of one process."""

    def rails(self) -> int:
        """Device files that this process has open."""
        return opened_devices(Path("/proc/self/fd").iterdir())

    def landed(self) -> int | None:
        """Nothing counts them."""
        return None


def opened_devices(descriptors: Iterable[Path]) -> int:
    """How many of these descriptors are RDMA devices."""
    return sum(os.path.realpath(link).startswith("/dev/infiniband/uverbs") for link in descriptors)

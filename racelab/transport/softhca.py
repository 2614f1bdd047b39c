"""The software device's own counts, read from the file that every process on it shares.

`injectors/verbs/fabric.h` has the layout: `u32 magic | u32 ports | 8 pad`, then 80 bytes a port:
`u32 pid | u32 rail | u64 x 9`. A port is one device opened by one process; its counts only grow.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass

from racelab.errors import LabError

FABRIC_VARIABLE = "SOFTHCA_FABRIC"
"""Names the file in the environment of every process that uses the device."""

SIMULATED = "softhca: a software device stands in for the NIC; never alone the ground of a finding"

_MAGIC = 0x66626131
_HEAD = struct.Struct("=II8x")
_PORT = struct.Struct("=II9Q")


@dataclass(frozen=True)
class Port:
    """What one device counted for one process."""

    pid: int
    rail: int
    posted_requests: int
    posted_bytes: int
    landed_requests: int
    landed_bytes: int
    read_requests: int
    read_bytes: int
    late_requests: int
    late_bytes: int
    refused_requests: int


class Fabric:
    """The shared file at `path`."""

    def __init__(self, path: str, descriptor: int | None = None) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if descriptor is None else descriptor

    @classmethod
    def create(cls) -> Fabric:
        """A new one, in memory alone: it ends with this process, and the first device that is opened lays it out."""
        descriptor = os.memfd_create("racelab-fabric")
        return cls(f"/proc/{os.getpid()}/fd/{descriptor}", descriptor)

    @classmethod
    def of_environment(cls) -> Fabric | None:
        """The one that this process's device is on, if it is on one.

        Raises:
            LabError: it is gone.
        """
        path = os.environ.get(FABRIC_VARIABLE)
        if path is None:
            return None
        try:
            return cls(path)
        except OSError as error:
            raise LabError(f"the software device's {FABRIC_VARIABLE}={path}: {error.strerror}") from None

    def ports(self) -> list[Port]:
        """Every port that was opened, in order."""
        if os.fstat(self._descriptor).st_size < mmap.PAGESIZE:
            return []
        with mmap.mmap(self._descriptor, 0, prot=mmap.PROT_READ) as view:
            magic, count = _HEAD.unpack_from(view)
            if magic != _MAGIC:
                return []
            return [Port(*_PORT.unpack_from(view, _HEAD.size + number * _PORT.size)) for number in range(count)]

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)

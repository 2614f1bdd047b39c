"""The running machine: booted here, found again by its state file, ended by its process id.

A boot goes through stages, which the machine names on its console: kernel, modules, root, network,
supervisor, ready. One that stops says in which, with the console's last lines.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from racelab.errors import LabError
from racelab.vm.image import Image, cache

Accelerator = Literal["kvm", "tcg"]
Say = Callable[[str], None]

NAME = "softroce"
MEMORY_MB = 1024
HUGE_PAGES = 48
"""Of 2 MiB each, for the instances' page memory."""

STAGES = ("kernel", "modules", "root", "network", "supervisor", "ready")
BOOT_BOUND_S = {"kvm": 20.0, "tcg": 120.0}
END_BOUND_S = 10.0
CONSOLE_LINES = 8
_STATE = "machine.json"


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that was booted; `started` is its process's start in clock ticks, which tells it from
    another process that has got its number."""

    pid: int
    started: int
    port: int
    accelerator: Accelerator
    kernel: str
    python: str
    boot_s: float

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return _start_of(self.pid) == self.started

    @property
    def token(self) -> str:
        """What opens its supervisor; only this user can read it."""
        return (folder() / "token").read_text().strip()

    def memory(self) -> Path:
        """Its memory, as a file that this user's processes can map. Offsets are guest physical addresses.

        Raises:
            LabError: it has ended, or belongs to somebody else.
        """
        descriptors = Path(f"/proc/{self.pid}/fd")
        try:
            for each in descriptors.iterdir():
                if os.readlink(each).startswith("/memfd:memory-backend-memfd"):
                    return each
        except OSError as error:
            raise LabError(f"cannot see the memory of {NAME} ({self.pid}): {error.strerror}") from None
        raise LabError(f"the process of {NAME} ({self.pid}) has no memory file")


def folder() -> Path:
    """Where the running machine keeps its state, token and console; gone when it is down."""
    return cache() / "run"


def running() -> Machine | None:
    """The machine that is up, if one is; what is left of one that is not is removed."""
    try:
        machine = msgspec.json.decode((folder() / _STATE).read_bytes(), type=Machine)
    except (OSError, msgspec.DecodeError):
        return None
    if machine.alive:
        return machine
    shutil.rmtree(folder(), ignore_errors=True)
    return None


def boot(image: Image, accelerator: Accelerator, say: Say, bound_s: float | None = None) -> Machine:
    """Boot and wait until the supervisor is ready.

    Raises:
        LabError: it broke in some stage; the machine is ended, and nothing of it is left.
    """
    program, variables, firmware = image.qemu()
    port = _free_port()
    token = folder() / "token"
    line = [program, *firmware, *_arguments(image, accelerator, port, token)]
    shutil.rmtree(folder(), ignore_errors=True)
    began = time.monotonic()
    with contextlib.ExitStack() as undo:
        undo.callback(shutil.rmtree, folder(), ignore_errors=True)
        folder().mkdir(parents=True, mode=0o700)
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(16))
        process = _start(line, os.environ | variables)
        undo.callback(process.wait)
        undo.callback(process.kill)
        machine = Machine(
            pid=process.pid,
            started=_start_of(process.pid) or 0,
            port=port,
            accelerator=accelerator,
            kernel=image.manifest.kernel,
            python=sys.executable,
            boot_s=0.0,
        )
        _write(machine)  # before it is ready: whatever becomes of this process, `down` finds that one
        _wait_until_ready(process, say, bound_s or BOOT_BOUND_S[accelerator], accelerator)
        machine = msgspec.structs.replace(machine, boot_s=round(time.monotonic() - began, 1))
        _write(machine)
        undo.pop_all()
    process.returncode = 0  # it outlives this process: no warning that nobody has waited for it
    return machine


def _start(line: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    with (folder() / "qemu.log").open("wb") as log:
        return subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
        )


def end(machine: Machine) -> None:
    """End it by its id, if it is still the process that was started, and remove what it left."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if machine.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(machine.pid, number)
            _wait_gone(machine)
    if machine.alive:
        raise LabError(f"{NAME}'s process {machine.pid} does not end")
    shutil.rmtree(folder(), ignore_errors=True)


def _write(machine: Machine) -> None:
    (folder() / _STATE).write_bytes(msgspec.json.encode(machine))


def _arguments(image: Image, accelerator: Accelerator, port: int, token: Path) -> list[str]:
    words = {"token": token, "python": sys.executable}
    line = ["console=ttyS0", "panic=-1", "loglevel=4", "mitigations=off", "tsc=reliable", f"hugepages={HUGE_PAGES}"]
    share = "local,security_model=none,readonly=on,multidevs=remap"
    return [
        *("-name", f"racelab-{NAME}", "-M", "q35,memory-backend=memory", "-accel", accelerator),
        *("-cpu", "host" if accelerator == "kvm" else "max", "-smp", "1", "-m", f"{MEMORY_MB}M"),
        *("-object", f"memory-backend-memfd,id=memory,size={MEMORY_MB}M,share=on"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-monitor", "none"),
        *("-kernel", str(image.vmlinux), "-initrd", str(image.initramfs())),
        *("-append", " ".join([*line, *(f"racelab.{name}={value}" for name, value in words.items())])),
        *("-serial", f"file:{console()}"),
        *("-fsdev", f"{share},id=host,path=/", "-device", "virtio-9p-pci,fsdev=host,mount_tag=host"),
        *("-fsdev", f"{share},id=packages,path={image.tree}"),
        *("-device", "virtio-9p-pci,fsdev=packages,mount_tag=packages"),
        *("-netdev", f"user,id=outside,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:7000"),
        *("-device", "virtio-net-pci,netdev=outside,romfile="),
    ]


def console() -> Path:
    """What the machine says on its serial line."""
    return folder() / "console.log"


def _wait_until_ready(process: subprocess.Popen[bytes], say: Say, bound_s: float, accelerator: Accelerator) -> None:
    deadline = time.monotonic() + bound_s
    told = ""
    while (stage := _stage()) != STAGES[-1]:
        if stage != told:
            say(f"booting ({accelerator}): {stage}")
            told = stage
        broke = next((line for line in _console_lines() if line.startswith("racelab: broke: ")), None)
        ended = process.poll() is not None
        if broke or ended or time.monotonic() > deadline:
            why = broke.removeprefix("racelab: broke: ") if broke else ""
            raise _broken(stage, why or ("the machine ended" if ended else f"nothing more came in {bound_s:.0f} s"))
        time.sleep(0.05)


def _broken(stage: str, why: str) -> LabError:
    said = _console_lines()[-CONSOLE_LINES:] or (folder() / "qemu.log").read_text(errors="replace").splitlines()
    shown = "".join(f"\n    {line}" for line in said)
    return LabError(
        f"{NAME} broke in stage {stage!r}: {why}; its last words:{shown or ' none'}",
        next="racelab doctor --cluster softroce; racelab cluster up softroce --rebuild makes its files anew",
    )


def _stage() -> str:
    named = [line.removeprefix("racelab: stage ") for line in _console_lines() if line.startswith("racelab: stage ")]
    return named[-1] if named and named[-1] in STAGES else STAGES[0]


def _console_lines() -> list[str]:
    try:
        return console().read_text(errors="replace").splitlines()
    except OSError:
        return []


def _start_of(pid: int) -> int | None:
    """When a process started, in clock ticks; None if there is none, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19]) if fields[0] != "Z" else None


def _wait_gone(machine: Machine) -> None:
    deadline = time.monotonic() + END_BOUND_S
    while machine.alive and time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(machine.pid, os.WNOHANG)  # ours, if this process booted it
        time.sleep(0.01)


def _free_port() -> int:
    """QEMU does not tell which port it got, so one is picked just before."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])

"""Builds the C parts where they are used: once a version of their sources, into the user's cache folder.

Nothing is built when racelab is installed, so a machine that never does RDMA needs no compiler.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from racelab.errors import MissingPartError

SOURCES = Path(__file__).resolve().parent
FLAGS = ("-O2", "-Wall", "-Wextra", "-Werror", "-pthread")
LIBRARY = ("-shared", "-fPIC", "-Wl,-z,defs")
HEADER = "infiniband/verbs.h"
BUILD_BOUND_S = 120.0

_PARTS = {
    "gate.so": (["gate.c"], (*LIBRARY, "-ldl")),
    "softhca.so": (["softhca.c", "softhca_completions.c", "softhca_device.c"], LIBRARY),
    "driver": (["driver.c"], ("-libverbs",)),
}


@dataclass(frozen=True)
class Built:
    """Where the built parts lie."""

    folder: Path

    @property
    def gate(self) -> Path:
        """The library that stops work requests."""
        return self.folder / "gate.so"

    @property
    def device(self) -> Path:
        """The software device."""
        return self.folder / "softhca.so"

    @property
    def driver(self) -> Path:
        """The program of the self-test."""
        return self.folder / "driver"

    def preload(self, *, simulated: bool) -> str:
        """The value of LD_PRELOAD: the gate stands in front of the device."""
        libraries = [self.gate, self.device] if simulated else [self.gate]
        return ":".join(str(library) for library in libraries)


def compiler() -> str:
    """The C compiler.

    Raises:
        MissingPartError: there is none, or it does not find the header of libibverbs.
    """
    found = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if found is None:
        raise MissingPartError("no C compiler on PATH: the verbs gate is built where it is used", next=_ADVICE)
    include = f"#include <{HEADER}>\n"
    probe = subprocess.run(
        [found, "-E", "-x", "c", "-"], input=include, capture_output=True, text=True, timeout=BUILD_BOUND_S
    )
    if probe.returncode:
        raise MissingPartError(f"{found} does not find {HEADER}", next=_ADVICE)
    return found


_ADVICE = "on Debian and Ubuntu: apt-get install gcc libibverbs-dev"


def build() -> Built:
    """The built parts, from the cache if these sources were built before.

    Raises:
        MissingPartError: no compiler, no header, or the compiler refuses.
    """
    folder = _cache() / _fingerprint()
    if not folder.is_dir():
        command = compiler()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as scratch:
            for part in _PARTS:
                compile_part(command, part, Path(scratch) / part)
            _settle(Path(scratch), folder)
    return Built(folder)


def compile_part(command: str, part: str, output: Path, *more: str) -> None:
    """Compile one part; `more` goes behind the usual flags.

    Raises:
        MissingPartError: the compiler refuses.
    """
    sources, flags = _PARTS[part]
    line = [*command.split(), *FLAGS, *more, *(str(SOURCES / source) for source in sources), "-o", str(output), *flags]
    done = subprocess.run(line, capture_output=True, text=True, timeout=BUILD_BOUND_S)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[0]
        raise MissingPartError(f"{command} cannot build {part}: {said}", next=_ADVICE)


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "racelab" / "verbs"


def _fingerprint() -> str:
    """Of everything that a build depends on: sources, flags and machine."""
    digest = hashlib.sha256(repr((FLAGS, _PARTS, platform.machine(), os.environ.get("CC"))).encode())
    for source in sorted([*SOURCES.glob("*.c"), *SOURCES.glob("*.h")]):
        digest.update(source.name.encode() + source.read_bytes())
    return f"{platform.machine()}-{digest.hexdigest()[:16]}"


def _settle(scratch: Path, folder: Path) -> None:
    """Give a finished build its name; somebody else may have been as quick."""
    fresh = folder.with_name(f"{folder.name}.{os.getpid()}")
    shutil.copytree(scratch, fresh)
    try:
        fresh.rename(folder)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)

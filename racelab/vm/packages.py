"""The distribution's packages, without root: an index and downloads in a folder of our own.

apt reads the system's own sources and keys, so each package is checked against the signed index; what was
taken is recorded with its SHA-256. Nothing is installed: packages are unpacked with dpkg-deb.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from racelab.errors import LabError, MissingPartError

TOOLS = ("apt-get", "apt-cache", "dpkg-deb", "tar")
UPDATE_BOUND_S = 180.0
FETCH_BOUND_S = 420.0
UNPACK_BOUND_S = 120.0

_INSTALLS = re.compile(r"^Inst (\S+) (?:\[\S+\] )?\((\S+)", re.MULTILINE)
_MERGED = ("bin", "sbin", "lib", "lib64")
"""Folders that are links into usr on a system of today: a folder of that name would hide the link."""


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """One package that was taken; `sha256` is that of its file, as the signed index has it."""

    name: str
    version: str
    sha256: str
    bytes: int


def check_host() -> str:
    """What packages come from here, in words.

    Raises:
        MissingPartError: this is not a Debian on x86-64; the message names what is missing.
    """
    if platform.machine() != "x86_64":
        raise MissingPartError(
            f"the Soft-RoCE machine is built for x86_64, this is {platform.machine()}", next=ANOTHER_RUNG
        )
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking:
        raise MissingPartError(
            f"it is built from Debian packages, and {', '.join(lacking)} is not here", next=ANOTHER_RUNG
        )
    return f"apt of {platform.freedesktop_os_release().get('PRETTY_NAME', 'this system')}"


ANOTHER_RUNG = "use a Debian 12 or later on x86-64, or another rung: --cluster local, --cluster softhca"


class Registry:
    """A private view of apt's: `folder` keeps its index; the system's own state is only read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for part in ("state/lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        self._options = [
            f"-oDir::State={folder / 'state'}",
            "-oDir::State::status=/var/lib/dpkg/status",
            f"-oDir::Cache={folder / 'cache'}",
            f"-oAPT::Sandbox::User={'root' if os.getuid() == 0 else ''}",
            "-oDebug::NoLocking=1",
            "-oAcquire::Languages=none",
            "-oAcquire::Retries=3",
        ]

    def refresh(self) -> None:
        """Fetch the signed index anew."""
        self._run("apt-get", "update", "-qq", bound_s=UPDATE_BOUND_S)

    def lacking(self, names: Sequence[str]) -> list[str]:
        """NAME=VERSION of everything that installing `names` would bring to this system."""
        said = self._run("apt-get", "install", "--simulate", "--no-install-recommends", *names)
        return [f"{name}={version}" for name, version in _INSTALLS.findall(said)]

    def kernel(self, meta: str) -> str:
        """The kernel's own package behind the one that follows its versions."""
        found = re.search(r"Depends: (linux-image-\S+)", self._run("apt-cache", "depends", meta))
        if found is None:
            raise LabError(f"{meta} names no kernel", next=ANOTHER_RUNG)
        return found[1]

    def fetch(self, wanted: Sequence[str], into: Path) -> list[Path]:
        """Download packages (NAME or NAME=VERSION); apt checks each against the index."""
        into.mkdir(parents=True, exist_ok=True)
        self._run("apt-get", "download", "-qq", *wanted, bound_s=FETCH_BOUND_S, folder=into)
        return sorted(into.glob("*.deb"))

    def _run(self, tool: str, verb: str, *arguments: str, bound_s: float = 60.0, folder: Path | None = None) -> str:
        line = [tool, *self._options, verb, *arguments]
        try:
            done = subprocess.run(
                line,
                cwd=folder or self._folder,
                capture_output=True,
                text=True,
                timeout=bound_s,
                env=os.environ | {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
            )
        except subprocess.TimeoutExpired:
            raise LabError(f"{tool} {verb} took longer than {bound_s:.0f} s", next="is the registry there?") from None
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("E:")] or done.stderr.splitlines()
            raise LabError(
                f"{tool} {verb} failed: {' '.join(errors[:2]) or 'it said nothing'}",
                next="is the registry that /etc/apt/sources.list names there?",
            )
        return done.stdout


def describe(file: Path) -> Package:
    """Name, version and checksum of a downloaded package."""
    shown = subprocess.run(
        ["dpkg-deb", "--show", "--showformat=${Package} ${Version}", str(file)],
        capture_output=True,
        text=True,
        check=True,
        timeout=UNPACK_BOUND_S,
    ).stdout
    name, version = shown.split()
    data = file.read_bytes()
    return Package(name=name, version=version, sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))


def unpack(file: Path, tree: Path, *patterns: str) -> None:
    """Unpack a package, or what in it fits one of `patterns`, as it would lie on a merged system.

    Raises:
        LabError: the package is torn.
    """
    tree.mkdir(parents=True, exist_ok=True)
    wanted = ["--wildcards", *patterns] if patterns else []
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(file)], stdout=subprocess.PIPE) as source:
        done = subprocess.run(
            ["tar", "-x", "-f", "-", "-C", str(tree), "--no-same-owner", *wanted],
            stdin=source.stdout,
            capture_output=True,
            text=True,
            timeout=UNPACK_BOUND_S,
        )
    if source.returncode or done.returncode:
        raise LabError(f"cannot unpack: {done.stderr.strip() or 'dpkg-deb failed'}", file=file)


def merge(tree: Path) -> None:
    """Move bin, sbin and lib into usr, where the system that the tree is laid over has them."""
    for name in _MERGED:
        folder = tree / name
        if folder.is_dir() and not folder.is_symlink():
            shutil.copytree(folder, tree / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(folder)

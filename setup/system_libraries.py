"""Checks the system libraries that Mooncake's wheels load, before anything is installed.

Names each missing one with the Debian package that brings it. As root on a machine with apt-get it
installs them, unless RACELAB_NO_APT is set. With `--tests` it adds what some tests need and skip without,
and is content if that cannot be had. Standard library only.
"""

import ctypes
import os
import shutil
import subprocess
import sys

LIBRARIES = {"libibverbs.so.1": "libibverbs1", "libnuma.so.1": "libnuma1", "libcurl.so.4": "libcurl4"}
FOR_TESTS = {"mosquitto": "mosquitto"}
"""Programs, with the package of each."""
SYSTEM_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
LOCK_TIMEOUT_S = 120


def missing() -> dict[str, str]:
    """Libraries that do not load, with the package of each."""
    absent = {}
    for library, package in LIBRARIES.items():
        try:
            ctypes.CDLL(library)
        except OSError:
            absent[library] = package
    return absent


def may_install() -> bool:
    """Whether packages are ours to install here."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None and not os.environ.get("RACELAB_NO_APT")


def add_for_tests() -> None:
    """Install what only tests want, if that is possible; they say what they skip."""
    path = f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"
    wanted = [package for program, package in FOR_TESTS.items() if shutil.which(program, path=path) is None]
    if wanted and may_install():
        print(f"installing {', '.join(wanted)} for the tests (RACELAB_NO_APT=1 to do it yourself)", flush=True)
        try:
            install(wanted)
        except subprocess.CalledProcessError as error:
            print(f"apt-get ended with code {error.returncode}; some tests will be skipped", file=sys.stderr)


def install(packages: list[str]) -> None:
    """Install Debian packages, waiting for another package manager if one is at work."""
    apt = ["apt-get", "-qq", "-o", f"DPkg::Lock::Timeout={LOCK_TIMEOUT_S}"]
    subprocess.run([*apt, "update"], check=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run([*apt, "install", "-y", "--no-install-recommends", *packages], check=True, env=environment)


def main() -> int:
    """0 when everything is there, 1 with a message when something is missing."""
    absent = missing()
    if "--tests" in sys.argv[1:]:
        add_for_tests()
    if absent and may_install():
        print(f"installing {', '.join(absent.values())} for Mooncake (RACELAB_NO_APT=1 to do it yourself)", flush=True)
        try:
            install(list(absent.values()))
        except subprocess.CalledProcessError as error:
            print(f"apt-get ended with code {error.returncode}", file=sys.stderr)
        absent = missing()
    for library, package in absent.items():
        print(f"missing {library}: install the package {package}", file=sys.stderr)
    if absent:
        print(f"  next: sudo apt-get install {' '.join(absent.values())}", file=sys.stderr)
    return 1 if absent else 0


if __name__ == "__main__":
    sys.exit(main())

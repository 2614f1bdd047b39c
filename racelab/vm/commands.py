"""`racelab cluster up|status|down softroce`: what each does, and the JSON object that it prints."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from typing import Any

from racelab.errors import LabError, UsageError
from racelab.shipped import shipped
from racelab.vm import image, machine, users
from racelab.vm.accel import boot_on_best
from racelab.vm.client import Supervisor
from racelab.vm.machine import NAME, Machine

Say = Callable[[str], None]


def check_name(name: str) -> None:
    """Only the Soft-RoCE machine is brought up here.

    Raises:
        UsageError: it is another cluster.
    """
    if name == NAME:
        return
    known = sorted(file.stem for file in shipped("clusters").glob("*.yaml"))
    if name in known:
        raise UsageError(
            f"cluster {name} has no machine of its own to bring up, look at or end: {NAME} alone has one",
            next=f"racelab doctor --cluster {name} says whether it can run here",
        )
    raise UsageError(f"unknown cluster {name!r}", next=f"one of: {', '.join(known)}; {NAME} alone has a machine")


def up(name: str, say: Say, *, rebuild: bool = False) -> dict[str, Any]:
    """Make the image if it is not there, boot the machine if it is not up; `say` is told what goes on.

    Raises:
        MissingPartError: this host cannot make it.
        LabError: making or booting it broke; the message says where.
    """
    check_name(name)
    began = time.monotonic()
    with _alone():
        running = machine.running()
        if running is not None and not rebuild:
            return status(name) | {"seconds": _since(began)}
        if running is not None:
            _check_unused(running, f"racelab cluster down {NAME} --force ends it all the same; then bring it up")
            machine.end(running)
        made = None if rebuild else image.load()
        cached = made is not None
        booted = boot_on_best(made or image.make(say), say)
    return _shown(booted) | {"cached": cached, "seconds": _since(began)}


def status(name: str) -> dict[str, Any]:
    """What there is: `up` or not, and whether its files are made.

    Raises:
        LabError: it is up and does not answer.
    """
    check_name(name)
    running = machine.running()
    if running is None:
        made = image.load()
        found: dict[str, Any] = {"cluster": name, "up": False, "built": made is not None}
        return found | ({"kernel": made.manifest.kernel} if made is not None else {})
    return _shown(running)


def down(name: str, *, purge: bool = False, force: bool = False) -> dict[str, Any]:
    """End the machine if it is up; with `purge` its files go from the cache too.

    Raises:
        LabError: another process uses it, and `force` was not asked for.
    """
    check_name(name)
    with _alone():
        running = machine.running()
        if running is not None:
            if not force:
                _check_unused(running, f"wait for it, or racelab cluster down {NAME} --force")
            machine.end(running)
        if purge:
            for part in image.cache().iterdir():
                if part.is_dir():
                    shutil.rmtree(part)
                elif part.name != _LOCK:
                    part.unlink()
    return {"cluster": name, "up": False, "ended": running is not None, "purged": purge}


def _check_unused(of: Machine, next: str) -> None:
    """Nobody's run is cut off without being asked for.

    Raises:
        LabError: somebody uses the machine; it is named.
    """
    in_use_by = users.others() or _leased(of)
    if in_use_by:
        raise LabError(f"{NAME} is in use by {'; '.join(in_use_by)}", next=next)


def _leased(of: Machine) -> list[str]:
    """Who has its lease; one that does not answer is of no use to anybody."""
    try:
        with Supervisor(of) as supervisor:
            lease = supervisor.ask("facts")["lease"]
    except (LabError, OSError):
        return []
    return [lease] if lease else []


def _shown(of: Machine) -> dict[str, Any]:
    try:
        with Supervisor(of) as supervisor:
            facts = supervisor.ask("facts")
    except LabError as error:
        raise LabError(
            f"{NAME} runs as process {of.pid} and does not answer ({error.what}): it is still booting, or broken",
            next=f"wait for it, or racelab cluster down {NAME}",
        ) from None
    return {
        "cluster": NAME,
        "up": True,
        "pid": of.pid,
        "port": of.port,
        "accelerator": of.accelerator,
        "kernel": facts["kernel"],
        "devices": facts["devices"],
        "boot_s": of.boot_s,
        "in_use_by": "; ".join(users.others()) or facts["lease"],
    }


def in_words(found: dict[str, Any]) -> str:
    """The same for people."""
    if found.get("up"):
        use = f", in use by {found['in_use_by']}" if found["in_use_by"] else ""
        return (
            f"{found['cluster']} is up: {', '.join(found['devices'])} (rdma_rxe, a software NIC) on Linux "
            f"{found['kernel']} under {found['accelerator'].upper()}, process {found['pid']}, booted in "
            f"{found['boot_s']} s{use}"
        )
    if "ended" in found:
        gone = "; its files are gone from the cache" if found["purged"] else ""
        return f"{found['cluster']} is down{gone}" if found["ended"] else f"{found['cluster']} was not up{gone}"
    built = "its files are made" if found["built"] else "its files are not made yet"
    return f"{found['cluster']} is not up; {built}"


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)


_LOCK = "lock"


@contextmanager
def _alone() -> Iterator[None]:
    """Nobody else brings it up or down meanwhile.

    Raises:
        LabError: somebody does, or its files cannot be read or written.
    """
    try:
        image.cache().mkdir(parents=True, exist_ok=True)
        with (image.cache() / _LOCK).open("w") as lock:
            flock(lock, LOCK_EX | LOCK_NB)
            yield
    except BlockingIOError:
        raise LabError(f"somebody else is bringing {NAME} up or down", next="wait for it, then try again") from None
    except OSError as error:
        raise LabError(
            f"the files of {NAME}: {error}",
            file=image.cache(),
            next="set XDG_CACHE_HOME to a folder with room, or racelab cluster up softroce --rebuild makes them anew",
        ) from None

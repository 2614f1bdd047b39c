"""Which accelerator boots here. A /dev/kvm may be there and useless (guests hang in their first instructions), so
KVM counts only once a kernel has come up under it; what was found is remembered until the host boots again."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from racelab.errors import LabError
from racelab.vm.image import Image, cache
from racelab.vm.machine import Machine, Say, boot

KVM = Path("/dev/kvm")
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Found(msgspec.Struct, frozen=True):
    """Whether KVM worked, and on which boot of the host that was found."""

    boot: str
    kvm: bool


def boot_on_best(image: Image, say: Say) -> Machine:
    """Boot under KVM if that works here, under TCG otherwise.

    Raises:
        LabError: it does not boot under TCG either.
    """
    if kvm_may_work():
        try:
            machine = boot(image, "kvm", say)
        except LabError as error:
            say(f"KVM is there and does not work ({error.what.split(';')[0]}); emulating")
            _remember(False)
        else:
            _remember(True)
            return machine
    return boot(image, "tcg", say)


def kvm_may_work() -> bool:
    """Whether there is a KVM, and it was not found useless since the host booted."""
    if not os.access(KVM, os.R_OK | os.W_OK):
        return False
    found = _remembered()
    return found is None or found.kvm


def _remembered() -> Found | None:
    try:
        found = msgspec.json.decode((cache() / "accelerator.json").read_bytes(), type=Found)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.boot == _BOOT.read_text().strip() else None


def _remember(kvm: bool) -> None:
    (cache() / "accelerator.json").write_bytes(msgspec.json.encode(Found(_BOOT.read_text().strip(), kvm)))

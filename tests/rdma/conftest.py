"""The Soft-RoCE machine for these tests: the one that is up, or one that is brought up and ended again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from injectors.verbs.build import compiler
from racelab.errors import LabError, MissingPartError
from racelab.vm import commands, image, machine, packages
from racelab.vm.client import Supervisor
from racelab.vm.machine import Machine


@pytest.fixture(scope="session")
def softroce() -> Iterator[Machine]:
    """A machine that is up. What this host lacks to make one is said, and skips; one that does not boot fails."""
    found = machine.running()
    if found is not None:
        yield found
        return
    try:
        packages.check_host()
        compiler()
    except MissingPartError as error:
        pytest.skip(f"the Soft-RoCE machine cannot be made here: {error.what}")
    if image.load() is None:
        try:
            image.make(print)
        except LabError as error:
            pytest.skip(f"the Soft-RoCE machine's packages cannot be had: {error.what}")
    commands.up("softroce", print)
    booted = machine.running()
    assert booted is not None
    yield booted
    commands.down("softroce")


@pytest.fixture
def supervisor(softroce: Machine) -> Iterator[Supervisor]:
    """Commands in the machine."""
    with Supervisor(softroce) as connected:
        yield connected

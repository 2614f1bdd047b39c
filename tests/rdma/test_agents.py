"""Agents in the machine: page memory that this process shares, writes and reads, and what the wire counts of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy
import pytest
from handles import final_code

from racelab.errors import PeerDiedError
from racelab.vm.agent import Agent
from racelab.vm.client import Supervisor
from racelab.vm.home import MachineHome
from racelab.vm.machine import Machine

pytestmark = pytest.mark.timeout(600)

BLOCK_BYTES = 1 << 20
BYTES = 65536


@pytest.fixture(scope="module")
def homes(softroce: Machine) -> Iterator[list[MachineHome]]:
    ends = (("writer", "10.77.0.1", "rxe0"), ("target", "10.77.0.2", "rxe1"))
    made = [MachineHome(*end, environment={}, kept="", kept_variable="") for end in ends]
    yield made
    for home in made:
        home.close()


def test_what_is_written_and_read_is_what_lies_here(homes: list[MachineHome]) -> None:
    """No copy is between: each side's bytes are looked at where the kernel put them."""
    writer, target = (home.engine() for home in homes)
    ours, theirs = (home.memory(BLOCK_BYTES) for home in homes)
    assert writer.register_memory(ours.address, BLOCK_BYTES) == 0
    assert target.register_memory(theirs.address, BLOCK_BYTES) == 0
    segment = f"10.77.0.2:{target.get_rpc_port()}"
    pattern = numpy.random.default_rng(1).integers(0, 256, BYTES, dtype=numpy.uint8)

    before = homes[0].devices().landed()
    assert before is not None
    ours.bytes[:BYTES] = pattern
    posted = writer.transfer_submit_write(segment, ours.address, theirs.address + BYTES, BYTES)
    assert final_code(writer, posted) == 1
    assert (theirs.bytes[BYTES : 2 * BYTES] == pattern).all()
    assert homes[0].devices().landed() == before + BYTES
    theirs.bytes[BYTES : 2 * BYTES] = pattern[::-1]
    read = writer.batch_transfer_async_read(segment, [ours.address + BYTES], [theirs.address + BYTES], [BYTES])
    assert final_code(writer, read) == 1
    assert (ours.bytes[BYTES : 2 * BYTES] == pattern[::-1]).all()
    assert homes[0].devices().landed() == before + 2 * BYTES
    assert homes[0].devices().rails() == 1
    for memory in (ours, theirs):
        memory.check()


def test_an_agent_that_ended_is_said(softroce: Machine, supervisor: Supervisor) -> None:
    agent = Agent("mortal", {})
    supervisor.checked(["kill", "-9", str(agent.pid)])
    with pytest.raises(PeerDiedError, match="mortal's agent in softroce died"):
        agent.ask("rails")
    agent.close()

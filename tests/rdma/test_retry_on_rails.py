"""Does Mooncake return success while an earlier attempt's packets can still land? Over kernel verbs, on rails.

The first attempt's packets are slow. With three retries its queue pair gives up, Mooncake writes again and says
success; the page is reused; then the packets of the first attempt arrive. With one rail Mooncake has to connect anew
for that, and its passive side retires the old endpoint's queue pairs: they are fenced. With two it goes on over another
queue pair, the first one lives on at the responder, and they land. With seven retries, which rdma_rxe takes as for
ever, nothing gives up, and success means that they have arrived.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from handles import final_code
from shaping import slow_first_packets, slowed_packets

from injectors.verbs.build import build
from racelab.vm.client import Supervisor
from racelab.vm.home import MachineHome
from racelab.vm.machine import Machine

pytestmark = pytest.mark.timeout(600)

DELAY_MS = 4000
BYTES = 4096
BLOCK_BYTES = 1 << 20
BOUND_S = 30.0
OLD, FIRST, REUSED = 0x11, 0x22, 0x33


class Ends:
    """A writer and a target in the machine, with one engine and one registered block each."""

    def __init__(self, retries: int, rails: int) -> None:
        environment = {"LD_PRELOAD": str(build().gate), "RACELAB_VERBS_RETRIES": str(retries)}
        devices = [",".join(names[:rails]) for names in (("rxe0", "rxe2"), ("rxe1", "rxe3"))]
        homes = (("writer", "10.77.0.1", devices[0]), ("target", "10.77.0.2", devices[1]))
        self.homes = [MachineHome(*home, environment=environment, kept="", kept_variable="") for home in homes]
        self.engines = [home.engine() for home in self.homes]
        self.blocks = [home.memory(BLOCK_BYTES) for home in self.homes]
        for engine, block in zip(self.engines, self.blocks, strict=True):
            assert engine.register_memory(block.address, BLOCK_BYTES) == 0

    def write(self, at: int = 0) -> int:
        """One write of one packet, and what Mooncake says of it."""
        (writer, target), (source, page) = self.engines, self.blocks
        segment = f"10.77.0.2:{target.get_rpc_port()}"
        handle = writer.transfer_submit_write(segment, source.address + at, page.address + at, BYTES)
        return final_code(writer, handle)

    def close(self) -> None:
        for home in self.homes:
            home.close()


@pytest.fixture
def ends(softroce: Machine, request: pytest.FixtureRequest) -> Iterator[Ends]:
    made = Ends(*request.param)
    assert made.write() == 1  # connected
    yield made
    made.close()


@pytest.mark.parametrize(
    ("ends", "gives_up", "lands"),
    [((3, 1), True, False), ((7, 1), False, False), ((3, 2), True, True)],
    indirect=["ends"],
)
def test_a_late_packet_of_a_write_that_was_said_to_have_succeeded(
    ends: Ends, gives_up: bool, lands: bool, supervisor: Supervisor
) -> None:
    source, page = ends.blocks
    source.bytes[:BYTES] = FIRST
    page.bytes[:BYTES] = OLD
    with slow_first_packets(supervisor, page.address, BYTES, DELAY_MS):
        assert ends.write() == 1
        assert (page.bytes[:BYTES] == FIRST).all()
        slowed, arrived = slowed_packets(supervisor)
        assert (arrived < slowed) if gives_up else arrived  # said before the first attempt's packets came, or after
        page.bytes[:BYTES] = REUSED
        deadline = time.monotonic() + BOUND_S
        while arrived < slowed:
            assert time.monotonic() < deadline, f"{slowed - arrived} slow packets never arrive"
            slowed, arrived = slowed_packets(supervisor)
        assert ends.write(at=BYTES) == 1  # a later write over the same wire: what came before it has been dealt with
    assert (page.bytes[:BYTES] == (FIRST if lands else REUSED)).all()

"""The packet gate: loses the packets with which a write begins, on the Soft-RoCE machine's wire, until it is let go.

    python -m injectors.packets --hub HOST:PORT --instance packets --beyond LAB

The writer's requester keeps sending again what is lost, and reads the source anew each time: what lands is what
the source holds by then. The verbs gate's library is preloaded as well; it stops nothing here, and tells of each
request and its completion.
"""

from __future__ import annotations

from racelab.gates import Injector, Mechanism

_SPAN = "InfiniBand Architecture 1.2.1, 9.7.6.1.3 and 11.2.4.2; Mooncake 0.3.13 (timeout 14, retry_cnt 7)"

INJECTOR = Injector(
    name="packets",
    subject="write",
    module="injectors.packets",
    means="a rule of nftables before the responder; the packet that begins a write is lost there, each time it is sent",
    stage="on the wire",
    payload="reread",
    transports=("rdma",),
    machines=("softroce",),
    preloads=True,
    ends=("release",),
    mechanisms={
        "congestion": Mechanism(
            means=(
                "a switch drops the packets of one flow and they are sent again: 4.096 us x 2^14, which a device may "
                "stretch fourfold, for the first try and 7 more. A NIC then gives up; rdma_rxe takes 7 as for ever"
            ),
            bound_ms=2_147,
            source=_SPAN,
        ),
        "retransmission": Mechanism(
            means="the same by any other loss: a flapping link, a failing optic",
            bound_ms=2_147,
            source=_SPAN,
        ),
    },
)

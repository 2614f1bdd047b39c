"""The packet gate: keeps or loses the packets of an access, on the Soft-RoCE machine's wire, until it is let go.

    python -m injectors.packets --hub HOST:PORT --instance packets --beyond LAB

Lost (`reread`, the default): the requester keeps sending again, and reads the source anew each time; what lands is
what the source holds by then. Kept (`at-hold`): what lands is what was sent, and it may outlive its requester's
patience (a `ghost`). The verbs gate's library is preloaded as well; it stops nothing here, and tells of each request
and its completion.
"""

from __future__ import annotations

from racelab.gates import Injector, Mechanism

_SPAN = "InfiniBand Architecture 1.2.1, 9.7.6.1.3 and 11.2.4.2; Mooncake 0.3.13 (timeout 14, retry_cnt 7)"

INJECTOR = Injector(
    name="packets",
    subject="write",
    module="injectors.packets",
    means="a rule of nftables before the responder; the packets of an access stay in the kernel there, or are lost",
    stage="on the wire",
    payload="reread",
    transports=("rdma",),
    machines=("softroce",),
    preloads=True,
    actions=("hold", "delay", "ghost"),
    payloads=("at-hold",),
    gives_up=("ghost", "drop"),
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
        "rail-failover": Mechanism(
            means=(
                "the packets of a request that its requester has given up are still in the network of one rail while "
                "the transport has gone on over another; bounded by the life of a packet, here the retransmission span"
            ),
            bound_ms=2_147,
            source=f"{_SPAN}; RFC 9293, 3.4.1 (segment lifetime) for routed RoCE v2",
        ),
    },
)

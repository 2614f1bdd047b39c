"""The verbs gate: holds, releases, fails and loses one-sided accesses of an RDMA transport, before the doorbell.

    python -m injectors.verbs --hub HOST:PORT --instance verbs [--simulated softhca] [--rails N]

A C library (gate.c) is preloaded into the processes that do RDMA and stops their work requests; this
package builds it, tells it what to stop, and turns what it reports into events. Where the cluster has
no NIC, a software device (softhca.c) is preloaded as well, and everything it shows is labelled simulated.
"""

from __future__ import annotations

from racelab.gates import Injector, Mechanism

INJECTOR = Injector(
    name="verbs",
    subject="write",
    module="injectors.verbs",
    means="a library preloaded into the writer; work requests stop in it before the doorbell, their queue pair behind",
    stage="posted, before the doorbell",
    payload="at-hold",
    transports=("rdma",),
    preloads=True,
    actions=("hold", "ghost", "fail", "lose-completion", "delay", "pass"),
    only_simulated=("ghost",),
    payloads=("at-hold", "at-release", "reread"),
    reads=("at-release",),
    mechanisms={
        "congestion": Mechanism(
            means=(
                "congestion control throttles the queue pair to its lowest rate (DCQCN's rpg_min_rate, 1 Mbit/s), and "
                "the request waits behind a full send queue (256 slices of 64 KiB in Mooncake); what leaves is "
                "acknowledged, so no retransmission timer expires"
            ),
            bound_ms=134_217,
            source="NVIDIA, DCQCN CC Parameters (rpg_min_rate: 1 Mb/s); Mooncake 0.3.13, MC_MAX_WR, MC_SLICE_SIZE",
        ),
        "retransmission": Mechanism(
            means=(
                "packets are lost and sent again: a timeout of 4.096 us x 2^14, which a device may stretch fourfold, "
                "for the first try and 7 more; then the requester gives up and its queue pair is in ERR"
            ),
            bound_ms=2_147,
            source="InfiniBand Architecture 1.2.1, 9.7.6.1.3 and 11.2.4.2; Mooncake 0.3.13, rdma_endpoint.cpp",
        ),
        "stalled-poster": Mechanism(
            means=(
                "the transport's own posting thread does not run (a frozen cgroup, a paused virtual machine) between "
                "the submit and the doorbell; the bound is that of Mooncake's synchronous calls, the others have none"
            ),
            bound_ms=30_000,
            source="Mooncake 0.3.13, MC_TRANSFER_TIMEOUT (30 s); MC_SLICE_TIMEOUT is off by default",
        ),
        "rail-failover": Mechanism(
            means=(
                "the packets of a request that its requester has given up are still in the network of one rail while "
                "the transport has gone on over another; bounded by the life of a packet, here the retransmission span"
            ),
            bound_ms=2_147,
            source="InfiniBand Architecture 1.2.1, 9.7.6.1.3; RFC 9293, 3.4.1 (segment lifetime) for routed RoCE v2",
        ),
    },
)

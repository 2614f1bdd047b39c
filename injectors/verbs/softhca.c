/* softhca: an RDMA device in software, for one machine and no NIC. Preload it, and a program that uses libibverbs
 * finds `softhca0`, `softhca1`, ... (SOFTHCA_RAILS, 2 by default), each with one RoCE port.
 *
 * An RDMA WRITE is process_vm_writev into the peer, a READ is process_vm_readv: the peer's CPU has no part in it,
 * so a stopped peer takes writes like a running one. What binds on a NIC binds here:
 *
 *   - a request needs a queue pair in RTS here and one there that is in RTR or RTS and connected back to it;
 *   - the responder checks rkey, bounds and access; a request that fails the check puts both ends into ERR;
 *   - in ERR every further request is flushed; nothing is carried out for a queue pair that is not alive;
 *   - a request is carried out within its post, so those of one queue pair land and complete in their order;
 *   - once ibv_dereg_mr or a change of state has returned, no access that it fences can still take effect.
 *
 * Not modelled: time (a lost peer is found at once, not after the retries), the wire, receives, atomics, and
 * memory that its owner unmapped while registered (a NIC writes into the pinned pages, this device refuses).
 */
#define _GNU_SOURCE
#include "softhca.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>

struct fabric *fabric;

/* -- memory */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    struct ibv_pd *pd = calloc(1, sizeof *pd);
    pd->context = context;
    return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd) {
    free(pd);
    return 0;
}

static uint32_t take_region(uint32_t port, void *address, size_t bytes, unsigned access) {
    uint32_t key = 0;
    fabric_lock(&fabric->layout);
    for (uint32_t i = 1; i < REGIONS_MAX && !key; i++) {
        struct region *region = &fabric->region[i];
        if (region->key) continue;
        region->tag = (region->tag + 1) & 0xff;
        fabric_lock(&fabric->lock[port]);
        region->port = port;
        region->address = (uintptr_t)address;
        region->bytes = bytes;
        region->access = access;
        region->key = key = i << 8 | region->tag;
        fabric_unlock(&fabric->lock[port]);
    }
    fabric_unlock(&fabric->layout);
    return key;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *address, size_t bytes, unsigned access) {
    uint32_t key = take_region(port_of(pd->context), address, bytes, access);
    if (!key) {
        errno = ENOMEM;
        return NULL;
    }
    struct ibv_mr *mr = calloc(1, sizeof *mr);
    *mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = address, .length = bytes, .lkey = key, .rkey = key};
    return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t bytes, int access) {
    return reg_mr(pd, address, bytes, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t bytes, uint64_t iova, unsigned access) {
    if (iova == (uintptr_t)address) return reg_mr(pd, address, bytes, access);
    errno = EOPNOTSUPP;
    return NULL;
}

int ibv_dereg_mr(struct ibv_mr *mr) {
    uint32_t port = port_of(mr->context);
    fabric_lock(&fabric->layout);
    fabric_lock(&fabric->lock[port]);
    fabric->region[mr->rkey >> 8].key = 0;
    fabric_unlock(&fabric->lock[port]);
    fabric_unlock(&fabric->layout);
    free(mr);
    return 0;
}

/* Whether `key` lets `access` to these bytes of `port`'s process. The port's lock is held. */
static int region_allows(uint32_t key, uint32_t port, uint64_t address, uint64_t bytes, unsigned access) {
    uint32_t index = key >> 8;
    if (!key || index >= REGIONS_MAX) return 0;
    const struct region *region = &fabric->region[index];
    return region->key == key && region->port == port && (region->access & access) == access &&
           address >= region->address && bytes <= region->bytes &&
           address - region->address <= region->bytes - bytes;
}

/* -- queue pairs */

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    uint32_t number = 0;
    if (attr->qp_type != IBV_QPT_RC) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    fabric_lock(&fabric->layout);
    for (int tries = 0; tries < QPS_MAX && !number; tries++) {
        uint32_t candidate = fabric->next_queue_pair++ & 0xffffff;
        if (candidate && !entry_of(candidate)->number) number = candidate;
    }
    if (number) {
        struct queue_pair *here = entry_of(number);
        __atomic_store_n(&here->port, port_of(pd->context), __ATOMIC_RELAXED);
        fabric_lock(&fabric->lock[here->port]);
        here->state = IBV_QPS_RESET;
        here->access = here->peer = here->peer_rail = 0;
        here->number = number;
        fabric_unlock(&fabric->lock[here->port]);
    }
    fabric_unlock(&fabric->layout);
    if (!number) {
        errno = ENOMEM;
        return NULL;
    }
    struct hca_qp *qp = calloc(1, sizeof *qp);
    qp->ibv.context = pd->context;
    qp->ibv.pd = pd;
    qp->ibv.qp_context = attr->qp_context;
    qp->ibv.send_cq = attr->send_cq;
    qp->ibv.recv_cq = attr->recv_cq;
    qp->ibv.qp_type = attr->qp_type;
    qp->ibv.qp_num = number;
    qp->signal_all = attr->sq_sig_all;
    qp->peer_life = -1;
    pthread_mutex_init(&qp->send, NULL);
    return &qp->ibv;
}

static int may_become(enum ibv_qp_state from, enum ibv_qp_state to) {
    switch (to) {
    case IBV_QPS_RESET:
    case IBV_QPS_ERR: return 1;
    case IBV_QPS_INIT: return from == IBV_QPS_RESET || from == IBV_QPS_INIT;
    case IBV_QPS_RTR: return from == IBV_QPS_INIT;
    case IBV_QPS_RTS: return from == IBV_QPS_RTR || from == IBV_QPS_RTS;
    default: return 0;
    }
}

static void watch_peer(struct hca_qp *qp, uint32_t peer) {
    if (qp->peer_life >= 0) close(qp->peer_life);
    fabric_lock(&fabric->layout);
    const struct queue_pair *there = entry_of(peer);
    uint32_t pid = there->number == peer ? fabric->port[there->port].pid : 0;
    fabric_unlock(&fabric->layout);
    qp->peer_life = pid ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask) {
    struct hca_qp *qp = (struct hca_qp *)ibv;
    struct queue_pair *here = entry_of(ibv->qp_num);
    int code = 0;
    pthread_mutex_lock(&qp->send);
    if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RTR) watch_peer(qp, attr->dest_qp_num);
    fabric_lock(&fabric->lock[here->port]);
    if ((mask & IBV_QP_STATE) && !may_become(here->state, attr->qp_state)) {
        code = EINVAL;
    } else {
        if (mask & IBV_QP_ACCESS_FLAGS) here->access = attr->qp_access_flags;
        if (mask & IBV_QP_DEST_QPN) here->peer = attr->dest_qp_num;
        if (mask & IBV_QP_AV) here->peer_rail = (uint32_t)attr->ah_attr.grh.dgid.raw[15] - 1;
        if (mask & IBV_QP_STATE) here->state = ibv->state = attr->qp_state;
    }
    fabric_unlock(&fabric->lock[here->port]);
    if (!code && (mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET) hca_forget(ibv);
    pthread_mutex_unlock(&qp->send);
    return code;
}

int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init) {
    (void)mask;
    struct queue_pair *here = entry_of(ibv->qp_num);
    fabric_lock(&fabric->lock[here->port]);
    *attr = (struct ibv_qp_attr){.qp_state = here->state, .cur_qp_state = here->state, .dest_qp_num = here->peer};
    fabric_unlock(&fabric->lock[here->port]);
    if (init) *init = (struct ibv_qp_init_attr){.send_cq = ibv->send_cq, .recv_cq = ibv->recv_cq};
    return 0;
}

int ibv_destroy_qp(struct ibv_qp *ibv) {
    struct hca_qp *qp = (struct hca_qp *)ibv;
    struct queue_pair *here = entry_of(ibv->qp_num);
    pthread_mutex_lock(&qp->send);
    fabric_lock(&fabric->layout);
    fabric_lock(&fabric->lock[here->port]);
    here->number = 0;
    fabric_unlock(&fabric->lock[here->port]);
    fabric_unlock(&fabric->layout);
    hca_forget(ibv);
    pthread_mutex_unlock(&qp->send);
    if (qp->peer_life >= 0) close(qp->peer_life);
    pthread_mutex_destroy(&qp->send);
    free(qp);
    return 0;
}

/* -- requests */

static int gone(int life) {
    struct pollfd watched = {.fd = life, .events = POLLIN};
    return life >= 0 && poll(&watched, 1, 0) == 1;
}

/* Carry a request out at the responder, whose lock is taken for the check and the copy together. */
static enum ibv_wc_status respond(uint32_t requester, uint32_t responder, uint32_t rail, int life,
                                  enum ibv_wr_opcode opcode, const struct iovec *local, int segments,
                                  uint64_t address, uint32_t rkey, uint64_t bytes) {
    int reads = opcode == IBV_WR_RDMA_READ;
    unsigned access = reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
    struct queue_pair *there = entry_of(responder);
    uint32_t port = __atomic_load_n(&there->port, __ATOMIC_RELAXED); /* looked at again under its lock */
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    fabric_lock(&fabric->lock[port]);
    int alive = there->number == responder && there->port == port && there->peer == requester &&
                fabric->port[port].rail == rail &&
                (there->state == IBV_QPS_RTR || there->state == IBV_QPS_RTS) && !gone(life);
    if (!alive) {
        status = IBV_WC_RETRY_EXC_ERR; /* nobody answers */
    } else if (!(there->access & access) || !region_allows(rkey, port, address, bytes, access)) {
        status = IBV_WC_REM_ACCESS_ERR;
        there->state = IBV_QPS_ERR; /* a responder of RC that refuses ends its queue pair */
    } else if (bytes) {
        struct iovec remote = {(void *)(uintptr_t)address, bytes};
        pid_t pid = (pid_t)fabric->port[port].pid;
        ssize_t moved = reads ? process_vm_readv(pid, local, (unsigned long)segments, &remote, 1, 0)
                              : process_vm_writev(pid, local, (unsigned long)segments, &remote, 1, 0);
        if (moved != (ssize_t)bytes) status = errno == ESRCH ? IBV_WC_RETRY_EXC_ERR : IBV_WC_REM_OP_ERR;
    }
    fabric_unlock(&fabric->lock[port]);
    return status;
}

static void tally(uint64_t *requests, uint64_t *bytes, uint64_t size) {
    __atomic_add_fetch(requests, 1, __ATOMIC_RELAXED);
    if (bytes) __atomic_add_fetch(bytes, size, __ATOMIC_RELAXED);
}

/* The local segments of a request; 0 if one of them is not registered here. The port's lock is held. */
static int gather(const struct ibv_send_wr *wr, uint32_t port, struct iovec *local, uint64_t *bytes) {
    unsigned access = wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;
    *bytes = 0;
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge *from = &wr->sg_list[i];
        if (!(wr->send_flags & IBV_SEND_INLINE) && !region_allows(from->lkey, port, from->addr, from->length, access))
            return 0;
        local[i] = (struct iovec){(void *)(uintptr_t)from->addr, from->length};
        *bytes += from->length;
    }
    return 1;
}

static void carry_out(struct hca_qp *qp, const struct ibv_send_wr *wr, struct queue_pair *here) {
    struct port *port = &fabric->port[here->port];
    struct iovec local[SEGMENTS_MAX];
    uint64_t bytes;
    fabric_lock(&fabric->lock[here->port]);
    enum ibv_qp_state state = here->state;
    uint32_t peer = here->peer, rail = here->peer_rail;
    int registered = gather(wr, here->port, local, &bytes);
    fabric_unlock(&fabric->lock[here->port]);

    enum ibv_wc_status status;
    if (state == IBV_QPS_ERR) status = IBV_WC_WR_FLUSH_ERR;
    else if (!registered) status = IBV_WC_LOC_PROT_ERR;
    else
        status = respond(qp->ibv.qp_num, peer, rail, qp->peer_life, wr->opcode, local, wr->num_sge,
                         wr->wr.rdma.remote_addr, wr->wr.rdma.rkey, bytes);
    tally(&port->posted_requests, &port->posted_bytes, bytes);
    if (status != IBV_WC_SUCCESS) {
        tally(&port->refused_requests, NULL, 0);
        fabric_lock(&fabric->lock[here->port]);
        here->state = IBV_QPS_ERR;
        fabric_unlock(&fabric->lock[here->port]);
    } else if (wr->opcode == IBV_WR_RDMA_READ) {
        tally(&port->read_requests, &port->read_bytes, bytes);
    } else {
        tally(&port->landed_requests, &port->landed_bytes, bytes);
    }
    if (status != IBV_WC_SUCCESS || qp->signal_all || (wr->send_flags & IBV_SEND_SIGNALED))
        hca_complete(&qp->ibv, wr, status, bytes);
}

int hca_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    struct hca_qp *qp = (struct hca_qp *)ibv;
    struct queue_pair *here = entry_of(ibv->qp_num);
    int code = 0;
    pthread_mutex_lock(&qp->send);
    for (; wr && !code; wr = code ? wr : wr->next) {
        fabric_lock(&fabric->lock[here->port]);
        int takes = here->state == IBV_QPS_RTS || here->state == IBV_QPS_ERR;
        fabric_unlock(&fabric->lock[here->port]);
        if (wr->opcode != IBV_WR_RDMA_WRITE && wr->opcode != IBV_WR_RDMA_READ) code = EOPNOTSUPP;
        else if (!takes || wr->num_sge > SEGMENTS_MAX) code = EINVAL;
        else carry_out(qp, wr, here);
    }
    pthread_mutex_unlock(&qp->send);
    if (code && bad) *bad = wr;
    return code;
}

int hca_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    (void)qp, (void)wr, (void)bad;
    return 0; /* nothing is ever received */
}

/* For a gate: the packets of a write that its queue pair has already given up arrive now. They still need a living
 * responder that is connected to that queue pair. Returns an ibv_wc_status; nobody is told of it. */
int softhca_late_write(struct ibv_context *context, uint32_t requester, uint32_t responder, uint32_t rkey,
                       uint64_t address, void *bytes, uint64_t size);

int softhca_late_write(struct ibv_context *context, uint32_t requester, uint32_t responder, uint32_t rkey,
                       uint64_t address, void *bytes, uint64_t size) {
    struct iovec local = {bytes, size};
    struct port *port = &fabric->port[port_of(context)];
    uint32_t rail = fabric->port[__atomic_load_n(&entry_of(responder)->port, __ATOMIC_RELAXED)].rail;
    enum ibv_wc_status status =
        respond(requester, responder, rail, -1, IBV_WR_RDMA_WRITE, &local, 1, address, rkey, size);
    if (status == IBV_WC_SUCCESS) tally(&port->late_requests, &port->late_bytes, size);
    else tally(&port->refused_requests, NULL, 0);
    return (int)status;
}

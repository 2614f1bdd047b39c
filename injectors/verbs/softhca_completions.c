/* Completions of the software device: queues, and channels that wake up who waits. Knows nothing of requests,
 * queue pairs in the fabric, or devices; softhca.c puts completions in, softhca_device.c hands the queues out.
 */
#define _GNU_SOURCE
#include "softhca.h"

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return NULL;
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    struct hca_channel *channel = calloc(1, sizeof *channel);
    channel->ibv.context = context;
    channel->ibv.fd = ends[0];
    channel->write_end = ends[1];
    return &channel->ibv;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
    close(channel->fd);
    close(((struct hca_channel *)channel)->write_end);
    free(channel);
    return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context) {
    if (read(channel->fd, cq, sizeof *cq) != sizeof *cq) return -1; /* blocks or not as the descriptor says */
    *cq_context = (*cq)->cq_context;
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count) { (void)cq, (void)count; }

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *cq_context,
                             struct ibv_comp_channel *channel, int vector) {
    (void)vector;
    if (entries < 1 || entries >= CQ_ENTRIES_MAX) {
        errno = EINVAL;
        return NULL;
    }
    struct hca_cq *cq = calloc(1, sizeof *cq + ((size_t)entries + 1) * sizeof cq->entries[0]);
    cq->ibv.context = context;
    cq->ibv.channel = channel;
    cq->ibv.cq_context = cq_context;
    cq->ibv.cqe = entries;
    cq->capacity = (uint32_t)entries + 1;
    pthread_mutex_init(&cq->lock, NULL);
    return &cq->ibv;
}

int ibv_destroy_cq(struct ibv_cq *cq) {
    pthread_mutex_destroy(&((struct hca_cq *)cq)->lock);
    free(cq);
    return 0;
}

void hca_complete(struct ibv_qp *qp, const struct ibv_send_wr *wr, enum ibv_wc_status status, uint64_t bytes) {
    struct hca_cq *cq = (struct hca_cq *)qp->send_cq;
    struct ibv_wc entry = {
        .wr_id = wr->wr_id, .status = status, .byte_len = (uint32_t)bytes, .qp_num = qp->qp_num,
        .opcode = wr->opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE,
    };
    pthread_mutex_lock(&cq->lock);
    uint32_t next = (cq->head + 1) % cq->capacity;
    if (next == cq->tail) {
        fprintf(stderr, "softhca: a completion queue of %d entries is overrun\n", cq->ibv.cqe);
        abort(); /* a NIC ends the queue; nothing that follows would mean anything */
    }
    cq->entries[cq->head] = entry;
    cq->head = next;
    int tell = cq->armed == 1 || (cq->armed == 2 && status != IBV_WC_SUCCESS);
    if (tell) cq->armed = 0;
    pthread_mutex_unlock(&cq->lock);
    struct ibv_cq *which = qp->send_cq;
    if (tell && which->channel) {
        ssize_t told = write(((struct hca_channel *)which->channel)->write_end, &which, sizeof which);
        (void)told; /* a full pipe has events enough */
    }
}

void hca_forget(struct ibv_qp *qp) {
    struct hca_cq *cq = (struct hca_cq *)qp->send_cq;
    pthread_mutex_lock(&cq->lock);
    uint32_t kept = cq->tail;
    for (uint32_t at = cq->tail; at != cq->head; at = (at + 1) % cq->capacity) {
        if (cq->entries[at].qp_num == qp->qp_num) continue;
        cq->entries[kept] = cq->entries[at];
        kept = (kept + 1) % cq->capacity;
    }
    cq->head = kept;
    pthread_mutex_unlock(&cq->lock);
}

int hca_poll_cq(struct ibv_cq *ibv, int entries, struct ibv_wc *wc) {
    struct hca_cq *cq = (struct hca_cq *)ibv;
    int count = 0;
    pthread_mutex_lock(&cq->lock);
    for (; count < entries && cq->tail != cq->head; cq->tail = (cq->tail + 1) % cq->capacity)
        wc[count++] = cq->entries[cq->tail];
    pthread_mutex_unlock(&cq->lock);
    return count;
}

int hca_req_notify_cq(struct ibv_cq *ibv, int solicited_only) {
    struct hca_cq *cq = (struct hca_cq *)ibv;
    pthread_mutex_lock(&cq->lock);
    cq->armed = solicited_only ? 2 : 1;
    pthread_mutex_unlock(&cq->lock);
    return 0;
}

/* -- words */

const char *ibv_wc_status_str(enum ibv_wc_status status) {
    static const char *const words[] = {
        [IBV_WC_SUCCESS] = "success", [IBV_WC_LOC_PROT_ERR] = "local protection error",
        [IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error", [IBV_WC_REM_ACCESS_ERR] = "remote access error",
        [IBV_WC_REM_OP_ERR] = "remote operation error", [IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
    };
    size_t known = sizeof words / sizeof *words;
    return (size_t)status < known && words[status] ? words[status] : "another error";
}

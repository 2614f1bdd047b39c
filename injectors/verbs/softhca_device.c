/* The software device as a program meets it: devices, their port, completion queues and channels. See softhca.c. */
#define _GNU_SOURCE
#include "softhca.h"

#include <sys/eventfd.h>
#include <sys/prctl.h>

struct fabric *fabric;
static struct ibv_device devices[RAILS_MAX];
static struct ibv_device *device_list[RAILS_MAX + 1];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void start(void) {
    const char *wanted = getenv("SOFTHCA_RAILS");
    int rails = wanted ? atoi(wanted) : 2;
    if (rails < 1 || rails > RAILS_MAX) rails = 2;
    fabric = fabric_attach(getenv("SOFTHCA_FABRIC"));
    for (int i = 0; fabric && i < rails; i++) {
        snprintf(devices[i].name, sizeof devices[i].name, "softhca%d", i);
        devices[i].node_type = IBV_NODE_CA;
        devices[i].transport_type = IBV_TRANSPORT_IB;
        device_list[i] = &devices[i];
    }
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* Yama: let peers write into this process */
}

/* -- devices */

struct ibv_device **ibv_get_device_list(int *count) {
    pthread_once(&once, start);
    int found = 0;
    while (device_list[found]) found++;
    if (count) *count = found;
    return device_list;
}

void ibv_free_device_list(struct ibv_device **list) { (void)list; }

const char *ibv_get_device_name(struct ibv_device *device) { return device->name; }

__be64 ibv_get_device_guid(struct ibv_device *device) { return (__be64)(device - devices + 1); }

int ibv_fork_init(void) { return 0; }

struct ibv_context *ibv_open_device(struct ibv_device *device) {
    pthread_once(&once, start);
    if (!fabric) return NULL;
    fabric_lock(&fabric->layout);
    uint32_t index = fabric->ports < PORTS_MAX ? fabric->ports++ : PORTS_MAX;
    if (index < PORTS_MAX) {
        fabric->port[index].rail = (uint32_t)(device - devices);
        fabric->port[index].pid = (uint32_t)getpid();
    }
    fabric_unlock(&fabric->layout);
    if (index == PORTS_MAX) {
        errno = ENOSPC;
        return NULL;
    }
    struct hca_context *context = calloc(1, sizeof *context);
    context->port = index;
    context->ibv.device = device;
    context->ibv.cmd_fd = -1;
    context->ibv.async_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    context->ibv.num_comp_vectors = 1;
    context->ibv.ops.post_send = hca_post_send;
    context->ibv.ops.post_recv = hca_post_recv;
    context->ibv.ops.poll_cq = hca_poll_cq;
    context->ibv.ops.req_notify_cq = hca_req_notify_cq;
    return &context->ibv;
}

int ibv_close_device(struct ibv_context *context) {
    close(context->async_fd);
    free(context);
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
    (void)context;
    *attr = (struct ibv_device_attr){
        .max_mr_size = 1ull << 40, .max_qp = QPS_MAX, .max_qp_wr = 8192, .max_sge = SEGMENTS_MAX,
        .max_cq = 1024, .max_cqe = CQ_ENTRIES_MAX - 1, .max_mr = REGIONS_MAX, .max_pd = 1024, .phys_port_cnt = 1,
        .max_qp_rd_atom = 16, .max_qp_init_rd_atom = 16,
    };
    return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *compat) {
    (void)context, (void)port;
    struct ibv_port_attr *attr = (struct ibv_port_attr *)compat; /* the caller cleared it, and may know an older one */
    attr->state = IBV_PORT_ACTIVE;
    attr->max_mtu = attr->active_mtu = IBV_MTU_4096;
    attr->gid_tbl_len = 1;
    attr->pkey_tbl_len = 1;
    attr->lid = 1;
    attr->active_width = 2;
    attr->active_speed = 32;
    attr->link_layer = IBV_LINK_LAYER_ETHERNET;
    return 0;
}

/* The rail's address: 127.0.1.<rail>, mapped into IPv6 as RoCE v2 does. */
static void rail_gid(uint32_t rail, union ibv_gid *gid) {
    memset(gid, 0, sizeof *gid);
    gid->raw[10] = gid->raw[11] = 0xff;
    gid->raw[12] = 127;
    gid->raw[14] = 1;
    gid->raw[15] = (uint8_t)(rail + 1);
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid) {
    (void)port;
    if (index) return -1;
    rail_gid(fabric->port[port_of(context)].rail, gid);
    return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
                      uint32_t flags, size_t size) {
    (void)flags;
    if (index) return ENODATA;
    memset(entry, 0, size);
    rail_gid(fabric->port[port_of(context)].rail, &entry->gid);
    entry->gid_type = IBV_GID_TYPE_ROCE_V2;
    entry->port_num = port;
    return 0;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event) {
    (void)context, (void)event;
    errno = EAGAIN; /* none ever comes */
    return -1;
}

void ibv_ack_async_event(struct ibv_async_event *event) { (void)event; }

/* -- completions */

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

const char *ibv_event_type_str(enum ibv_event_type event) {
    (void)event;
    return "an event";
}

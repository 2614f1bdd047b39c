/* The software device as a program meets it: devices and their port. See softhca.c. */
#define _GNU_SOURCE
#include "softhca.h"

#include <sys/eventfd.h>
#include <sys/prctl.h>

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

const char *ibv_event_type_str(enum ibv_event_type event) {
    (void)event;
    return "an event";
}

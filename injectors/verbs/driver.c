/* A small program that does verbs, for the self-test and the tests: two queue pairs in one process, connected to
 * each other on each rail, driven by lines on standard input. Every answer is one line.
 *
 *   post Q AT SIZE FILL FLAGS   write SIZE bytes of FILL to offset AT of the target over queue pair Q;
 *                               FLAGS: s signalled, u unsignalled, i inline, r a read, x a key that is not valid -> code
 *   poll N                      completions seen, waiting up to 2 s for N of them -> id:status ...
 *   peek AT SIZE                -> the different byte values in it
 *   fill VALUE                  fill the source buffer (what a late payload would read)
 *   state Q S                   move queue pair Q (here) to reset, error; peer-reset, peer-error (there) -> code
 *   destroy Q | dereg | counts  -> code, or the device's landed requests and bytes are read by the harness
 *   who Q                       -> queue pair numbers here and there, the target's key and address
 *   join Q PEER KEY ADDRESS     connect queue pair Q (here) to another driver's, and write to its target -> code
 *   meet Q PEER                 connect queue pair Q (there) to another driver's -> code
 *   event                       arm the completion channel and wait for an event after the next post -> 1 or 0
 *   time N SIZE                 N writes of SIZE bytes, one after the other over queue pair 0 -> ns a write
 *   threads N                   N threads post 200 writes each over both queue pairs -> completions seen
 */
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BYTES = 1 << 20, RAILS_MAX = 8, ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE };

struct rail {
    struct ibv_context *context;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_pd *pd;
    struct ibv_mr *source, *target;
    struct ibv_qp *here, *there;
    uint64_t address; /* of the target: our own, or another driver's */
    uint32_t key;
};

static struct rail rails[RAILS_MAX];
static int rail_count;
static unsigned char *source, *target;
static uint64_t next_id = 1;

static struct ibv_qp *make(struct rail *rail) {
    struct ibv_qp_init_attr attr = {.send_cq = rail->cq, .recv_cq = rail->cq, .qp_type = IBV_QPT_RC};
    attr.cap.max_send_wr = attr.cap.max_recv_wr = 128;
    attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
    attr.cap.max_inline_data = 64;
    return ibv_create_qp(rail->pd, &attr);
}

static int connect_pair(struct rail *rail, struct ibv_qp *qp, uint32_t peer) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ACCESS};
    int code = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .dest_qp_num = peer, .path_mtu = IBV_MTU_1024};
    ibv_query_gid(rail->context, 1, 0, &attr.ah_attr.grh.dgid);
    attr.ah_attr.is_global = attr.ah_attr.port_num = 1;
    attr.max_dest_rd_atomic = 1;
    code |= ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_PATH_MTU | IBV_QP_RQ_PSN |
                                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .max_rd_atomic = 1};
    return code | ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                               IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

static int set_up(void) {
    struct ibv_device **list = ibv_get_device_list(&rail_count);
    source = calloc(1, BYTES);
    target = calloc(1, BYTES);
    if (!list || !rail_count) return 1;
    for (int i = 0; i < rail_count; i++) {
        struct rail *rail = &rails[i];
        rail->context = ibv_open_device(list[i]);
        rail->channel = ibv_create_comp_channel(rail->context);
        rail->cq = ibv_create_cq(rail->context, 8192, NULL, rail->channel, 0);
        rail->pd = ibv_alloc_pd(rail->context);
        rail->source = ibv_reg_mr(rail->pd, source, BYTES, IBV_ACCESS_LOCAL_WRITE);
        rail->target = ibv_reg_mr(rail->pd, target, BYTES, ACCESS);
        rail->here = make(rail);
        rail->there = make(rail);
        rail->address = (uintptr_t)target;
        rail->key = rail->target->rkey;
        if (connect_pair(rail, rail->there, rail->here->qp_num) || connect_pair(rail, rail->here, rail->there->qp_num))
            return 1;
    }
    ibv_free_device_list(list);
    return 0;
}

static int post(struct rail *rail, uint64_t id, size_t at, size_t size, const char *flags) {
    struct ibv_sge from = {(uintptr_t)source + at, (uint32_t)size, rail->source->lkey};
    struct ibv_send_wr wr = {.wr_id = id, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    if (strchr(flags, 'r')) wr.opcode = IBV_WR_RDMA_READ;
    if (strchr(flags, 's')) wr.send_flags |= IBV_SEND_SIGNALED;
    if (strchr(flags, 'i')) wr.send_flags |= IBV_SEND_INLINE;
    wr.wr.rdma.remote_addr = rail->address + at;
    wr.wr.rdma.rkey = rail->key ^ (strchr(flags, 'x') ? 0x55 : 0);
    return ibv_post_send(rail->here, &wr, &bad);
}

static void poll_for(int wanted) {
    struct ibv_wc wc;
    int seen = 0;
    for (int round = 0; round < 2000 && seen < wanted; round++) {
        for (int i = 0; i < rail_count; i++)
            while (ibv_poll_cq(rails[i].cq, 1, &wc) == 1) {
                printf("%s%llu:%d", seen ? " " : "", (unsigned long long)wc.wr_id, wc.status);
                seen++;
            }
        if (seen < wanted) poll(NULL, 0, 1);
    }
    printf("\n");
}

static void peek(size_t at, size_t size) {
    unsigned char seen[256] = {0};
    for (size_t i = at; i < at + size; i++) seen[((volatile unsigned char *)target)[i]] = 1;
    for (int value = 0, count = 0; value < 256; value++)
        if (seen[value]) printf("%s%d", count++ ? " " : "", value);
    printf("\n");
}

static int move(struct rail *rail, const char *to) {
    struct ibv_qp_attr attr = {.qp_state = strstr(to, "reset") ? IBV_QPS_RESET : IBV_QPS_ERR};
    return ibv_modify_qp(strncmp(to, "peer", 4) ? rail->here : rail->there, &attr, IBV_QP_STATE);
}

static int wait_for_event(struct rail *rail) {
    struct pollfd watched = {.fd = rail->channel->fd, .events = POLLIN};
    struct ibv_cq *cq;
    void *context;
    ibv_req_notify_cq(rail->cq, 0);
    post(rail, next_id++, 0, 8, "s");
    if (poll(&watched, 1, 2000) != 1 || ibv_get_cq_event(rail->channel, &cq, &context)) return 0;
    ibv_ack_cq_events(cq, 1);
    return cq == rail->cq;
}

static int reconnect(struct rail *rail, struct ibv_qp *qp, unsigned peer) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
    return ibv_modify_qp(qp, &attr, IBV_QP_STATE) || connect_pair(rail, qp, peer);
}

static void *post_many(void *rank) {
    for (int i = 0; i < 200; i++)
        if (post(&rails[i % rail_count], 1000 + (uintptr_t)rank * 1000 + (uintptr_t)i, (uintptr_t)rank * 4096, 256, "s"))
            return (void *)1;
    return NULL;
}

static int run_threads(int count) {
    pthread_t threads[16];
    struct ibv_wc wc;
    int seen = 0;
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, post_many, (void *)(uintptr_t)i);
    for (int round = 0; round < 5000 && seen < 200 * count; round++) {
        for (int i = 0; i < rail_count; i++)
            while (ibv_poll_cq(rails[i].cq, 1, &wc) == 1) seen += wc.status == IBV_WC_SUCCESS;
        if (seen < 200 * count) poll(NULL, 0, 1);
    }
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    return seen;
}

static long time_writes(int count, size_t size) {
    struct timespec from, to;
    struct ibv_wc wc;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < count; i++) {
        if (post(&rails[0], next_id++, 0, size, "s")) return -1;
        while (!ibv_poll_cq(rails[0].cq, 1, &wc)) continue;
    }
    clock_gettime(CLOCK_MONOTONIC, &to);
    return ((to.tv_sec - from.tv_sec) * 1000000000L + to.tv_nsec - from.tv_nsec) / count;
}

static void obey(char *line) {
    char word[16], flags[8] = "";
    unsigned q = 0, fill = 0;
    size_t at = 0, size = 0;
    sscanf(line, "%15s", word);
    const char *rest = line + strlen(word);
    if (!strcmp(word, "post") && sscanf(rest, "%u %zu %zu %u %7s", &q, &at, &size, &fill, flags) == 5) {
        if (!strchr(flags, 'r')) memset(source + at, (int)fill, size);
        printf("%d\n", post(&rails[q], next_id++, at, size, flags));
    } else if (!strcmp(word, "poll") && sscanf(rest, "%u", &q) == 1) {
        poll_for((int)q);
    } else if (!strcmp(word, "peek") && sscanf(rest, "%zu %zu", &at, &size) == 2) {
        peek(at, size);
    } else if (!strcmp(word, "fill") && sscanf(rest, "%u", &fill) == 1) {
        memset(source, (int)fill, BYTES);
        printf("0\n");
    } else if (!strcmp(word, "state") && sscanf(rest, "%u %15s", &q, word) == 2) {
        printf("%d\n", move(&rails[q], word));
    } else if (!strcmp(word, "destroy") && sscanf(rest, "%u", &q) == 1) {
        printf("%d\n", ibv_destroy_qp(rails[q].here));
    } else if (!strcmp(word, "dereg")) {
        int code = 0;
        for (int i = 0; i < rail_count; i++) code |= ibv_dereg_mr(rails[i].target);
        printf("%d\n", code);
    } else if (!strcmp(word, "who") && sscanf(rest, "%u", &q) == 1) {
        printf("%u %u %u %llu\n", rails[q].here->qp_num, rails[q].there->qp_num, rails[q].target->rkey,
               (unsigned long long)(uintptr_t)target);
    } else if (!strcmp(word, "join") && sscanf(rest, "%u %u %zu %zu", &q, &fill, &size, &at) == 4) {
        rails[q].key = (uint32_t)size;
        rails[q].address = at;
        printf("%d\n", reconnect(&rails[q], rails[q].here, fill));
    } else if (!strcmp(word, "meet") && sscanf(rest, "%u %u", &q, &fill) == 2) {
        printf("%d\n", reconnect(&rails[q], rails[q].there, fill));
    } else if (!strcmp(word, "event")) {
        printf("%d\n", wait_for_event(&rails[0]));
    } else if (!strcmp(word, "time") && sscanf(rest, "%u %zu", &q, &size) == 2) {
        printf("%ld\n", time_writes((int)q, size));
    } else if (!strcmp(word, "threads") && sscanf(rest, "%u", &q) == 1) {
        printf("%d\n", run_threads((int)q));
    } else {
        printf("what? %s\n", line);
    }
}

int main(void) {
    char line[128];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (set_up()) {
        printf("no device\n");
        return 1;
    }
    printf("ready %d %llu\n", rail_count, (unsigned long long)(uintptr_t)target);
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        obey(line);
    }
    return 0;
}

/* One RDMA WRITE of one packet is under way on a slow wire; something ends; does it still land?
 *
 *   late CASE RETRIES    prints: landed|fenced|early, and what the requester was told (- for nothing)
 *
 * Requester on rxe0, responder on rxe1; the requester is a process of its own. `early` means that the packet arrived
 * before the end came, so that nothing is shown. The caller has made the wire slow.
 */
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4096, OLD = 0x11, LATE = 0x22, REUSED = 0x33, WAIT_MS = 4000 };

struct shared { /* between the processes; `page` is the responder's registered memory */
    char page[BYTES];
    volatile uint32_t qp[2], key, posted, ended, status, told;
    union ibv_gid gid[2];
    uint64_t address;
} *shared;

struct side {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
};

static void die(const char *what) {
    perror(what);
    exit(1);
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void await(volatile uint32_t *flag, const char *what) {
    for (double until = now_ms() + 10000; !*flag; usleep(500))
        if (now_ms() > until) die(what);
}

static struct side made(int end, void *memory) {
    struct side side = {0};
    char name[] = "rxe0";
    name[3] += (char)end;
    struct ibv_device **list = ibv_get_device_list(NULL);
    for (int i = 0; list && list[i]; i++)
        if (!strcmp(ibv_get_device_name(list[i]), name)) side.context = ibv_open_device(list[i]);
    if (!side.context) die(name);
    side.pd = ibv_alloc_pd(side.context);
    side.cq = ibv_create_cq(side.context, 16, NULL, NULL, 0);
    side.mr = ibv_reg_mr(side.pd, memory, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_qp_init_attr attr = {
        .send_cq = side.cq, .recv_cq = side.cq, .cap = {16, 16, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    side.qp = ibv_create_qp(side.pd, &attr);
    if (!side.mr || !side.qp) die("queue pair");
    ibv_query_gid(side.context, 1, 1, &shared->gid[end]);
    shared->qp[end] = side.qp->qp_num;
    return side;
}

static void connected(struct side *side, int end, int retries) {
    await(&shared->qp[!end], "the other end");
    struct ibv_qp_attr init = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};
    struct ibv_qp_attr rtr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = shared->qp[!end], .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = shared->gid[!end], .sgid_index = 1, .hop_limit = 64}}};
    struct ibv_qp_attr rts = {
        .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = (uint8_t)retries, .rnr_retry = 7, .max_rd_atomic = 1};
    int code = ibv_modify_qp(side->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    code |= ibv_modify_qp(
        side->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
            IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    code |= ibv_modify_qp(
        side->qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
            IBV_QP_MAX_QP_RD_ATOMIC);
    if (code) die("connect");
}

static void into(struct ibv_qp *qp, enum ibv_qp_state state) {
    struct ibv_qp_attr attr = {.qp_state = state};
    if (ibv_modify_qp(qp, &attr, IBV_QP_STATE)) die("modify");
}

static void poll_until(struct side *side, double until) {
    struct ibv_wc wc;
    while (now_ms() < until && !shared->told) {
        if (ibv_poll_cq(side->cq, 1, &wc) > 0) {
            shared->status = wc.status;
            shared->told = 1;
        }
        usleep(500);
    }
}

static void requester(const char *what, int retries) {
    static char source[BYTES] __attribute__((aligned(4096)));
    memset(source, LATE, sizeof source);
    struct side side = made(0, source);
    connected(&side, 0, retries);
    await(&shared->key, "the responder's key");
    struct ibv_sge sge = {(uintptr_t)source, BYTES, side.mr->lkey};
    struct ibv_send_wr wr = {
        .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *bad;
    wr.wr.rdma.remote_addr = shared->address;
    wr.wr.rdma.rkey = shared->key;
    if (ibv_post_send(side.qp, &wr, &bad)) die("post");
    shared->posted = 1;
    if (!strcmp(what, "requester-gives-up")) poll_until(&side, now_ms() + WAIT_MS);
    if (!strcmp(what, "requester-reset")) into(side.qp, IBV_QPS_RESET);
    if (!strcmp(what, "requester-error")) into(side.qp, IBV_QPS_ERR);
    if (!strcmp(what, "requester-destroyed") && ibv_destroy_qp(side.qp)) die("destroy");
    if (!strncmp(what, "requester-", 10) && strcmp(what, "requester-dies")) shared->ended = 1;
    if (strcmp(what, "requester-destroyed")) poll_until(&side, now_ms() + WAIT_MS);
    pause();
}

static void respond(const char *what, int retries, int parent) {
    struct side side = made(1, shared->page);
    connected(&side, 1, retries);
    shared->address = (uintptr_t)shared->page;
    shared->key = side.mr->rkey;
    await(&shared->posted, "the post");
    if (!strcmp(what, "deregistered") && ibv_dereg_mr(side.mr)) die("dereg");
    if (!strcmp(what, "responder-reset")) into(side.qp, IBV_QPS_RESET);
    if (!strcmp(what, "responder-error")) into(side.qp, IBV_QPS_ERR);
    if (!parent) pause();
}

int main(int count, char **words) {
    if (count < 3) return 2;
    const char *what = words[1];
    int retries = atoi(words[2]), apart = !strcmp(what, "responder-dies");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(shared->page, OLD, BYTES);
    pid_t writer = fork(), owner = 0;
    if (!writer) requester(what, retries);
    if (apart && !(owner = fork())) respond(what, retries, 0);
    if (!apart) respond(what, retries, 1);
    await(&shared->posted, "the post");
    if (!strncmp(what, "requester-", 10) && strcmp(what, "requester-dies")) await(&shared->ended, "the end");
    pid_t dead = !strcmp(what, "requester-dies") ? writer : owner;
    if (dead) kill(dead, SIGKILL), waitpid(dead, NULL, 0);
    int early = shared->page[0] != OLD;
    memset(shared->page, REUSED, BYTES);
    if (!strcmp(what, "packets-lost") && system("tc qdisc del dev veth0 root")) die("tc"); /* with all that is in it */
    double until = now_ms() + WAIT_MS;
    while (now_ms() < until && shared->page[BYTES - 1] == REUSED) usleep(500);
    int landed = shared->page[BYTES - 1] == LATE;
    while (now_ms() < until && !shared->told && strncmp(what, "requester-", 10)) usleep(500);
    const char *told = shared->told ? ibv_wc_status_str((enum ibv_wc_status)shared->status) : "-";
    printf("%s %s\n", early ? "early" : landed ? "landed" : "fenced", told);
    if (dead != writer) kill(writer, SIGKILL), waitpid(writer, NULL, 0);
    return 0;
}

/* The verbs gate: preloaded into a process that does RDMA, it stops work requests before the doorbell.
 *
 *   post_send -> wanted by a watch, or behind something stopped? -> the queue pair's own queue -> the device
 *   poll_cq   <- what the device completed, then what the gate itself completes (flushes, retries exceeded)
 *
 * It stands in `context->ops`, which the inline ibv_post_send and ibv_poll_cq go through, and in front of the calls
 * that make, change and end queue pairs and registrations, which it reports. A queue pair is stopped in order: what
 * comes later waits behind what is held. While nothing is watched, nothing is queued and nothing is owed, a post
 * costs one load and one addition, a poll one load.
 *
 * What bypasses `ops` bypasses the gate (ibv_wr_* on an extended queue pair, doorbells written by the program); the
 * device's own counts then differ from the gate's. A completion that the gate itself makes is seen by whoever polls;
 * a completion channel does not wake up for it.
 */
#define _GNU_SOURCE
#include "requests.h"

/* -- the ways of a request; the lock is held */

static struct watch *wanting(const struct ibv_send_wr *wr, uint64_t size) {
    uint64_t start = wr->wr.rdma.remote_addr;
    for (struct watch *watch = is_access(wr) ? watches : NULL; watch; watch = watch->next)
        if (watch->left && start < watch->address + watch->bytes && watch->address < start + size) return watch;
    return NULL;
}

/* Keep the bytes as they are now. They leave from memory of our own, which the device has to know. */
static void keep_bytes(struct request *request, int inlined) {
    char *at = request->snapshot = malloc(request->bytes ? request->bytes : 1);
    for (int i = 0; i < request->wr.num_sge; i++) {
        memcpy(at, (void *)(uintptr_t)request->segments[i].addr, request->segments[i].length);
        at += request->segments[i].length;
    }
    uint32_t key = 0;
    if (!inlined) {
        request->snapshot_mr =
            BEHIND(ibv_reg_mr, "IBVERBS_1.1")(request->pair->qp->pd, request->snapshot, request->bytes, 0);
        key = request->snapshot_mr ? request->snapshot_mr->lkey : 0;
    }
    request->segments[0] = (struct ibv_sge){(uintptr_t)request->snapshot, (uint32_t)request->bytes, key};
    request->wr.num_sge = 1;
}

static struct request *copy_of(struct pair *pair, const struct ibv_send_wr *wr, struct watch *watch, uint64_t size) {
    size_t segments = wr->num_sge > 0 ? (size_t)wr->num_sge : 1;
    struct request *request = calloc(1, sizeof *request + segments * sizeof request->segments[0]);
    int inlined = !!(wr->send_flags & IBV_SEND_INLINE);
    request->pair = pair;
    request->queue_pair = pair->number;
    request->peer = pair->peer;
    request->context = pair->qp->context;
    request->wr = *wr;
    request->wr.next = NULL;
    request->wr.sg_list = request->segments;
    if (wr->num_sge > 0) memcpy(request->segments, wr->sg_list, segments * sizeof request->segments[0]);
    request->wr_id = wr->wr_id;
    request->bytes = size;
    request->number = ++pair->requests;
    request->signalled = !!(wr->send_flags & IBV_SEND_SIGNALED);
    if (watch) {
        request->watch = watch->id;
        request->action = watch->action;
        request->payload = watch->payload;
    }
    int keeps = watch && watch->payload == AT_HOLD && wr->opcode != IBV_WR_RDMA_READ && size;
    if (keeps || (inlined && size)) keep_bytes(request, inlined); /* inline data is the caller's only during the post */
    return request;
}

static void tell(struct request *request, enum ibv_wc_status status) {
    struct ibv_wc wc = {
        .wr_id = request->wr_id, .status = status, .qp_num = request->pair->number, .byte_len = (uint32_t)request->bytes,
        .opcode = request->wr.opcode == IBV_WR_RDMA_READ ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE,
    };
    owe(request->pair->withheld.first ? &request->pair->withheld : &owed, request->pair->qp->send_cq, &wc, 0, 0);
}

static void flush(struct pair *pair) {
    for (struct request *request; (request = pair->queue.first);) {
        take(&pair->queue, request);
        say(request, FLUSHED, IBV_WC_WR_FLUSH_ERR);
        tell(request, IBV_WC_WR_FLUSH_ERR);
        discard(request);
    }
}

static void into_error(struct pair *pair) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    BEHIND(ibv_modify_qp, "IBVERBS_1.1")(pair->qp, &attr, IBV_QP_STATE);
    say_pair(pair, IBV_QPS_ERR);
    flush(pair);
}

/* The request left and was never acknowledged: its process is told so, and its queue pair ends. Its packets are lost,
 * or, of a ghost, still on their way. */
static void give_up(struct request *request) {
    struct pair *pair = request->pair;
    int lives_on = request->action == GHOST && !request->dropped;
    take(&pair->queue, request);
    say(request, DOORBELL, IBV_WC_SUCCESS);
    say(request, COMPLETED, IBV_WC_RETRY_EXC_ERR);
    if (!lives_on) say(request, LOST, IBV_WC_RETRY_EXC_ERR);
    tell(request, IBV_WC_RETRY_EXC_ERR);
    into_error(pair);
    if (lives_on) {
        request->pair = NULL; /* which may end before its packets arrive */
        if (request->snapshot_mr) BEHIND(ibv_dereg_mr, "IBVERBS_1.1")(request->snapshot_mr);
        request->snapshot_mr = NULL;
        append(&ghosts, request);
    } else {
        discard(request);
    }
}

/* Counted before the device has them: it may carry them out, and have it known, before this thread runs again. */
static void count_posted(uint64_t requests, uint64_t bytes) {
    __atomic_add_fetch(&posted_requests, requests, __ATOMIC_RELAXED);
    __atomic_add_fetch(&posted_bytes, bytes, __ATOMIC_RELAXED);
}

/* Hand the first request of the queue to the device. If the device does not take it, its process is told by a
 * completion, or by the code if it is in the middle of posting this very request (`fresh`). */
static int ring(struct pair *pair, const struct request *fresh) {
    struct request *request = pair->queue.first;
    struct ibv_send_wr *bad;
    take(&pair->queue, request);
    request->wr.wr_id = (uintptr_t)request;
    request->wr.send_flags |= IBV_SEND_SIGNALED;
    append(&pair->flying, request); /* before the post: another thread may poll at once, and waits for the lock */
    say(request, DOORBELL, IBV_WC_SUCCESS);
    count_posted(1, request->bytes);
    int code = origin_of(pair->qp->context)->post(pair->qp, &request->wr, &bad);
    if (!code) return 0;
    count_posted(-1ull, -request->bytes);
    take(&pair->flying, request);
    say(request, FLUSHED, IBV_WC_WR_FLUSH_ERR);
    int returned = request == fresh;
    if (!returned) tell(request, IBV_WC_WR_FLUSH_ERR);
    discard(request);
    return returned ? code : 0;
}

/* Let go what may go, in order; the code of the `fresh` one's post. */
static int pump(struct pair *pair, const struct request *fresh) {
    int code = 0;
    for (struct request *first; (first = pair->queue.first);) {
        int stopped = first->watch && !first->released;
        if (first->dropped || (stopped && (first->action == FAIL || first->action == GHOST))) {
            give_up(first);
        } else if (stopped && first->action == HOLD) {
            break;
        } else {
            code = ring(pair, fresh);
        }
    }
    return code;
}

/* -- the two functions of the data path */

static int post_slowly(struct pair *pair, struct ibv_qp *qp, struct ibv_send_wr *wr) {
    uint64_t size = size_of(wr);
    struct watch *watch = wanting(wr, size);
    if (!pair || (!watch && !pair->watched)) {
        struct ibv_send_wr one = *wr, *bad;
        one.next = NULL;
        count_posted(1, size);
        int code = origin_of(qp->context)->post(qp, &one, &bad);
        if (code) count_posted(-1ull, -size);
        return code;
    }
    if (watch) {
        watch->left -= size < watch->left ? size : watch->left;
        watch_pair(pair, 1);
    }
    struct request *request = copy_of(pair, wr, watch, size);
    append(&pair->queue, request);
    say(request, QUEUED, IBV_WC_SUCCESS);
    return pump(pair, request);
}

static int gate_post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    if (!__atomic_load_n(&busy, __ATOMIC_ACQUIRE)) {
        uint64_t requests = 0, bytes = 0;
        for (struct ibv_send_wr *one = wr; one; one = one->next) requests++, bytes += size_of(one);
        count_posted(requests, bytes);
        int code = origin_of(qp->context)->post(qp, wr, bad);
        for (struct ibv_send_wr *one = code ? *bad : NULL; one; one = one->next) count_posted(-1ull, -size_of(one));
        return code;
    }
    int code = 0;
    pthread_mutex_lock(&lock);
    struct pair *pair = pair_of(qp->context, qp->qp_num);
    for (; wr && !(code = post_slowly(pair, qp, wr)); wr = wr->next) continue;
    pthread_mutex_unlock(&lock);
    if (code) *bad = wr;
    return code;
}

/* What the device said of one request: 1 if its process is to see it now. It sees nothing before the gate has heard
 * of it, else its own words could come before those of the landing. */
static int completed(struct ibv_cq *cq, struct ibv_wc *wc, uint32_t *ticket) {
    struct pair *pair = pair_of(cq->context, wc->qp_num);
    if (!pair) return 1;
    struct request *request = (struct request *)(uintptr_t)wc->wr_id;
    uint64_t kept = 0;
    int shown = 1;
    if (take(&pair->flying, request)) {
        uint32_t heard = say(request, COMPLETED, wc->status);
        if (heard) *ticket = heard;
        wc->wr_id = request->wr_id;
        shown = request->signalled || wc->status != IBV_WC_SUCCESS;
        int loses = request->action == LOSE_COMPLETION && request->watch && shown;
        if (loses && request->dropped) {
            wc->status = IBV_WC_RETRY_EXC_ERR;
            into_error(pair);
        } else if (loses && !request->released) {
            say(request, WITHHELD, wc->status);
            kept = request->watch;
        }
        discard(request);
    }
    if (wc->status != IBV_WC_SUCCESS && pair->queue.first) { /* the device has put the queue pair into ERR */
        say_pair(pair, IBV_QPS_ERR);
        flush(pair);
    }
    if (shown && (kept || pair->withheld.first)) {
        owe(&pair->withheld, cq, wc, 0, kept);
        shown = 0;
    }
    unwatch_pair(pair);
    return shown;
}

/* Show up to `room` completions that the gate owes on this queue; how many there were. */
static int pay(struct ibv_cq *cq, int first, struct ibv_wc *wc, int room) {
    int shown = 0;
    for (struct owed **at = &owed.first; shown < room && *at;) {
        struct owed *one = *at;
        if (one->cq != cq || one->first != first) {
            at = &one->next;
            continue;
        }
        wc[shown++] = one->wc;
        *at = one->next;
        free(one);
        __atomic_sub_fetch(&busy, 1, __ATOMIC_RELAXED);
    }
    owed.last = &owed.first;
    while (*owed.last) owed.last = &(*owed.last)->next;
    return shown;
}

static int gate_poll(struct ibv_cq *cq, int entries, struct ibv_wc *wc) {
    const struct origin *origin = origin_of(cq->context);
    if (!__atomic_load_n(&busy, __ATOMIC_ACQUIRE)) return origin->poll(cq, entries, wc);
    uint32_t ticket = 0;
    pthread_mutex_lock(&lock);
    int shown = pay(cq, 1, wc, entries), room = entries - shown;
    int count = room ? origin->poll(cq, room, wc + shown) : 0;
    for (int i = 0, from = shown; i < count; i++)
        if (completed(cq, &wc[from + i], &ticket)) wc[shown++] = wc[from + i];
    if (count >= 0 && count < room) shown += pay(cq, 0, wc + shown, entries - shown); /* the device has none older */
    pthread_mutex_unlock(&lock);
    link_wait(&gate, ticket); /* reports are heard in order, so the last one stands for all */
    return count < 0 && !shown ? count : shown;
}

/* -- commands; the lock is held */

/* What was kept back for a watch is shown, with what stood behind it; or is lost, and then so is all behind it. */
static void show_withheld(struct pair *pair, uint64_t watch, int lost) {
    enum ibv_wc_status status = IBV_WC_SUCCESS;
    int mine = 0;
    for (struct owed *one = pair->withheld.first; one; one = one->next) {
        if (one->watch == watch && !mine++ && lost) status = IBV_WC_RETRY_EXC_ERR;
        if (one->watch == watch || (status && one->watch)) {
            struct message told = {
                .kind = REQUEST, .watch = one->watch, .queue_pair = pair->number, .state = lost ? LOST : TOLD,
            };
            put_name(&told, pair->qp->context);
            link_send(&gate, &told);
            one->watch = 0;
        }
        if (status) one->wc.status = status;
        if (status) status = IBV_WC_WR_FLUSH_ERR;
    }
    if (!mine) return;
    for (struct owed *one; (one = pair->withheld.first) && !one->watch; free(one)) {
        pair->withheld.first = one->next;
        owe(&owed, one->cq, &one->wc, 1, 0);
        __atomic_sub_fetch(&busy, 1, __ATOMIC_RELAXED);
    }
    if (lost) into_error(pair);
    unwatch_pair(pair);
}

static void mark(const struct list *list, uint64_t watch, int lost) {
    for (struct request *request = list->first; request; request = request->next)
        if (request->watch == watch) *(lost ? &request->dropped : &request->released) = 1;
}

static void let_go(uint64_t watch, int lost) {
    for (int i = 0; i < BUCKETS; i++)
        for (struct pair *pair = pairs[i]; pair; pair = pair->next) {
            show_withheld(pair, watch, lost);
            mark(&pair->queue, watch, lost);
            mark(&pair->flying, watch, lost); /* whose completion was to be kept back and has not come yet */
            pump(pair, NULL);
            unwatch_pair(pair);
        }
    for (struct request *request = ghosts.first, *next; request; request = next) {
        next = request->next;
        if (request->watch != watch) continue;
        take(&ghosts, request);
        enum ibv_wc_status status = IBV_WC_RETRY_EXC_ERR;
        if (!lost)
            status = (enum ibv_wc_status)late_write(
                request->context, request->queue_pair, request->peer, request->wr.wr.rdma.rkey,
                request->wr.wr.rdma.remote_addr, request->snapshot, request->bytes);
        say(request, lost ? LOST : LATE, status);
        discard(request);
    }
}

static void obey(const struct message *command) {
    struct message answer = {.kind = ANSWER, .ticket = command->ticket};
    pthread_mutex_lock(&lock);
    int impossible = command->state > FOLLOW || command->number > REREAD ||
                     (command->state == GHOST && (!late_write || command->number != AT_HOLD));
    if (command->kind == WATCH && impossible) {
        answer.status = EOPNOTSUPP; /* behind a real device a packet cannot be kept back */
    } else if (command->kind == WATCH) {
        struct watch *watch = calloc(1, sizeof *watch), **last = &watches;
        *watch = (struct watch){
            .id = command->watch, .address = command->address, .bytes = command->bytes, .left = command->bytes,
            .action = command->state, .payload = command->number,
        };
        while (*last) last = &(*last)->next;
        *last = watch;
        __atomic_add_fetch(&busy, 1, __ATOMIC_RELEASE);
    } else if (command->kind == RELEASE || command->kind == DROP) {
        forget_watch(command->watch);
        let_go(command->watch, command->kind == DROP);
    } else if (command->kind == FORGET) {
        forget_watch(command->watch);
        answer.number = stopped();
    } else if (command->kind == COUNT) {
        answer.number = __atomic_load_n(&posted_requests, __ATOMIC_RELAXED);
        answer.bytes = __atomic_load_n(&posted_bytes, __ATOMIC_RELAXED);
    }
    link_send(&gate, &answer);
    pthread_mutex_unlock(&lock);
}

static void *listen_to_gate(void *unused) {
    struct message message;
    (void)unused;
    while (recv(gate.socket, &message, sizeof message, MSG_WAITALL) == sizeof message) {
        if (message.kind == HEARD) link_heard(&gate, message.ticket);
        else obey(&message);
    }
    link_ended(&gate);
    return NULL;
}

static void connect_once(void) {
    const char *where = getenv("RACELAB_VERBS_GATE"), *name = getenv("RACELAB_INSTANCE");
    struct message hello = {.kind = HELLO, .number = (uint64_t)getpid()};
    pthread_t reader;
    late_write = (__typeof__(late_write))dlsym(RTLD_DEFAULT, "softhca_late_write");
    if (!where || (gate.socket = link_connect(where)) < 0) return;
    snprintf(hello.name, sizeof hello.name, "%s", name ? name : "");
    link_send(&gate, &hello);
    if (pthread_create(&reader, NULL, listen_to_gate, NULL) == 0) pthread_detach(reader);
}

/* -- the calls in front of which it stands */

struct ibv_context *ibv_open_device(struct ibv_device *device) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, connect_once);
    struct ibv_context *context = BEHIND(ibv_open_device, "IBVERBS_1.1")(device);
    if (!context) return NULL;
    pthread_mutex_lock(&lock);
    int count = origin_count;
    if (count < CONTEXTS_MAX) {
        origins[count] = (struct origin){context, context->ops.post_send, context->ops.poll_cq};
        context->ops.post_send = gate_post;
        context->ops.poll_cq = gate_poll;
        __atomic_store_n(&origin_count, count + 1, __ATOMIC_RELEASE);
    } else {
        fprintf(stderr, "verbs gate: more than %d contexts; what goes over this one is not counted\n", CONTEXTS_MAX);
    }
    pthread_mutex_unlock(&lock);
    return context;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    struct ibv_qp *qp = BEHIND(ibv_create_qp, "IBVERBS_1.1")(pd, attr);
    if (!qp) return NULL;
    struct pair *pair = calloc(1, sizeof *pair);
    pair->qp = qp;
    pair->number = qp->qp_num;
    pthread_mutex_lock(&lock);
    pair->next = pairs[pair->number % BUCKETS];
    pairs[pair->number % BUCKETS] = pair;
    uint32_t ticket = say_pair(pair, IBV_QPS_RESET);
    pthread_mutex_unlock(&lock);
    link_wait(&gate, ticket);
    return qp;
}

/* A queue pair that is reset or destroyed takes what is queued with it, and nobody is told. */
static void lose(struct pair *pair) {
    for (struct request *request; (request = pair->queue.first); discard(request)) {
        take(&pair->queue, request);
        say(request, LOST, IBV_WC_WR_FLUSH_ERR);
    }
    for (struct request *request; (request = pair->flying.first); discard(request)) take(&pair->flying, request);
    forget_owed(&owed, pair);
    forget_owed(&pair->withheld, pair);
    watch_pair(pair, 0);
}

/* How often a requester tries again before it gives up is Mooncake's own constant (7); a lab may ask for another. */
static void shorten(struct ibv_qp_attr *attr, int mask) {
    const char *retries = getenv("RACELAB_VERBS_RETRIES");
    if (retries && (mask & IBV_QP_RETRY_CNT)) attr->retry_cnt = (uint8_t)atoi(retries);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
    uint32_t ticket = 0;
    shorten(attr, mask);
    pthread_mutex_lock(&lock); /* over both, so that nothing is handed to a queue pair that has just ended */
    int code = BEHIND(ibv_modify_qp, "IBVERBS_1.1")(qp, attr, mask);
    struct pair *pair = pair_of(qp->context, qp->qp_num);
    if (!code && pair && (mask & IBV_QP_STATE)) {
        if (mask & IBV_QP_DEST_QPN) pair->peer = attr->dest_qp_num;
        if (attr->qp_state == IBV_QPS_RESET) lose(pair);
        ticket = say_pair(pair, attr->qp_state);
        if (attr->qp_state == IBV_QPS_ERR) flush(pair);
    }
    pthread_mutex_unlock(&lock);
    link_wait(&gate, ticket);
    return code;
}

int ibv_destroy_qp(struct ibv_qp *qp) {
    uint32_t ticket = 0;
    pthread_mutex_lock(&lock);
    struct pair **at = &pairs[qp->qp_num % BUCKETS];
    while (*at && (*at)->qp != qp) at = &(*at)->next;
    struct pair *pair = *at;
    if (pair) {
        *at = pair->next;
        lose(pair);
        ticket = say_pair(pair, DESTROYED);
        free(pair);
    }
    int code = BEHIND(ibv_destroy_qp, "IBVERBS_1.1")(qp);
    pthread_mutex_unlock(&lock);
    link_wait(&gate, ticket);
    return code;
}

static void say_region(const struct ibv_mr *mr, uint32_t key, int registered) {
    struct message message = {
        .kind = REGION, .key = key, .address = (uintptr_t)mr->addr, .bytes = mr->length, .state = registered,
    };
    put_name(&message, mr->context);
    link_wait(&gate, link_send_urgent(&gate, &message));
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t bytes, int access) {
    struct ibv_mr *mr = BEHIND(ibv_reg_mr, "IBVERBS_1.1")(pd, address, bytes, access);
    if (mr) say_region(mr, mr->rkey, 1);
    return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t bytes, uint64_t iova, unsigned access) {
    struct ibv_mr *mr = BEHIND(ibv_reg_mr_iova2, "IBVERBS_1.8")(pd, address, bytes, iova, access);
    if (mr) say_region(mr, mr->rkey, 1);
    return mr;
}

int ibv_dereg_mr(struct ibv_mr *mr) {
    struct ibv_mr was = *mr;
    int code = BEHIND(ibv_dereg_mr, "IBVERBS_1.1")(mr);
    if (!code) say_region(&was, was.rkey, 0);
    return code;
}

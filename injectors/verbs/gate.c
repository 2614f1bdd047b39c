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
#include "link.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>

#undef ibv_reg_mr

enum { CONTEXTS_MAX = 64, BUCKETS = 1024 };

struct watch {
    struct watch *next;
    uint64_t id, address, bytes, left; /* `left`: bytes that have not stopped yet */
    enum action action;
    enum payload payload;
};

struct request { /* a copy of a work request that was wanted, or that came behind one */
    struct request *next;
    struct pair *pair;
    struct ibv_send_wr wr;
    uint64_t watch, number, bytes, wr_id;
    enum action action;
    enum payload payload;
    int released, dropped, signalled;
    uint32_t queue_pair, peer;
    struct ibv_context *context;
    void *snapshot;
    struct ibv_mr *snapshot_mr;
    struct ibv_sge segments[];
};

struct list {
    struct request *first, **last;
};

struct owed { /* a completion that the gate makes or has kept back */
    struct owed *next;
    struct ibv_cq *cq;
    uint32_t queue_pair;
    struct ibv_wc wc;
};

struct owed_list {
    struct owed *first, **last;
};

struct pair {
    struct pair *next;
    struct ibv_qp *qp;
    uint32_t number, peer;
    uint64_t requests;      /* counted from the first stop on */
    int watched;            /* something was stopped here and not all of it is over */
    struct list queue;      /* not handed to the device yet */
    struct list flying;     /* handed over under `wr_id` = its own address */
    uint64_t withholding;   /* the watch whose completion is kept back, and with it all that follow */
    struct owed_list withheld;
};

struct origin { /* a device's own functions */
    struct ibv_context *context;
    int (*post)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
    int (*poll)(struct ibv_cq *, int, struct ibv_wc *);
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* everything below but what is atomic */
static struct watch *watches;
static struct pair *pairs[BUCKETS];
static struct list ghosts;
static struct owed_list owed;
static struct origin origins[CONTEXTS_MAX];
static int origin_count;                            /* atomic */
static int busy;                                    /* atomic: watches, watched pairs and owed completions */
static uint64_t posted_requests, posted_bytes;      /* atomic */
static struct link gate = {.socket = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .heard = PTHREAD_COND_INITIALIZER};
static int (*late_write)(struct ibv_context *, uint32_t, uint32_t, uint32_t, uint64_t, void *, uint64_t);

/* -- the library behind */

static void *behind(const char *name, const char *version) {
    void *found = dlsym(RTLD_NEXT, name); /* another preload, or a program that is linked with the library */
    if (found) return found;
    void *library = dlopen("libibverbs.so.1", RTLD_NOW); /* Python loads its extensions, and this, out of sight */
    return library ? dlvsym(library, name, version) : NULL;
}

#define BEHIND(name, version) \
    ({ \
        static __typeof__(&name) found; \
        if (!__atomic_load_n(&found, __ATOMIC_ACQUIRE)) \
            __atomic_store_n(&found, (__typeof__(&name))behind(#name, version), __ATOMIC_RELEASE); \
        found; \
    })

static const struct origin *origin_of(const struct ibv_context *context) {
    int count = __atomic_load_n(&origin_count, __ATOMIC_ACQUIRE);
    for (int i = count - 1; i >= 0; i--)
        if (origins[i].context == context) return &origins[i];
    abort(); /* only contexts with swapped functions come here */
}

/* -- lists */

static void append(struct list *list, struct request *request) {
    request->next = NULL;
    if (!list->first) list->last = &list->first;
    *list->last = request;
    list->last = &request->next;
}

static int take(struct list *list, const struct request *request) {
    for (struct request **at = &list->first; *at; at = &(*at)->next)
        if (*at == request) {
            *at = request->next;
            if (!*at) list->last = at;
            return 1;
        }
    return 0;
}

static void owe(struct owed_list *list, struct ibv_cq *cq, const struct ibv_wc *wc) {
    struct owed *one = calloc(1, sizeof *one);
    one->cq = cq;
    one->queue_pair = wc->qp_num;
    one->wc = *wc;
    if (!list->first) list->last = &list->first;
    *list->last = one;
    list->last = &one->next;
    __atomic_add_fetch(&busy, 1, __ATOMIC_RELAXED);
}

static void forget_owed(struct owed_list *list, uint32_t queue_pair) {
    for (struct owed **at = &list->first; *at;) {
        struct owed *one = *at;
        if (one->queue_pair != queue_pair) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        free(one);
        __atomic_sub_fetch(&busy, 1, __ATOMIC_RELAXED);
    }
    list->last = &list->first;
    while (*list->last) list->last = &(*list->last)->next;
}

static struct pair *pair_of(uint32_t number) {
    struct pair *pair = pairs[number % BUCKETS];
    while (pair && pair->number != number) pair = pair->next;
    return pair;
}

static void watch_pair(struct pair *pair, int on) {
    if (pair->watched == on) return;
    pair->watched = on;
    __atomic_add_fetch(&busy, on ? 1 : -1, __ATOMIC_RELAXED);
}

static void discard(struct request *request) {
    if (request->snapshot_mr) BEHIND(ibv_dereg_mr, "IBVERBS_1.1")(request->snapshot_mr);
    free(request->snapshot);
    free(request);
}

/* -- reports */

static void put_name(struct message *message, const struct ibv_context *context) {
    snprintf(message->name, sizeof message->name, "%s", context->device->name);
}

/* 0, or the ticket to wait with (without the lock) until the gate has heard of it. */
static uint32_t say(const struct request *request, enum move move, enum ibv_wc_status status) {
    struct message message = {
        .kind = REQUEST, .watch = request->watch, .number = request->number, .bytes = request->bytes,
        .address = request->wr.wr.rdma.remote_addr, .key = request->wr.wr.rdma.rkey,
        .queue_pair = request->queue_pair, .peer = request->peer, .opcode = request->wr.opcode,
        .state = move, .status = status,
    };
    put_name(&message, request->context);
    if (move == COMPLETED && request->watch) return link_send_urgent(&gate, &message);
    link_send(&gate, &message);
    return 0;
}

static uint32_t say_pair(const struct pair *pair, uint32_t state) {
    struct message message = {.kind = QUEUE_PAIR, .queue_pair = pair->number, .peer = pair->peer, .state = state};
    put_name(&message, pair->qp->context);
    return link_send_urgent(&gate, &message);
}

/* -- the ways of a request; the lock is held */

static uint64_t size_of(const struct ibv_send_wr *wr) {
    uint64_t size = 0;
    for (int i = 0; i < wr->num_sge; i++) size += wr->sg_list[i].length;
    return size;
}

static int is_access(const struct ibv_send_wr *wr) {
    return wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
           wr->opcode == IBV_WR_RDMA_READ;
}

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
    owe(request->pair->withholding ? &request->pair->withheld : &owed, request->pair->qp->send_cq, &wc);
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
    int code = origin_of(pair->qp->context)->post(pair->qp, &request->wr, &bad);
    if (!code) {
        __atomic_add_fetch(&posted_requests, 1, __ATOMIC_RELAXED);
        __atomic_add_fetch(&posted_bytes, request->bytes, __ATOMIC_RELAXED);
        return 0;
    }
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
        int code = origin_of(qp->context)->post(qp, &one, &bad);
        if (!code) __atomic_add_fetch(&posted_requests, 1, __ATOMIC_RELAXED);
        if (!code) __atomic_add_fetch(&posted_bytes, size, __ATOMIC_RELAXED);
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
        int code = origin_of(qp->context)->post(qp, wr, bad);
        for (; wr && (!code || wr != *bad); wr = wr->next) requests++, bytes += size_of(wr);
        __atomic_add_fetch(&posted_requests, requests, __ATOMIC_RELAXED);
        __atomic_add_fetch(&posted_bytes, bytes, __ATOMIC_RELAXED);
        return code;
    }
    int code = 0;
    pthread_mutex_lock(&lock);
    struct pair *pair = pair_of(qp->qp_num);
    for (; wr && !(code = post_slowly(pair, qp, wr)); wr = wr->next) continue;
    pthread_mutex_unlock(&lock);
    if (code) *bad = wr;
    return code;
}

/* What the device said of one request: 1 if its process is to see it now. It sees nothing before the gate has heard
 * of it, else its own words could come before those of the landing. */
static int completed(struct ibv_cq *cq, struct ibv_wc *wc, uint32_t *ticket) {
    struct pair *pair = pair_of(wc->qp_num);
    if (!pair) return 1;
    struct request *request = (struct request *)(uintptr_t)wc->wr_id;
    int shown = 1;
    if (take(&pair->flying, request)) {
        uint32_t heard = say(request, COMPLETED, wc->status);
        if (heard) *ticket = heard;
        wc->wr_id = request->wr_id;
        shown = request->signalled || wc->status != IBV_WC_SUCCESS;
        if (request->action == LOSE_COMPLETION && request->watch && !request->released && shown) {
            say(request, WITHHELD, wc->status);
            pair->withholding = request->watch;
        }
        discard(request);
    }
    if (wc->status != IBV_WC_SUCCESS && pair->queue.first) { /* the device has put the queue pair into ERR */
        say_pair(pair, IBV_QPS_ERR);
        flush(pair);
    }
    if (shown && pair->withholding) {
        owe(&pair->withheld, cq, wc);
        shown = 0;
    }
    if (!pair->queue.first && !pair->flying.first && !pair->withholding) watch_pair(pair, 0);
    return shown;
}

static int gate_poll(struct ibv_cq *cq, int entries, struct ibv_wc *wc) {
    const struct origin *origin = origin_of(cq->context);
    if (!__atomic_load_n(&busy, __ATOMIC_ACQUIRE)) return origin->poll(cq, entries, wc);
    int shown = 0;
    uint32_t ticket = 0;
    pthread_mutex_lock(&lock);
    int count = origin->poll(cq, entries, wc);
    for (int i = 0; i < count; i++)
        if (completed(cq, &wc[i], &ticket)) wc[shown++] = wc[i];
    for (struct owed **at = &owed.first; count >= 0 && count < entries && shown < entries && *at;) {
        struct owed *one = *at; /* the device has nothing older: now what the gate owes */
        if (one->cq != cq) {
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
    pthread_mutex_unlock(&lock);
    link_wait(&gate, ticket); /* reports are heard in order, so the last one stands for all */
    return count < 0 ? count : shown;
}

/* -- commands; the lock is held */

static void show_withheld(struct pair *pair, int lost) {
    struct message told = {
        .kind = REQUEST, .watch = pair->withholding, .queue_pair = pair->number, .state = lost ? LOST : TOLD,
    };
    enum ibv_wc_status status = IBV_WC_RETRY_EXC_ERR;
    link_send(&gate, &told);
    pair->withholding = 0;
    for (struct owed *one; (one = pair->withheld.first); free(one)) {
        pair->withheld.first = one->next;
        if (lost) one->wc.status = status;
        status = IBV_WC_WR_FLUSH_ERR;
        owe(&owed, one->cq, &one->wc);
        __atomic_sub_fetch(&busy, 1, __ATOMIC_RELAXED);
    }
    if (lost) into_error(pair);
    if (!pair->queue.first && !pair->flying.first) watch_pair(pair, 0);
}

static void let_go(uint64_t watch, int lost) {
    for (int i = 0; i < BUCKETS; i++)
        for (struct pair *pair = pairs[i]; pair; pair = pair->next) {
            if (pair->withholding == watch) show_withheld(pair, lost);
            for (struct request *request = pair->queue.first; request; request = request->next)
                if (request->watch == watch) *(lost ? &request->dropped : &request->released) = 1;
            pump(pair, NULL);
            if (!pair->queue.first && !pair->flying.first && !pair->withholding) watch_pair(pair, 0);
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

static void forget_watch(uint64_t id) {
    for (struct watch **at = &watches; *at;) {
        struct watch *watch = *at;
        if (id && watch->id != id) {
            at = &watch->next;
            continue;
        }
        *at = watch->next;
        free(watch);
        __atomic_sub_fetch(&busy, 1, __ATOMIC_RELAXED);
    }
}

static uint64_t stopped(void) {
    uint64_t count = 0;
    for (struct request *ghost = ghosts.first; ghost; ghost = ghost->next) count++;
    for (int i = 0; i < BUCKETS; i++)
        for (struct pair *pair = pairs[i]; pair; pair = pair->next) {
            if (pair->withholding) count++;
            for (struct request *request = pair->queue.first; request; request = request->next) count++;
        }
    return count;
}

static void obey(const struct message *command) {
    struct message answer = {.kind = ANSWER, .ticket = command->ticket};
    pthread_mutex_lock(&lock);
    if (command->kind == WATCH && command->state == GHOST && !late_write) {
        answer.status = EOPNOTSUPP; /* a packet cannot be kept back behind a real device */
    } else if (command->kind == WATCH) {
        struct watch *watch = calloc(1, sizeof *watch), **last = &watches;
        *watch = (struct watch){
            .id = command->watch, .address = command->address, .bytes = command->bytes, .left = command->bytes,
            .action = command->state, .payload = command->state == GHOST ? AT_HOLD : command->number,
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
    while (recv(gate.socket, &message, sizeof message, 0) == sizeof message) {
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
    forget_owed(&owed, pair->number);
    forget_owed(&pair->withheld, pair->number);
    pair->withholding = 0;
    watch_pair(pair, 0);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
    uint32_t ticket = 0;
    pthread_mutex_lock(&lock); /* over both, so that nothing is handed to a queue pair that has just ended */
    int code = BEHIND(ibv_modify_qp, "IBVERBS_1.1")(qp, attr, mask);
    struct pair *pair = pair_of(qp->qp_num);
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

/* What the verbs gate remembers: watches, queue pairs, the requests that are stopped or under way, and completions
 * that it owes; the lists they stand in, and the reports of what becomes of them. gate.c alone includes it.
 */
#ifndef RACELAB_VERBS_REQUESTS_H
#define RACELAB_VERBS_REQUESTS_H

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
    uint64_t watch; /* kept back for this one, and not only behind one that is */
    int first; /* kept back: older than what the device still has */
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
    struct owed_list withheld; /* completions that are kept back, and all that came after the first of them */
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

static void owe(struct owed_list *list, struct ibv_cq *cq, const struct ibv_wc *wc, int first, uint64_t watch) {
    struct owed *one = calloc(1, sizeof *one);
    one->first = first;
    one->watch = watch;
    one->cq = cq;
    one->queue_pair = wc->qp_num;
    one->wc = *wc;
    if (!list->first) list->last = &list->first;
    *list->last = one;
    list->last = &one->next;
    __atomic_add_fetch(&busy, 1, __ATOMIC_RELAXED);
}

static void forget_owed(struct owed_list *list, const struct pair *pair) {
    for (struct owed **at = &list->first; *at;) {
        struct owed *one = *at;
        if (one->queue_pair != pair->number || one->cq->context != pair->qp->context) {
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

/* Numbers are a device's own: two rails of one process have the same ones. */
static struct pair *pair_of(const struct ibv_context *context, uint32_t number) {
    struct pair *pair = pairs[number % BUCKETS];
    while (pair && (pair->number != number || pair->qp->context != context)) pair = pair->next;
    return pair;
}

static void watch_pair(struct pair *pair, int on) {
    if (pair->watched == on) return;
    pair->watched = on;
    __atomic_add_fetch(&busy, on ? 1 : -1, __ATOMIC_RELAXED);
}

/* Once nothing of it is stopped, under way or kept back. */
static void unwatch_pair(struct pair *pair) {
    if (!pair->queue.first && !pair->flying.first && !pair->withheld.first) watch_pair(pair, 0);
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

/* Requests and completions that are stopped, for a lab that is about to be used again. */
static uint64_t stopped(void) {
    uint64_t count = 0;
    for (struct request *ghost = ghosts.first; ghost; ghost = ghost->next) count++;
    for (int i = 0; i < BUCKETS; i++)
        for (struct pair *pair = pairs[i]; pair; pair = pair->next) {
            if (pair->withheld.first) count++;
            for (struct request *request = pair->queue.first; request; request = request->next) count++;
        }
    return count;
}

static void discard(struct request *request) {
    if (request->snapshot_mr) BEHIND(ibv_dereg_mr, "IBVERBS_1.1")(request->snapshot_mr);
    free(request->snapshot);
    free(request);
}

static uint64_t size_of(const struct ibv_send_wr *wr) {
    uint64_t size = 0;
    for (int i = 0; i < wr->num_sge; i++) size += wr->sg_list[i].length;
    return size;
}

static int is_access(const struct ibv_send_wr *wr) {
    return wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
           wr->opcode == IBV_WR_RDMA_READ;
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

#endif

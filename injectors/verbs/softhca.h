/* The objects of the software device. Its functions that leave their file start with hca_ and are not exported.
 * Calls go one way: softhca_device.c (what a program opens) to softhca.c (memory, queue pairs, requests) to
 * softhca_completions.c.
 */
#ifndef RACELAB_SOFTHCA_H
#define RACELAB_SOFTHCA_H

#include "fabric.h"

#include <infiniband/verbs.h>

#undef ibv_query_port
#undef ibv_reg_mr

#pragma GCC visibility push(hidden)

enum { RAILS_MAX = 8, SEGMENTS_MAX = 16, CQ_ENTRIES_MAX = 1 << 16 };

struct hca_context {
    struct ibv_context ibv;
    uint32_t port;
};

struct hca_cq {
    struct ibv_cq ibv;
    pthread_mutex_t lock;
    int armed; /* 0: no, 1: for the next completion, 2: for the next error */
    uint32_t capacity, head, tail;
    struct ibv_wc entries[];
};

struct hca_channel {
    struct ibv_comp_channel ibv; /* ibv.fd is the reading end of a pipe of `struct ibv_cq *` */
    int write_end;
};

struct hca_qp {
    struct ibv_qp ibv;
    pthread_mutex_t send; /* one request at a time: the order of a queue pair */
    int signal_all;
    int peer_life; /* a pidfd of the peer's process, or -1 */
};

extern struct fabric *fabric;

/* softhca.c */
int hca_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int hca_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* softhca_completions.c */
int hca_poll_cq(struct ibv_cq *cq, int entries, struct ibv_wc *wc);
int hca_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* Take the completions of a queue pair that is reset or destroyed out of its queue, as a NIC's driver does. */
void hca_forget(struct ibv_qp *qp);

/* Put a completion into a queue pair's send queue, and wake up who armed it. */
void hca_complete(struct ibv_qp *qp, const struct ibv_send_wr *wr, enum ibv_wc_status status, uint64_t bytes);

static inline uint32_t port_of(struct ibv_context *context) { return ((struct hca_context *)context)->port; }

static inline struct queue_pair *entry_of(uint32_t number) { return &fabric->queue_pair[number % QPS_MAX]; }

#pragma GCC visibility pop

#endif

/* The fabric: what every process on the software device sees of every other, in one shared file.
 *
 * The harness makes the file empty and names it in SOFTHCA_FABRIC; the first process to open a device lays it out.
 * Head and ports have a fixed layout, which racelab/transport/softhca.py reads while the lab runs.
 *
 * A port is one device opened by one process. Its lock orders everything that touches what the port owns: nobody
 * is in the middle of a copy when one of its registrations or queue pairs ends. The lock is robust: a process that
 * is killed in mid-copy leaves it to the next. Nobody ever holds two.
 */
#ifndef RACELAB_FABRIC_H
#define RACELAB_FABRIC_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FABRIC_MAGIC = 0x66626131, PORTS_MAX = 256, QPS_MAX = 4096, REGIONS_MAX = 16384 };

struct port { /* 80 bytes; counts only grow */
    uint32_t pid;  /* 0: never opened */
    uint32_t rail; /* which device: softhca0, softhca1, ... */
    uint64_t posted_requests, posted_bytes; /* requests that this port took from its process */
    uint64_t landed_requests, landed_bytes; /* writes of its process that the responder took */
    uint64_t read_requests, read_bytes;
    uint64_t late_requests, late_bytes; /* writes that landed after their queue pair had given them up */
    uint64_t refused_requests;          /* no such region, out of its bounds, or nobody there */
};

struct queue_pair { /* guarded by its port's lock */
    uint32_t number; /* 0: free */
    uint32_t port;
    uint32_t state; /* enum ibv_qp_state */
    uint32_t access; /* IBV_ACCESS_REMOTE_* that its owner grants to the peer */
    uint32_t peer;
    uint32_t peer_rail;
};

struct region { /* guarded by its port's lock */
    uint32_t key; /* index << 8 | a tag that changes with every registration; 0: free */
    uint32_t port;
    uint64_t address, bytes;
    uint32_t access;
    uint32_t tag;
};

struct fabric {
    uint32_t magic, ports, next_queue_pair, rails;
    struct port port[PORTS_MAX];
    pthread_mutex_t lock[PORTS_MAX];
    pthread_mutex_t layout; /* who opens a port, and which slots are free */
    struct queue_pair queue_pair[QPS_MAX];
    struct region region[REGIONS_MAX];
};

_Static_assert(sizeof(struct port) == 80, "racelab/transport/softhca.py reads ports of 80 bytes");

static inline void fabric_lock(pthread_mutex_t *lock) {
    if (pthread_mutex_lock(lock) == EOWNERDEAD) pthread_mutex_consistent(lock);
}

static inline void fabric_unlock(pthread_mutex_t *lock) { pthread_mutex_unlock(lock); }

static inline void fabric_lay_out(struct fabric *fabric) {
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    for (int i = 0; i < PORTS_MAX; i++) pthread_mutex_init(&fabric->lock[i], &shared);
    pthread_mutex_init(&fabric->layout, &shared);
    pthread_mutexattr_destroy(&shared);
    fabric->next_queue_pair = 1;
    fabric->magic = FABRIC_MAGIC;
}

/* Map the file, and lay it out if nobody has. NULL, with a line on stderr, if that cannot be done. */
static inline struct fabric *fabric_attach(const char *path) {
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) {
        fprintf(stderr, "softhca: SOFTHCA_FABRIC=%s: %s\n", path ? path : "", path ? strerror(errno) : "not set");
        return NULL;
    }
    flock(file, LOCK_EX);
    struct fabric *fabric = MAP_FAILED;
    if (ftruncate(file, sizeof *fabric) == 0)
        fabric = mmap(NULL, sizeof *fabric, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (fabric != MAP_FAILED && fabric->magic != FABRIC_MAGIC) fabric_lay_out(fabric);
    flock(file, LOCK_UN);
    close(file);
    return fabric == MAP_FAILED ? NULL : fabric;
}

#endif

/* What the verbs gate in a process and the gate's own process say to each other: one struct in both directions,
 * over a SOCK_SEQPACKET unix socket named in RACELAB_VERBS_GATE (a leading @ means the abstract namespace), or over a
 * connected stream that the process has inherited as descriptor N (fd:N), where the gate is on another machine.
 * injectors/verbs/layout.py has the same layout.
 */
#ifndef RACELAB_VERBS_LINK_H
#define RACELAB_VERBS_LINK_H

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum kind {
    HELLO = 1, /* name: the instance; number: its pid */
    QUEUE_PAIR, /* queue_pair, state (enum ibv_qp_state, or DESTROYED), peer, name: the device */
    REGION,     /* key, address, bytes, state (1 registered, 0 gone), name: the device */
    REQUEST,    /* what became of a work request: state is a move, name the device */
    ANSWER,     /* to a command, by its ticket */
    WATCH,      /* a command: stop what goes to [address, address + bytes); state is an action, number a payload */
    FORGET,     /* a command: end a watch, or all of them with watch 0; answers what is still stopped */
    RELEASE,    /* a command: what was stopped under a watch goes on */
    DROP,       /* a command: what was stopped under a watch is lost */
    COUNT,      /* a command: answers requests (number) and bytes that went to the device */
    HEARD,      /* the gate has this report: the caller may go on */
};

enum move {
    QUEUED = 1, /* stopped by a watch, or behind something that is */
    DOORBELL,   /* handed to the device */
    COMPLETED,  /* the device said how it ended: status */
    FLUSHED,    /* never handed to the device: its queue pair went to ERR, and its process was told so */
    LOST,       /* it will not land, and nobody is told: its queue pair was reset or destroyed, or its packets lost */
    WITHHELD,   /* it has ended, and its process is not told */
    TOLD,       /* its process is told, after all */
    LATE,       /* the packets of a request that was given up have arrived: status */
};

enum action { HOLD = 0, GHOST, LOSE_COMPLETION, FAIL, FOLLOW /* held elsewhere: reported, and never stopped */ };
/* REREAD: a retransmission reads the source again. What it was at the hold went out and was lost, so what lands is as
 * with AT_RELEASE; inline data is the device's own copy either way, and a ghost has nobody to retransmit it. */
enum payload { AT_HOLD = 0, AT_RELEASE, REREAD };
enum { DESTROYED = 100 };

struct message {
    uint32_t kind, ticket;
    uint64_t watch, number, address, bytes;
    uint32_t queue_pair, peer, key, state, opcode, status;
    char name[64];
};

_Static_assert(sizeof(struct message) == 128, "injectors/verbs/layout.py packs 128 bytes");

struct link {
    int socket; /* -1: no gate, and nothing is ever held */
    pthread_mutex_t lock;
    pthread_cond_t heard;
    uint32_t next_ticket;
    uint64_t waiting[64]; /* bit t: the report with ticket t mod 4096 has not been heard */
    int gone;
};

enum { HEARD_BOUND_S = 5, TICKETS = 64 * 64 };

static inline int link_connect(const char *where) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(where);
    if (!strncmp(where, "fd:", 3)) return atoi(where + 3);
    int fd = length < sizeof address.sun_path ? socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0) return -1;
    memcpy(address.sun_path, where, length);
    if (where[0] == '@') address.sun_path[0] = '\0';
    if (connect(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) == 0)
        return fd;
    fprintf(stderr, "verbs gate: nobody listens at %s: %s\n", where, strerror(errno));
    close(fd);
    return -1;
}

static inline void link_send(struct link *link, const struct message *message) {
    if (link->socket >= 0 && send(link->socket, message, sizeof *message, MSG_NOSIGNAL) < 0) {
        /* the gate is gone: whatever is stopped stays stopped, and the lab notices */
    }
}

/* Send a report that the gate has to have before its process goes on; `link_wait` waits for it. */
static inline uint32_t link_send_urgent(struct link *link, struct message *message) {
    if (link->socket < 0) return 0;
    pthread_mutex_lock(&link->lock);
    uint32_t ticket = 1 + link->next_ticket++ % (TICKETS - 1);
    link->waiting[ticket / 64] |= 1ull << ticket % 64;
    pthread_mutex_unlock(&link->lock);
    message->ticket = ticket;
    link_send(link, message);
    return ticket;
}

static inline void link_heard(struct link *link, uint32_t ticket) {
    pthread_mutex_lock(&link->lock);
    link->waiting[ticket % TICKETS / 64] &= ~(1ull << ticket % 64);
    pthread_cond_broadcast(&link->heard);
    pthread_mutex_unlock(&link->lock);
}

static inline void link_ended(struct link *link) {
    pthread_mutex_lock(&link->lock);
    link->gone = 1;
    pthread_cond_broadcast(&link->heard);
    pthread_mutex_unlock(&link->lock);
}

static inline void link_wait(struct link *link, uint32_t ticket) {
    struct timespec bound;
    if (!ticket) return;
    clock_gettime(CLOCK_REALTIME, &bound);
    bound.tv_sec += HEARD_BOUND_S;
    pthread_mutex_lock(&link->lock);
    while (!link->gone && link->waiting[ticket / 64] >> ticket % 64 & 1)
        if (pthread_cond_timedwait(&link->heard, &link->lock, &bound) == ETIMEDOUT) {
            fprintf(stderr, "verbs gate: no word from the gate in %d s\n", HEARD_BOUND_S);
            link->gone = 1;
        }
    pthread_mutex_unlock(&link->lock);
}

#endif

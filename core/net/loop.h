/* What all sockets of one event loop share: the loop itself, one read buffer, the time at which the
 * loop last woke, and its pace. One thread.
 *
 * A turn of it that is busy reads, serves and writes sockets in stretches (inbox.h, outbox.h): when
 * the turn before served at least KVR_LOOP_BUSY of them. */
#ifndef KVR_LOOP_H
#define KVR_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "inbox.h"
#include "outbox.h"
#include "pace.h"

#define KVR_READ_BUFFER_BYTES ((size_t)64 * 1024)
#define KVR_LOOP_BUSY         4

struct kvr_loop {
    uv_loop_t *uv;
    uv_check_t check;         /* all sockets of this poll have been seen */
    uv_prepare_t prepare;     /* ends a turn: before the loop polls again */
    bool asleep;              /* no socket has been served since the loop last polled */
    uint64_t woke_ns;         /* when poll last returned, seen by the first socket it served */
    uint32_t served;          /* sockets, this turn */
    bool busy;                /* the turn before was */
    struct kvr_inbox inbox;   /* reads of this turn */
    struct kvr_outbox outbox; /* writes of this turn */
    struct kvr_pace pace;     /* its period is 0 unless kvr_loop_pace sets it */
    char *read_buffer;        /* KVR_READ_BUFFER_BYTES; holds one read until its callback returns */
};

void kvr_loop_init(struct kvr_loop *loop, uv_loop_t *uv);
/* Once its streams have closed. Closes its handles; the loop must run once more before the memory
 * goes. */
void kvr_loop_deinit(struct kvr_loop *loop);

/* While it is busy with streams the loop polls at most once in `period_us` (pace.h). For the thread
 * that runs the loop: its timers become precise. */
void kvr_loop_pace(struct kvr_loop *loop, uint32_t period_us);

/* For alloc callbacks: counts a socket served, and stamps woke_ns when it is the first since the
 * poll. */
void kvr_loop_woke(struct kvr_loop *loop);
/* When this turn's poll returned: what its sockets brought had come by then. Now, where only timers
 * or signals have woken it. */
uint64_t kvr_loop_turn_ns(const struct kvr_loop *loop);
/* Monotonic nanoseconds. */
uint64_t kvr_loop_now(void);
/* The same clock as it stood when the loop last woke, in steps of a millisecond: costs nothing, for
 * limits of seconds. */
uint64_t kvr_loop_coarse(const struct kvr_loop *loop);

#endif

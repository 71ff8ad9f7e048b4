/* Regular GETs of one path from every replica of the fleet: what the scraper and the model list
 * have in common. Membership is read from the replica table at each turn; nobody has to report it,
 * but kvr_rounds_wake makes a change count at once.
 *
 *   a member that is up      first asked at once or, when staggered, at its own phase of the
 *                            interval, which hangs on its identity; then at that phase
 *   comes back up, restarts  asked as if it were new
 *   down                     asked once when it is new (unless staggered), then left alone
 *   FAILED                   asked again after retry_ns, doubling up to the interval
 *   ABSENT                   it has no such page: interval doubling up to absent_max_ns
 *
 * At most one request a replica is in flight. An answer is dropped when the slot or its generation
 * has changed meanwhile. */
#ifndef KVR_ROUNDS_H
#define KVR_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>

#include "fetch.h"
#include "loop.h"
#include "replica.h"
#include "target.h"

struct kvr_rounds_options {
    const char *path;       /* must live as long as the rounds */
    uint64_t interval_ns;   /* of one replica */
    uint64_t timeout_ns;    /* of one request */
    uint64_t retry_ns;      /* after the first failure; 0: the interval */
    uint64_t absent_max_ns; /* default 60 s */
    size_t max_bytes;       /* of one answer */
    bool staggered;
};

enum kvr_round_verdict { KVR_ROUND_OK, KVR_ROUND_FAILED, KVR_ROUND_ABSENT };

struct kvr_rounds_events {
    void *context;
    /* Any whole answer with a 2xx status; the rest is judged here. */
    enum kvr_round_verdict (*on_answer)(void *context, uint32_t slot,
                                        const struct kvr_fetch_result *result);
};

struct kvr_rounds_counters {
    uint64_t asked;
    uint64_t answered;
    uint64_t failed; /* no connection, cut, other statuses, answers judged FAILED */
    uint64_t timed_out;
    uint64_t absent;  /* 404, 405, 501, or judged so */
    uint64_t dropped; /* answers of another generation */
};

struct kvr_rounds_slot;

struct kvr_rounds {
    struct kvr_loop *loop;
    const struct kvr_replica_table *replicas; /* the router's */
    struct kvr_rounds_options options;
    struct kvr_target_source source;
    struct kvr_rounds_events events;
    struct kvr_rounds_slot *slots; /* by replica slot, as many as the table has */
    struct kvr_rounds_counters counters;
    uv_timer_t timer;
    bool closing;
};

void kvr_rounds_start(struct kvr_rounds *rounds, struct kvr_loop *loop,
                      const struct kvr_replica_table *replicas,
                      const struct kvr_rounds_options *options,
                      const struct kvr_target_source *source,
                      const struct kvr_rounds_events *events);
/* The fleet changed: looks at it at once. */
void kvr_rounds_wake(struct kvr_rounds *rounds);
/* Cancels what is out. The loop must run once more before the memory of the rounds goes. */
void kvr_rounds_close(struct kvr_rounds *rounds);

#endif

/* Sends the probes that model/health asks for: GET /health with Host = the replica's authority and
 * the replica's own key, and reports what came of each.
 *
 *   2xx                                              PASS
 *   any other answer, none, no connection            FAIL
 *   nothing whole within health.options.timeout_ns   TIMEOUT
 *
 * A probe that this host could not even send (no descriptor, no port left) is no outcome: it is
 * tried again until it can be sent, so that our own want never ejects a replica. An outcome is
 * dropped when the slot was given to another meanwhile; when the same replica has moved to another
 * generation (it went down, or restarted) the old answer is no news of it, and it is probed anew at
 * once. In health's terms a probe is thus out until an outcome is reported.
 *
 * At most one probe a replica is in flight. */
#ifndef KVR_PROBER_H
#define KVR_PROBER_H

#include <stdbool.h>
#include <stdint.h>

#include "health.h"
#include "loop.h"
#include "target.h"

struct kvr_prober_options {
    const char *path; /* default "/health"; must live as long as the prober */
};

struct kvr_prober_events {
    void *context;
    /* `refused`: the connection could not be made. A failed connect ejects at once, by the router's
     * own rule; the outcome is then FAIL. */
    void (*on_outcome)(void *context, uint32_t slot, enum kvr_probe_outcome outcome, bool refused);
};

struct kvr_prober_counters {
    uint64_t sent;
    uint64_t passed;
    uint64_t failed;
    uint64_t timed_out;
    uint64_t dropped; /* outcomes of a slot that was another's by then */
    uint64_t renewed; /* sent again, because the generation had changed */
    uint64_t unsent;  /* tries that failed by want of our own */
};

struct kvr_prober_slot;

struct kvr_prober {
    struct kvr_loop *loop;
    struct kvr_health *health; /* the router's */
    struct kvr_prober_options options;
    struct kvr_target_source source;
    struct kvr_prober_events events;
    struct kvr_prober_slot *slots; /* by replica slot, as many as the table has */
    struct kvr_prober_counters counters;
    uv_timer_t timer;
    bool closing;
};

/* Starts probing. `options` may be NULL. */
void kvr_prober_start(struct kvr_prober *prober, struct kvr_loop *loop, struct kvr_health *health,
                      const struct kvr_prober_options *options,
                      const struct kvr_target_source *source,
                      const struct kvr_prober_events *events);
/* Something may be due earlier than was known: a replica was added or removed. */
void kvr_prober_wake(struct kvr_prober *prober);
/* Cancels what is out. The loop must run once more before the memory of the prober goes. */
void kvr_prober_close(struct kvr_prober *prober);

#endif

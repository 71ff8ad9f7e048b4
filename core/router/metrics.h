/* What the router counts over its life. Everything survives reloads. Written by the router, read by
 * the metrics page, the admin interface and the simulator's tables. Tokens are as engines counted.
 */
#ifndef KVR_METRICS_H
#define KVR_METRICS_H

#include <stdint.h>

#include "histogram.h"
#include "reason.h"

#define KVR_OUTCOMES   4
#define KVR_REJECTIONS 9

/* Belief against fact, over requests for which both are known; never netted (see rows). */
struct kvr_belief_counts {
    uint64_t requests; /* that were answered, and whose engine told cached tokens */
    uint64_t predicted_tokens;
    uint64_t honoured_tokens; /* sum of min(predicted, cached) */
    uint64_t over_requests;   /* predicted > cached */
    uint64_t over_tokens;     /* sum of predicted - cached, of these */
    uint64_t under_requests;  /* predicted < cached */
    uint64_t under_tokens;    /* sum of cached - predicted, of these */
};

/* Where a request went while a plan was in force. */
enum kvr_planned {
    KVR_PLANNED_THERE, /* to a destination of its key */
    KVR_PLANNED_AWAY,  /* elsewhere, though the plan has its key */
    KVR_UNPLANNED,     /* the plan does not have its key */
    KVR_PLANNED_KINDS,
};

struct kvr_metrics {
    uint64_t submitted; /* requests, refused ones too */
    uint64_t outcomes[KVR_OUTCOMES];
    uint64_t rejections[KVR_REJECTIONS];
    uint64_t decisions[KVR_REASONS_MAX]; /* by reason */
    uint64_t fallbacks;                  /* decided in C because no script did */
    uint64_t spills;                     /* moved by the spill rule */
    uint64_t moves;                      /* dispatches after a failed one */
    uint64_t canary;                     /* decided by the canary slot */
    uint64_t planned[KVR_PLANNED_KINDS]; /* dispatches that saw a plan */
    uint64_t baseline;                   /* by the baseline, the gate's envelope being left */
    uint64_t envelopes_left;
    uint64_t prompt_tokens;
    uint64_t cached_tokens;
    uint64_t output_tokens;
    uint64_t bytes_in;
    uint64_t bytes_out;
    struct kvr_belief_counts belief;
    struct kvr_histogram overhead_us; /* last byte in to request written */
    struct kvr_histogram ttft_us;
    struct kvr_histogram total_us;
};

#endif

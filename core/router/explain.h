/* What would happen to a request if it came now, and why: every candidate's row of the view as
 * scripts see it, what the policy and the spill rule say, and where the request would go.
 *
 * Nothing is sent, opened, admitted or counted: the serial that rotates ties is that of the next
 * request of this model, and stays. The scripts in force are called, so what they themselves keep
 * moves on: their random numbers, what they remember, and the counters of their calls. */
#ifndef KVR_EXPLAIN_H
#define KVR_EXPLAIN_H

#include <stdint.h>

#include "json_writer.h"
#include "router.h"

/* Writes members into the object that is open: "request", "view", "candidates", "policy", "spill",
 * "fallback", "outcome" (dispatch, wait, reject), "rejection", "replica", "reason",
 * "match_blocks", "shadow". null: nobody has read it; a capacity of null is unlimited. */
void kvr_router_explain(struct kvr_router *router, uint64_t now_ns,
                        const struct kvr_submission *submission, struct kvr_json_writer *json);

#endif

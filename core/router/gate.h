/* The envelope of a gate (envelope.h) in a router: what it is told, and what follows when it is
 * left. Used by the router only. */
#ifndef KVR_GATE_H
#define KVR_GATE_H

#include "router.h"

/* A request came that is routed by policy. */
void kvr_gate_arrived(struct kvr_router *router, uint64_t now_ns, uint64_t routing_key);
/* It has its first token, after `ttft_ns`. */
void kvr_gate_answered(struct kvr_router *router, uint64_t now_ns,
                       const struct kvr_request_record *record, uint64_t ttft_ns);
/* It has ended. Without a first token it counts as late where that is the fleet's fault, or where
 * it had waited too long already; else it says nothing. */
void kvr_gate_ended(struct kvr_router *router, uint64_t now_ns,
                    const struct kvr_request_record *record, const struct kvr_ending *ending);
void kvr_gate_tick(struct kvr_router *router, uint64_t now_ns);

#endif

/* One decision: the view is filled, the policy picks, the spill rule may decline, C checks. Used by
 * router.c only. */
#ifndef KVR_DECIDE_H
#define KVR_DECIDE_H

#include "router.h"

/* Decides for an open request: its action is queued, or it waits. `chain` has record->chain_len. */
void kvr_decide(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request,
                const uint64_t *chain);
/* Decides for one request of the queue that can go now, if there is one. */
void kvr_decide_waiting(struct kvr_router *router);

/* Fills a zeroed record with what the driver says of its request. */
void kvr_decide_describe(struct kvr_router *router, struct kvr_request_record *record,
                         const struct kvr_submission *submission);

/* A session, or a routing key, is always on the same side; without one it is the number of the
 * request. */
bool kvr_decide_is_canary(const struct kvr_router *router, const struct kvr_request_record *record,
                          uint64_t sequence);
/* Who decides about that request now. */
enum kvr_script_role kvr_decide_role(const struct kvr_router *router,
                                     const struct kvr_request_record *record);
/* With no row available: why, in the order in which an operator would look. */
enum kvr_rejection kvr_decide_why_none(const struct kvr_router *router,
                                       const struct kvr_request_record *record);
/* That replica has failed this request already. */
bool kvr_decide_is_excluded(const struct kvr_request_record *record, uint32_t replica);
/* Queues a refusal. */
void kvr_decide_reject(struct kvr_router *router, uint64_t now_ns, struct kvr_request_ref request,
                       enum kvr_rejection rejection);
/* A record names this replica: its slot is not given away meanwhile. */
void kvr_decide_hold(struct kvr_router *router, uint32_t replica);
/* A record no longer names this replica; KVR_NO_REPLICA is allowed. */
void kvr_decide_release(struct kvr_router *router, uint32_t replica);

/* Fills router->picture with what a decision for this request would see. */
void kvr_decide_view(struct kvr_router *router, uint64_t now_ns,
                     const struct kvr_request_record *record, const uint64_t *chain,
                     uint32_t needs);

/* The decision that cannot fail: least in flight over its weight, ties rotated by serial. Returns a
 * row or KVR_NO_REPLICA when none is available. */
uint32_t kvr_fallback_pick(const struct kvr_view *view, uint32_t serial);

#endif

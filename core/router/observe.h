/* Tells a policy that learns (P.observe) what became of a request it decided. Used by life.c only.
 */
#ifndef KVR_OBSERVE_H
#define KVR_OBSERVE_H

#include "router.h"

/* As policies see them: kvr_observation.kind. */
enum kvr_observed { KVR_SEEN_DISPATCHED, KVR_SEEN_FIRST_BYTE, KVR_SEEN_DONE, KVR_SEEN_FAILED };

/* `ending` is NULL before the end. */
void kvr_observe(struct kvr_router *router, uint64_t now_ns,
                 const struct kvr_request_record *record, enum kvr_observed kind,
                 const struct kvr_ending *ending);

#endif

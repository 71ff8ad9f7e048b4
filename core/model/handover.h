/* How the keys that a plan moves go to their new destinations: for a while the old ones keep them,
 * and one request in `every` goes to the new ones, until answers from there say that they are warm.
 * Then, or when the while is over, the key has moved. So a plan's copies are warmed with a part of
 * the traffic instead of all of it.
 *
 * It is a table of the keys that move, made where the plan is made; a plan's other keys are not in
 * it. A key moves if both plans have it and some destination of the next one was not its own; only
 * the destinations that still are members stay in between, and a key with none of them left moves
 * at once. */
#ifndef KVR_HANDOVER_H
#define KVR_HANDOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "plan.h"

struct kvr_handover_options {
    uint32_t every;   /* 0: off, all keys move at once; else one request in so many warms, >= 2 */
    uint64_t most_ns; /* a key has moved after so long in any case; 0: 60 s */
};

struct kvr_handover;

/* `input` as of kvr_plan_compare; `replicas` are the ids of its destinations, copied. NULL: it is
 * off, or no key moves. */
struct kvr_handover *kvr_handover_create(const struct kvr_handover_options *options,
                                         const struct kvr_plan *next,
                                         const struct kvr_plan_input *input,
                                         const uint64_t *replicas);
void kvr_handover_destroy(struct kvr_handover *handover); /* NULL is allowed */

#endif

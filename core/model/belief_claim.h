/* A claim: one admission, as the beliefs see it. A replica was sent a run of blocks, deepest last;
 * each takes a stamp, the deepest the first of them, as eviction begins with what is deepest.
 *
 * It does to every block what kvr_belief_put does. */
#ifndef KVR_BELIEF_CLAIM_H
#define KVR_BELIEF_CLAIM_H

#include <stdint.h>

#include "belief.h"

/* Stamps `stamp` to `stamp + len - 1` for that tenancy. */
void kvr_belief_claim(struct kvr_beliefs *beliefs, const uint32_t *blocks, uint32_t len,
                      uint16_t tenancy, uint32_t stamp);

#endif

/* A walk: one match, over the beliefs of a chain's blocks from the first on. Every tenancy that
 * holds the first block sets out; one that does not hold the next block stays behind, and how far
 * it came is its `reach`.
 *
 *     block 0  {a b c}     a b c set out
 *     block 1  {a b c}     a b c           same places as before: one comparison for all of them
 *     block 2  {a c}       a   c           b stays behind: reach 2
 *
 * Blocks that were admitted together have their holders in the same places, so that mostly the walk
 * only asks which of those places are still fresh. Reaches are written when somebody stays behind
 * and at the end, which puts them into the caller's row and back to zero. */
#ifndef KVR_BELIEF_WALK_H
#define KVR_BELIEF_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "belief.h"

struct kvr_belief_walk {
    const struct kvr_beliefs *beliefs;
    uint16_t *started; /* the caller's, room for every slot: tenancies that set out */
    uint32_t started_count;
    uint32_t depth;         /* blocks that those still walking have passed */
    bool anybody;           /* is still walking */
    const uint16_t *layout; /* places that `walking` means; NULL: some walk by overflow lines, and
                               the reach of all is up to date */
    uint32_t walking;       /* lanes */
    uint32_t last;          /* block that was stepped over last */
};

/* Sets out at the first block. */
void kvr_belief_walk_start(struct kvr_belief_walk *walk, const struct kvr_beliefs *beliefs,
                           uint32_t block, uint16_t *started);
/* Walks over the next blocks while anybody is left. */
void kvr_belief_walk_on(struct kvr_belief_walk *walk, const uint32_t *blocks, uint32_t count);
/* Tells how far each came, by slot: writes only who set out. Returns the longest. */
uint32_t kvr_belief_walk_end(struct kvr_belief_walk *walk, uint32_t *reach_by_replica);

#endif
